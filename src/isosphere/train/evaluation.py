"""What a run is measured on: an evaluation embeds its images on all ranks, then measures on the first."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from isosphere import distributed
from isosphere.data.images import Images
from isosphere.data.transforms import View
from isosphere.inference import ImageEmbedder
from isosphere.monitor import recorded
from isosphere.sphere import norms

Embedded = dict[str, Tensor]  # rows (N, D) by name; those of "embeddings" are kept


class Evaluation(Protocol):
    """Retrieval, faces, frozen features, or none: one file each."""

    @property
    def headline(self) -> str:
        """The metric that leads."""

    @property
    def choosing(self) -> str:
        """The metric that chooses a checkpoint; empty where there is none."""

    @property
    def images(self) -> Images:
        """Whose embeddings are kept."""

    @property
    def view(self) -> View | None:
        """What is done to their pixels."""

    @property
    def is_query(self) -> Tensor | None:
        """Which of them ask (N,), where the others are a gallery of their own."""

    @property
    def sets(self) -> list[Images]:
        """All images that are measured on, each set once."""

    @property
    def classes(self) -> int | None:
        """How many classes are measured on; None where they do not count."""

    def of(self, train: Images, held: Images | None = None) -> "Evaluation":
        """The same after training on these images, and of images that are held out in place of the test images."""

    def embed(self, embedder: ImageEmbedder, final: bool) -> Embedded:
        """Embed what the metrics need; after the last step that is more."""

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        """The metrics, as fractions."""

    def untrained(self, embedder: ImageEmbedder) -> dict[str, float]:
        """The metrics of the backbone's own features, which training must beat; empty where there is no such thing."""

    def relation(self, classes: Sequence[str], images: int | None, kind: str, compared: bool) -> str:
        """What the images are to a model trained on these classes, and on so many images if known.

        `kind` is "test" or "held-out training". `compared` says that no file is in both.
        """


class Measured(NamedTuple):
    """Metrics, on the first rank; the embeddings that are kept and whether all are finite, on all ranks."""

    metrics: dict[str, float]
    embeddings: Tensor
    finite: bool


def evaluate(evaluation: Evaluation, embedder: ImageEmbedder, final: bool, seed: int) -> Measured:
    """Embed and measure, with the statistics of the norms."""
    embedded = evaluation.embed(embedder, final)
    embeddings = embedded["embeddings"]
    finite = all(bool(norms(rows).isfinite().all()) for rows in embedded.values())
    if distributed.rank() or not finite:
        return Measured({}, embeddings, finite)
    statistics = {name: float(value) for name, value in norm_statistics(norms(embeddings)).items()}
    return Measured(recorded(evaluation.measure(embedded, final, seed) | statistics), embeddings, finite)


def norm_statistics(lengths: Tensor) -> dict[str, Tensor]:
    """Mean, variance, coefficient of variation, minimum and maximum of norms (N,), as 0-d tensors."""
    variance, mean = torch.var_mean(lengths, correction=0)
    return {
        "norm_mean": mean,
        "norm_variance": variance,
        "norm_cv": variance.sqrt() / mean,
        "norm_min": lengths.min(),
        "norm_max": lengths.max(),
    }
