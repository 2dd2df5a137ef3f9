"""What a run is measured by, besides what its task says."""

from dataclasses import dataclass

from isosphere.recipes.checks import Checked
from isosphere.recipes.own import Own


@dataclass(frozen=True)
class TaskMetrics(Checked):
    """What the task measures: Recall@K and MAP@R, accuracy on pairs of faces, or frozen features."""

    flip: bool = False
    """Average each embedding with that of the mirror image, in all that uses the run, too. Faces always do."""


@dataclass(frozen=True)
class NormsOnly(Checked):
    """The norms of the test images' embeddings, and nothing else."""

    flip: bool = False
    """Average each embedding with that of the mirror image."""


@dataclass(frozen=True)
class OwnEvaluation(Own):
    """Metrics of your own: (embeddings, labels) -> {name: value}."""

    flip: bool = False
    """Average each embedding with that of the mirror image."""

    kept = ("flip",)


Evaluation = TaskMetrics | NormsOnly | OwnEvaluation
