"""Training classes that do not train: by them a run is watched, stopped early, and its checkpoint chosen."""

from dataclasses import dataclass

from isosphere.errors import BadArgument
from isosphere.recipes.checks import Checked, NotNegative, Whole


@dataclass(frozen=True)
class Validation(Checked):
    """A part of the training data that is held out. Without one the test images are measured on the way."""

    held_out: NotNegative = 0.0
    """How many training classes are held out; below 1 it is their share, 0 is none. It counts images where test classes
    are trained on, and where there are no labels. A part that the data bring, such as val/, is always taken."""
    seed: Whole | None = 0
    """Chooses what is held out. none takes the last classes by name, and images evenly."""
    metric: str = ""
    """The metric that chooses the best checkpoint. Empty is MAP@R, and k-NN for images without labels."""
    only: bool = False
    """Measure on the held-out part alone, and leave the test images alone. Trials of tuning do so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out >= 1 and self.held_out != round(self.held_out):
            raise BadArgument("held_out", self.held_out, "a share below 1, or a whole number")
