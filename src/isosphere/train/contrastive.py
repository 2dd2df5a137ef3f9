"""Contrastive learning without labels: frozen features are measured, or with no labels at all the norms alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from isosphere.data import cifar
from isosphere.data.apart import images_apart
from isosphere.data.cache import cached, placed
from isosphere.data.images import Images, open_images
from isosphere.data.split import Set
from isosphere.data.transforms import View
from isosphere.data.two_views import ContrastiveView
from isosphere.errors import NoSplit, UntrainedClasses
from isosphere.inference import ImageEmbedder, evaluation_view, progress_bar
from isosphere.metrics.probe import knn_accuracy, linear_probe
from isosphere.metrics.registry import NORM_MEAN, leading
from isosphere.recipes import schema
from isosphere.train.evaluation import Embedded
from isosphere.train.retrieval import check_splits, validation_part
from isosphere.train.task import Task, noted

RATES = (1.0, 2.0, 5.0, 10.0)  # learning rates of the linear probe, trained at once for the price of one
B3_RATE = 5.0  # App. B.3's, which is the primary one
FIFTH = 0.2  # of one's own class folders every fifth image measures


@dataclass(frozen=True)
class Frozen:
    """Weighted k-NN of the backbone's frozen features; after the last step also the linear probe of App. B.3.

    `probe_top1` is of the last epoch, `probe_best_top1` of the one that is best on test. Names of other learning rates
    than B.3's end in an @ and the rate. One that diverged has `probe_diverged` alone, the epoch.
    """

    train: Images
    images: Images
    view: View | None
    neighbors: int = 200
    headline: ClassVar[str] = leading("contrastive", training=True)
    choosing: ClassVar[str] = leading("contrastive", training=True)
    is_query: ClassVar[None] = None

    @property
    def sets(self) -> list[Images]:
        return [self.images]

    @property
    def classes(self) -> int:
        return len(self.images.classes)

    def of(self, train: Images, held: Images | None = None) -> "Frozen":
        return replace(self, train=train, images=self.images if held is None else held)

    def embed(self, embedder: ImageEmbedder, final: bool) -> Embedded:
        train, both = embedder.features(self.train, self.view), embedder.both(self.images, self.view)
        test, embeddings = both.tensor_split([train.shape[1]], dim=1)
        return {"train": train, "test": test.contiguous(), "embeddings": embeddings.contiguous()}

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        # No more neighbors than a class has images on average, or the others would outvote it.
        neighbors = max(1, min(self.neighbors, len(self.train) // len(self.train.classes)))
        found = {self.headline: knn_accuracy(*self._labeled(embedded), k=neighbors)["top1"]}
        if final:
            for lr, its in self.probe(embedded, seed).items():
                rate = "" if lr == B3_RATE else f"@{lr:g}"
                found |= {f"probe_{name}{rate}": value for name, value in its.items() if value is not None}
        return found

    def probe(self, embedded: Embedded, seed: int, lrs: Sequence[float] = RATES) -> dict[float, dict]:
        """The linear probe at these learning rates, trained at once."""
        with progress_bar("linear probe", 100) as show:
            return linear_probe(*self._labeled(embedded), lrs=lrs, seed=seed, progress=show)

    def _labeled(self, embedded: Embedded) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features and labels of both sets. A test set that lacks a class numbers the others anew, so names decide."""
        number = {name: label for label, name in enumerate(self.train.classes)}
        truth = torch.tensor([number[name] for name in self.images.classes])[self.images.labels]
        device = embedded["train"].device
        return embedded["train"], self.train.labels.to(device), embedded["test"], truth.to(device)

    def untrained(self, embedder: ImageEmbedder) -> dict[str, float]:
        return {}  # k-NN before the first step is of these already

    def relation(self, classes: Sequence[str], images: int | None, kind: str, compared: bool) -> str:
        if images not in (None, len(self.train)):
            return f"{kind} images of another split than in training: some may have been trained on"
        return f"{kind} images, not trained on"


@dataclass(frozen=True)
class Unlabeled:
    """Images without labels: nothing can be measured but the norms."""

    images: Images
    view: View | None
    headline: ClassVar[str] = NORM_MEAN
    choosing: ClassVar[str] = ""
    is_query: ClassVar[None] = None
    classes: ClassVar[None] = None

    @property
    def sets(self) -> list[Images]:
        return [self.images]

    def of(self, train: Images, held: Images | None = None) -> "Unlabeled":
        return self if held is None else replace(self, images=held)

    def embed(self, embedder: ImageEmbedder, final: bool) -> Embedded:
        return {"embeddings": embedder(self.images, self.view)}

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        return {}

    def untrained(self, embedder: ImageEmbedder) -> dict[str, float]:
        return {}  # k-NN before the first step is of these already

    def relation(self, classes: Sequence[str], images: int | None, kind: str, compared: bool) -> str:
        return "the images trained on"


def cifar_task(data: schema.Cifar, device: torch.device) -> Task:
    """CIFAR, whose labels measure alone."""
    train, test = cifar.load(data.name, data.root, data.download, device)
    view = ContrastiveView(data.size, data.size, data.scale, jitter=data.jitter)
    return Task(train, view, Frozen(train, test, None), unlabeled=True)


def unlabeled_task(data: schema.Unlabeled, device: torch.device) -> Task:
    """One's own images, whose classes measure alone, if they have some."""
    frame = data.shape, data.shorter
    view = ContrastiveView(
        *frame, data.scale, flip=data.flip, jitter=data.jitter, fit=data.fit, interpolation=data.resize
    )
    images = open_images(data.root, flat=True)
    images = cached(images, view.stored, data.root, data.cache, data.skip_unreadable)
    if len(images.classes) < 2:
        images = placed(images, device)
        evaluation = Unlabeled(images, evaluation_view(data))
        return Task(images, view, evaluation, noted(images.note), unlabeled=True)
    check_splits(images, data.root)
    train, test = (placed(part, device) for part in _split(images, FIFTH, data.root))
    evaluation = Frozen(train, test, evaluation_view(data))
    return Task(train, view, evaluation, noted(images.note), unlabeled=True, given=validation_part(images, device))


def _split(images: Set, share: float, root: str) -> tuple[Set, Set]:
    """This share of each class for testing, evenly in the set's order and never the first. A given split wins."""
    if images.splits is not None:
        apart = torch.tensor([split == "test" for split in images.splits])
        trains = torch.tensor([split == "train" for split in images.splits])
    else:
        apart = images_apart(images.labels, share)
        trains = ~apart
    if not apart.any() or not trains.any():
        raise NoSplit(root, len(images), len(images.classes), round(1 / share))
    train, test = (images.subset(rows.nonzero().flatten()) for rows in (trains, apart))
    unknown = [name for name in images.classes if name not in set(train.classes)]
    if unknown:
        raise UntrainedClasses(len(unknown), unknown)
    return train, test
