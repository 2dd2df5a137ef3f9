"""How much can be read out of frozen features: the linear probe of B.3, and k-NN.

Both work on the features' device and give fractions. Ties count against the test image, as everywhere in the metrics.
"""

import functools
import math
from collections.abc import Callable, Sequence
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from isosphere import sphere
from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import (
    Array,
    Twins,
    block_rows,
    checked_embeddings,
    checked_labels,
    directions,
    largest_eps,
    listed,
    numbered,
    tensor,
    total,
    widened,
)


def linear_probe(
    train_features: Array,
    train_labels: Array,
    test_features: Array,
    test_labels: Array,
    lrs: Sequence[float] | float = (5.0,),
    epochs: int = 100,
    batch: int = 256,
    milestones: Sequence[int] = (60, 75, 90),
    factor: float = 0.2,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[float, dict[str, float | None]]:
    """Softmax regression by SGD on frozen features (N, D), tested on (M, D), for each learning rate at once (App. B.3).

    For each rate:

    - `top1`, `top5`: accuracies after the last epoch.
    - `best_top1`, `best_top5`, `best_epoch`: those of the epoch (from 1) best on test, which the authors report.
    - `diverged`: the epoch after which the weights were no longer finite, or None.

    A diverged rate has None for the rest. An error is raised if all diverge. The default is the paper's rate. Which one
    suits depends on the features' scale, so give several for others.

    The appendix does not say whether images are augmented here. We assume not: features are computed once, of the plain
    images. The authors' code crops (scale 0.2 to 1) and flips the training images anew in every epoch. The features are
    taken as they are, not normalized, as in their code. Ours are also the zero start (the problem is convex) and
    batches that depend on (seed, epoch) alone. An incomplete last batch is kept, and its loss is its mean.
    `progress(done, total)` hears of each epoch. On a GPU an epoch with its test is one CUDA graph. Nothing is read
    until the end.
    """
    train, targets, test, truth, classes = _checked(train_features, train_labels, test_features, test_labels)
    lrs = [float(lr) for lr in listed(lrs)]
    if not lrs or not all(0 < lr < math.inf for lr in lrs):
        raise BadArgument("lrs", lrs, "finite numbers above 0, at least one")
    if epochs < 1 or batch < 1:
        raise BadArgument("epochs and batch", (epochs, batch), "at least 1")
    classifiers = _Classifiers(len(lrs), classes, train, momentum, weight_decay)
    starts = torch.tensor(lrs, dtype=train.dtype).repeat_interleave(classes).to(train.device)
    order = torch.empty(len(train), dtype=torch.int64, device=train.device)
    history = torch.empty(epochs, len(lrs), 3, dtype=torch.int64, device=train.device)  # right@1, right@5, finite
    found = torch.empty_like(history[0])

    def epoch() -> None:
        for rows in order.split(batch):
            classifiers.step(train[rows], targets[rows])
        found.copy_(torch.cat([classifiers.right(test, truth), classifiers.finite()[:, None]], 1))

    with torch.autocast(train.device.type, enabled=False):
        for number in range(epochs):
            order.copy_(torch.from_numpy(_shuffled(len(train), seed, number)))
            classifiers.rates.copy_(starts * factor ** sum(number >= milestone for milestone in milestones))
            if number == 1 and train.device.type == "cuda":
                epoch = _captured(epoch, train.device)  # the first epoch, run as it stands, was the warm-up
            epoch()
            history[number] = found
            progress(number + 1, epochs)
    results = {lr: _result_of(counts, len(test)) for lr, counts in zip(lrs, history.cpu().unbind(1), strict=True)}
    if all(result["diverged"] for result in results.values()):
        raise BadArgument("lrs", lrs, "smaller: the probe diverged at each")
    return results


def knn_accuracy(
    train_features: Array,
    train_labels: Array,
    test_features: Array,
    test_labels: Array,
    k: int = 200,
    temperature: float = 0.1,
) -> dict[str, float]:
    """`top1` and `top5` of (M, D) by the vote of the k nearest of (N, D), each with weight exp(cos / temperature).

    Several training images may be equally near, with places among the k for only some of them. Then they share the
    places that are left. So the result does not depend on the order of the training set. It holds a block of scores at
    a time.
    """
    given = tensor(train_features)
    train, targets, test, truth, classes = _checked(given, train_labels, test_features, test_labels)
    if not isinstance(k, Integral) or not 1 <= k <= len(train):
        raise BadArgument("k", k, f"a whole number from 1 to that of training features, {len(train)}")
    if not 0 < temperature < math.inf:
        raise BadArgument("temperature", temperature, "a finite number above 0")
    train, test = directions(train), directions(test)
    twins = Twins(train, largest_eps(given, train))
    step = block_rows(len(train) * 10 * train.element_size(), train.device)
    right = torch.zeros(1, 2, dtype=torch.int64, device=train.device)
    for part, labels in zip(test.split(step), truth.split(step), strict=True):
        cosines = twins.level(sphere.products(part, train))  # (B, N)
        nearest = cosines.topk(k).values
        first, last = nearest[:, 0], nearest[:, -1]
        closer, tied = (compare(cosines, last[:, None]).sum(1) for compare in (torch.gt, torch.eq))
        share = (k - closer).to(train.dtype) / tied  # of each that ties for the last places
        rows, columns = (cosines >= last[:, None]).nonzero(as_tuple=True)
        found = cosines[rows, columns]
        # Relative to the nearest, so that no temperature is too small for the exponential.
        weights = found.sub(first[rows]).div_(temperature).exp_()
        weights *= torch.where(found > last[rows], 1, share[rows])
        votes = train.new_zeros(len(part), classes)
        votes.index_put_((rows, targets[columns]), weights, accumulate=True)  # in a fixed order on a GPU, too
        right += _right(votes[:, None], labels)
    top1, top5 = (widened(right[0]) / len(test)).tolist()
    return {"top1": top1, "top5": top5}


class _Classifiers:
    """L linear classifiers of C classes side by side. They are one weight (L * C, D), so one product serves all.

    Rows do not mix in any product, so a classifier that diverges leaves the others alone.
    """

    def __init__(self, count: int, classes: int, features: Tensor, momentum: float, weight_decay: float) -> None:
        self.shape, self.momentum, self.weight_decay = (count, classes), momentum, weight_decay
        self.weight = features.new_zeros(count * classes, features.shape[1])
        self.bias, self.rates = (features.new_zeros(count * classes) for _ in range(2))
        self.weight_velocity, self.bias_velocity = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        self.classes = torch.arange(classes, device=features.device)

    def logits(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, L, C)."""
        return torch.addmm(self.bias, features, self.weight.T).unflatten(1, self.shape)

    def step(self, features: Tensor, targets: Tensor) -> None:
        """SGD as torch.optim has it: v = momentum v + g + weight_decay w, w -= lr v; (B, D), (B,)."""
        # Cross-entropy's gradient by the logits: (softmax - one-hot) / B.
        slopes = self.logits(features).softmax(2) - (targets[:, None] == self.classes)[:, None].to(features.dtype)
        slopes = slopes.flatten(1) / len(features)
        self.weight_velocity.addmm_(slopes.T, features, beta=self.momentum)
        self.bias_velocity.mul_(self.momentum).add_(slopes.sum(0))
        if self.weight_decay:
            self.weight_velocity.add_(self.weight, alpha=self.weight_decay)
            self.bias_velocity.add_(self.bias, alpha=self.weight_decay)
        self.weight.addcmul_(self.weight_velocity, self.rates[:, None], value=-1)
        self.bias.addcmul_(self.bias_velocity, self.rates, value=-1)

    def right(self, features: Tensor, targets: Tensor) -> Tensor:
        """How many of (M, D), (M,) are right among the first 1 and 5, (L, 2)."""
        step = block_rows(len(self.weight) * 4 * features.element_size(), features.device)
        parts = zip(features.split(step), targets.split(step), strict=True)
        return total([_right(self.logits(part), labels) for part, labels in parts])

    def finite(self) -> Tensor:
        """Whether all weights of a classifier are finite, bool (L,)."""
        finite = self.weight.isfinite().all(1) & self.bias.isfinite()
        return finite.unflatten(0, self.shape).all(1)


def _checked(
    train_features: Array, train_labels: Array, test_features: Array, test_labels: Array
) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Features in one type on the training features' device, labels as 0..C-1, and C; or an error."""
    train = checked_embeddings(train_features, "train_features")
    test = checked_embeddings(test_features, "test_features").to(train)
    if train.shape[1] != test.shape[1]:
        raise BadArgument("test_features", tuple(test.shape), f"of shape (M, {train.shape[1]})")
    targets, truth = numbered(train_labels, test_labels)
    targets = checked_labels(targets, len(train), train.device, "train_labels")
    truth = checked_labels(truth, len(test), train.device, "test_labels")
    names, targets = targets.unique(return_inverse=True)
    unknown = ~torch.isin(truth, names)
    if unknown.any():
        raise BadArgument("test_labels", test_labels[int(unknown.int().argmax())], "among the training labels")
    return train, targets, test, torch.searchsorted(names, truth), len(names)


def _right(scores: Tensor, targets: Tensor) -> Tensor:
    """How often fewer than 1 and 5 other classes score as high as the true one, (B, L, C), (B,) -> (L, 2).

    A score that is not a number is not below another one. So it never counts as right by itself.
    """
    own = scores.gather(2, targets[:, None, None].expand(-1, scores.shape[1], 1))
    ahead = (~(scores < own)).sum(2) - 1  # less itself
    return torch.stack([(ahead < places).sum(0) for places in (1, 5)], 1)


def _result_of(counts: Tensor, size: int) -> dict[str, float | None]:
    """The result of one learning rate from its (epochs, 3) right@1, right@5 and whether finite."""
    top1, top5, finite = counts.T.tolist()
    if 0 in finite:
        names = ("top1", "top5", "best_top1", "best_top5", "best_epoch")
        return dict.fromkeys(names) | {"diverged": finite.index(0) + 1}
    best = top1.index(max(top1))
    return {
        "top1": top1[-1] / size, "top5": top5[-1] / size, "best_top1": top1[best] / size,
        "best_top5": top5[best] / size, "best_epoch": best + 1, "diverged": None,
    }  # fmt: skip


def _captured(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The work as one CUDA graph, captured and not run. What it reads and writes must stay in place."""
    graph = torch.cuda.CUDAGraph()
    # Other threads, a loader's say, may use the device meanwhile; the default stream for captures is one device's.
    with torch.cuda.device(device):
        with torch.cuda.graph(graph, stream=_capture_stream(device), capture_error_mode="thread_local"):
            work()
    return graph.replay


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all probes: cuBLAS keeps a workspace for every stream it has seen."""
    return torch.cuda.Stream(device)


def _shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch, by sorting random numbers: the same on every device, with every version of numpy."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).random(count).argsort(kind="stable")
