"""What a run trains on and is measured on."""

from dataclasses import dataclass, field

from isosphere.data.images import Images
from isosphere.data.transforms import View
from isosphere.train.evaluation import Evaluation


@dataclass(frozen=True)
class Task:
    """Training images with what is done to their pixels, and the evaluation; a view of None leaves pixels alone."""

    images: Images
    view: View | None
    evaluation: Evaluation
    notes: tuple[str, ...] = ()  # how a copy differs from the original, what is left out, copies in both parts
    unlabeled: bool = False  # an image is its own class, of which a batch has several views
    counts: dict[str, int] = field(default_factory=dict)  # of faces: by these, results on other data are noticed

    @property
    def sizes(self) -> dict[str, int]:
        """How many images train and test, and of how many classes if they have such."""
        found = {"train_images": len(self.images), "test_images": sum(map(len, self.evaluation.sets))}
        if not self.unlabeled:
            found["train_classes"] = len(self.images.classes)
        if self.evaluation.classes is not None:
            found["test_classes"] = self.evaluation.classes
        return found


def noted(*notes: str) -> tuple[str, ...]:
    """Those of the notes that say something, each once."""
    return tuple(dict.fromkeys(filter(None, notes)))
