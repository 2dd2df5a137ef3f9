"""What a run is examined on: retrieval among unseen classes, verification of faces, frozen features.

An exam is taken in two parts. `look` embeds what it needs, which all ranks share out; `measure` makes metrics of that
on one of them. `headline` is the metric by which a run is told in a line.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from isosphere.data.faces import Pairs
from isosphere.data.images import ImageSet
from isosphere.data.packed import PackedSet
from isosphere.metrics import clustering_metrics, retrieval_metrics
from isosphere.metrics.faces import (
    FEWEST_FALSE_ACCEPTS,
    auc,
    norm_and_errors,
    pair_cosines,
    tar_at_far,
    verification,
    wrong_pairs,
)
from isosphere.metrics.identification import distractors_ahead
from isosphere.metrics.probe import knn_accuracy, linear_probe
from isosphere.sphere import norms

Images = ImageSet | PackedSet
View = Callable[[Tensor, Tensor], Tensor]
Embed = Callable[..., Tensor]  # (images, view, how="embeddings" | "mirrored" | "features" | "both") -> (N, D)
Looks = dict[str, Tensor]
RATES = (1.0, 2.0, 5.0, 10.0)  # learning rates of the linear probe, trained at once for the price of one
B3_RATE = 5.0  # App. B.3's, which is the primary one
FARS = (0.01, 0.001)  # false accept rates at which true accepts are told, where there are impostors enough


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on the screen (none in a log file) that hears `show(done, total)`, and goes when all is done."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@dataclass(frozen=True)
class Retrieval:
    """Recall@K, MAP@R, and at the end NMI and F1, of images, as a rule of classes that were not trained on."""

    images: Images
    view: View | None
    is_query: Tensor | None = None  # which images ask, where the others are a gallery of their own
    recalls: tuple[int, ...] = (1, 2, 4, 8)
    headline: ClassVar[str] = "recall@1"

    def look(self, embed: Embed, final: bool) -> Looks:
        return {"embeddings": embed(self.images, self.view)}

    def measure(self, looks: Looks, final: bool, seed: int) -> dict[str, float]:
        embeddings, labels = looks["embeddings"], self.images.labels
        if self.is_query is None:
            found = retrieval_metrics(embeddings, labels, self.recalls)
        else:
            asks, others = self.is_query.to(embeddings.device), ~self.is_query.to(embeddings.device)
            gallery = embeddings[others], labels[~self.is_query]
            found = retrieval_metrics(embeddings[asks], labels[self.is_query], self.recalls, *gallery)
        return found | clustering_metrics(embeddings, labels, seed) if final else found


@dataclass(frozen=True)
class Faces:
    """Verification of each set of pairs; at the end also identification, and how well a low norm foretells an error.

    `accuracy` is the mean over the sets. Embeddings are averaged over a face and its mirror image. Probes are found
    among so many of all distractors, `rank1@1000`, and, where these are several sets, among each, `rank1@singles`.
    """

    pairs: tuple[Pairs, ...]
    probes: ImageSet | None = None
    distractors: dict[str, ImageSet] = field(default_factory=dict)  # by the name of their set
    headline: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        for pairs in self.pairs:
            if pairs.same.all() or not pairs.same.any():
                kind = "one person" if pairs.same.all() else "two people"
                raise ValueError(f"{pairs.name}: all {len(pairs)} pairs are of {kind}, but both kinds are needed")

    @property
    def sets(self) -> list[ImageSet]:
        """Those with the people who are verified and identified, and among whom."""
        return [pairs.images for pairs in self.pairs] + [*filter(None, [self.probes]), *self.distractors.values()]

    @property
    def images(self) -> ImageSet:
        """The first set's."""
        return self.pairs[0].images

    def look(self, embed: Embed, final: bool) -> Looks:
        sets = {id(pairs.images): pairs.images for pairs in self.pairs}  # CFP's two protocols share theirs
        seen = {key: embed(images, None, "mirrored") for key, images in sets.items()}
        looks = {pairs.name: seen[id(pairs.images)] for pairs in self.pairs}
        if final and self.probes is not None:
            looks["probes"] = embed(self.probes, None, "mirrored")
            looks |= {f"among {name}": embed(images, None, "mirrored") for name, images in self.distractors.items()}
        return looks | {"embeddings": next(iter(looks.values()))}

    def measure(self, looks: Looks, final: bool, seed: int) -> dict[str, float]:
        found = {}
        for pairs in self.pairs:
            embeddings = looks[pairs.name]
            left, right = embeddings[pairs.left.to(embeddings.device)], embeddings[pairs.right.to(embeddings.device)]
            verified = verification(left, right, pairs.same, pairs.fold)
            found[pairs.name] = verified["accuracy"]
            if final:
                found[f"{pairs.name}_std"] = verified["std"]
                cosines = pair_cosines(left, right)
                wrong, _ = wrong_pairs(cosines, pairs.same, pairs.fold)
                lower = torch.minimum(norms(left), norms(right))
                found[f"{pairs.name}_auc"] = auc(cosines, pairs.same)
                fars = [far for far in FARS if far * int((~pairs.same).sum()) >= FEWEST_FALSE_ACCEPTS]
                accepted = tar_at_far(cosines, pairs.same, fars) if fars else {}
                found |= {f"{pairs.name}_tar@{far:g}": share for far, share in accepted.items()}
                found |= _foretold(pairs.name, lower, wrong)
        found = {"accuracy": sum(found[pairs.name] for pairs in self.pairs) / len(self.pairs)} | found
        return found | self._identified(looks, seed) if "probes" in looks else found

    def _identified(self, looks: Looks, seed: int) -> dict[str, float]:
        probes, labels = looks["probes"], self.probes.labels.to(looks["probes"].device)
        sets = {name: looks[f"among {name}"] for name in self.distractors}
        everyone = torch.cat(list(sets.values()))
        counts = [10**power for power in range(3, 7) if 10**power <= len(everyone)]
        if not counts or len(everyone) >= 2 * counts[-1]:  # else they would tell the same
            counts.append(len(everyone))
        with bar("identifying", counts[-1]) as show:
            rows, _, ahead = distractors_ahead(probes, labels, everyone, counts, 1, seed=seed, progress=show)
        found = {f"rank1@{count}": _none(ahead[count]) for count in counts}
        if len(sets) > 1:
            for name, its in sets.items():
                found[f"rank1@{name}"] = _none(distractors_ahead(probes, labels, its, [len(its)])[2][len(its)])
        return found | _foretold("rank1", norms(probes)[rows], ahead[counts[-1]] > 0)


def _none(ahead: Tensor) -> float:
    """The share of pairs with no distractor ahead."""
    return float((ahead == 0).double().mean())


def _foretold(name: str, lengths: Tensor, wrong: Tensor) -> dict[str, float]:
    """How well a low norm foretells an error; nothing where there is none to foretell."""
    auroc = norm_and_errors(lengths, wrong, groups=1)["auroc"]
    return {} if auroc is None else {f"{name}_norm_auroc": auroc}


@dataclass(frozen=True)
class Frozen:
    """Weighted k-NN of the backbone's frozen features; at the end also the linear probe of App. B.3.

    `probe_top1` is of the last epoch, `probe_best_top1` of the one that is best on test. Those of other learning rates
    than B.3's have it behind an @; of one that diverged there is `probe_diverged` alone, the epoch.
    """

    train: Images
    images: Images
    view: View | None
    neighbors: int = 200
    headline: ClassVar[str] = "knn"

    def look(self, embed: Embed, final: bool) -> Looks:
        train, both = embed(self.train, self.view, "features"), embed(self.images, self.view, "both")
        test, embeddings = both.tensor_split([train.shape[1]], dim=1)
        return {"train": train, "test": test.contiguous(), "embeddings": embeddings.contiguous()}

    def measure(self, looks: Looks, final: bool, seed: int) -> dict[str, float]:
        # No more neighbors than a class has images on average, or the others would outvote it.
        neighbors = max(1, min(self.neighbors, len(self.train) // len(self.train.classes)))
        found = {"knn": knn_accuracy(*self._known(looks), k=neighbors)["top1"]}
        if final:
            for lr, its in self.probe(looks, seed).items():
                rate = "" if lr == B3_RATE else f"@{lr:g}"
                found |= {f"probe_{name}{rate}": value for name, value in its.items() if value is not None}
        return found

    def probe(self, looks: Looks, seed: int, lrs: Sequence[float] = RATES) -> dict[float, dict[str, float | None]]:
        """The linear probe at these learning rates, trained at once."""
        with bar("linear probe", 100) as show:
            return linear_probe(*self._known(looks), lrs=lrs, seed=seed, progress=show)

    def _known(self, looks: Looks) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features and labels of both sets; a test set that lacks a class numbers the others anew, so names decide."""
        number = {name: label for label, name in enumerate(self.train.classes)}
        truth = torch.tensor([number[name] for name in self.images.classes])[self.images.labels]
        device = looks["train"].device
        return looks["train"], self.train.labels.to(device), looks["test"], truth.to(device)


@dataclass(frozen=True)
class Unexamined:
    """Images without labels: nothing can be measured but the norms."""

    images: Images
    view: View | None
    headline: ClassVar[str] = "norm_mean"

    def look(self, embed: Embed, final: bool) -> Looks:
        return {"embeddings": embed(self.images, self.view)}

    def measure(self, looks: Looks, final: bool, seed: int) -> dict[str, float]:
        return {}


Exam = Retrieval | Faces | Frozen | Unexamined
