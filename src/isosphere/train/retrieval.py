"""Retrieval: an image of a class is found by another one, usually among classes that were not trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from isosphere.data import retrieval
from isosphere.data.cache import CachedSet, cached, placed
from isosphere.data.images import Images, ImageSet, LabeledImages, open_images
from isosphere.data.split import split_classes
from isosphere.data.transforms import ShiftView, TrainView, View
from isosphere.errors import OneSplit, SingleImages, TooFewClasses
from isosphere.inference import ImageEmbedder, evaluation_view, naming
from isosphere.metrics import clustering_metrics, ranking_metrics, retrieval_metrics
from isosphere.metrics.ranking import parted
from isosphere.metrics.registry import choosing, leading
from isosphere.recipes import schema
from isosphere.train.evaluation import Embedded
from isosphere.train.task import Task, noted

RECALLS = {
    "cub200": (1, 2, 4, 8),
    "cars196": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 30, 40, 50),
}


RANKS = (1, 5, 10)


@dataclass(frozen=True)
class Retrieval:
    """Recall@K and MAP@R; after the last step also NMI and F1.

    With queries or groups of one's own also CMC and mAP. Images of a query's class and group are no matches then.
    """

    images: Images
    view: View | None
    is_query: Tensor | None = None
    recalls: tuple[int, ...] = (1, 2, 4, 8)
    groups: Tensor | None = None
    ranks: tuple[int, ...] = ()
    headline: ClassVar[str] = leading("retrieval", training=True)
    choosing: ClassVar[str] = choosing("retrieval")

    @property
    def sets(self) -> list[Images]:
        return [self.images]

    @property
    def classes(self) -> int:
        return len(self.images.classes)

    def of(self, train: Images, held: Images | None = None) -> "Retrieval":
        if held is None:
            return self
        asks, groups = marks(held)
        return replace(self, images=held, is_query=asks, groups=groups)

    def embed(self, embedder: ImageEmbedder, final: bool) -> Embedded:
        return {"embeddings": embedder(self.images, self.view)}

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        embeddings, labels = embedded["embeddings"], self.images.labels
        query, asked, gallery, held, groups, others = parted(embeddings, labels, self.groups, self.is_query)
        found = retrieval_metrics(query, asked, self.recalls, gallery, held, groups, others)
        if self.ranks:
            found |= ranking_metrics(embeddings, labels, self.ranks, self.groups, self.is_query)
        return found | clustering_metrics(embeddings, labels, seed) if final else found

    def untrained(self, embedder: ImageEmbedder) -> dict[str, float]:
        return self.measure({"embeddings": embedder.features(self.images, self.view)}, final=False, seed=0)

    def relation(self, classes: Sequence[str], images: int | None, kind: str, compared: bool) -> str:
        names = set(self.images.classes)
        if names.isdisjoint(classes):
            return f"{kind} classes, never seen in training"
        return f"{kind} images; {len(names.intersection(classes))} of {len(names)} classes were trained on"


class MirroredRetrieval(Retrieval):
    """Retrieval of faces, whose embeddings are averaged with those of their mirror images."""

    def embed(self, embedder: ImageEmbedder, final: bool) -> Embedded:
        return {"embeddings": embedder.mirrored(self.images, self.view)}


def rendered_task(data: schema.Rendered, device: torch.device) -> Task:
    """Characters drawn here."""
    from isosphere.data.rendered import rendered

    train, test = split_classes(rendered(data.classes, data.per_class, data.seed, data.size))
    return Task(train, ShiftView(data.shift) if data.shift else None, Retrieval(test, None))


def folder_task(data: schema.Folder, device: torch.device) -> Task:
    """One's own images."""
    view = TrainView(
        data.shape, data.shorter, data.scale, flip=data.flip, fit=data.fit, interpolation=data.resize
    )
    images = open_images(data.root, naming=naming(data))
    images = cached(images, view.stored, data.root, data.cache, data.skip_unreadable)
    if not data.split and not data.folds:
        check_splits(images, data.root)
    folds = (data.folds, data.fold)
    how = (data.train_fraction, data.seed, data.allow_shared, *folds, data.split, data.root, data.split_by)
    parts = split_classes(images, *how)
    check_parts(*parts, data.root)
    train, test = (placed(part, device) for part in parts)
    evaluation = own_retrieval(test, evaluation_view(data))
    given = None if data.split or data.folds else validation_part(images, device)
    named: dict[str, Images] = {"train": train, "test": test}
    return Task(train, view, evaluation, noted(train.note), given=given, parts=named)


def own_retrieval(images: Any, view: View | None, kind: type[Retrieval] = Retrieval) -> Retrieval:
    """How one's own images are measured: by their queries and groups, if they have such."""
    asks, groups = marks(images)
    marked = asks is not None or groups is not None
    return kind(images, view, asks, groups=groups, ranks=RANKS if marked else ())


def marks(images: Any) -> tuple[Tensor | None, Tensor | None]:
    """Which images ask, where others do not, and their groups, of a source that may say so."""
    asks, groups = getattr(images, "is_query", None), getattr(images, "groups", None)
    return None if asks is None or not asks.any() or asks.all() else asks, groups


def check_parts(train: Images | None, test: Images, place: str, use: str = "test") -> None:
    """Refuse too few classes to train or to test on, and test images none of which can be found by another."""
    for part, its in ((train, "train"), (test, use)):
        if part is not None and len(part.classes) < 2:
            raise TooFewClasses(place, its, len(part.classes), 2)
    if int(torch.bincount(test.labels).max()) < 2:
        raise SingleImages(place, len(test.classes), use)


def validation_part(images: LabeledImages, device: torch.device) -> Images | None:
    """The validation part of a given split, if it has one."""
    mask = images.validates
    if mask is None or not mask.any():
        return None
    held: Any = images.subset(mask.nonzero().flatten())
    return placed(held, device)


def check_splits(images: LabeledImages, root: str) -> None:
    """Refuse a given split that has training images alone, or test images alone."""
    given = set(images.splits or ())
    if len(given) == 1:
        (only,) = given
        raise OneSplit(root, only, "test" if only == "train" else "train")


def benchmark_task(data: schema.Benchmark, device: torch.device) -> Task:
    """A benchmark of the paper."""
    benchmark = retrieval.load(data.name, data.root, data.allow_missing)
    view = TrainView(
        data.shape, data.shorter, data.scale, flip=data.flip, fit=data.fit, interpolation=data.resize
    )
    train, test = (_cached(part, benchmark, view, data, device) for part in (benchmark.train, benchmark.test))
    evaluation = Retrieval(test, evaluation_view(data), benchmark.is_query, RECALLS[data.name])
    return Task(train, view, evaluation, noted(benchmark.note))


def _cached(
    images: ImageSet, benchmark: retrieval.Benchmark, view: TrainView, data: schema.Benchmark, device: torch.device
) -> Images:
    """A part of the benchmark from its cache. With `pack` a CPU makes crops as a GPU does."""
    found = cached(images, view.stored, benchmark.folder, data.pack or data.cache, skip_unreadable=None)
    if data.pack and isinstance(found, CachedSet):
        found.device = torch.device("cpu")
    return placed(found, device)
