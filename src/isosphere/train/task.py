"""What a run trains on and is measured on."""

from dataclasses import dataclass, field

from isosphere.data.images import Images
from isosphere.data.transforms import View
from isosphere.samplers import ClassBatches, ShuffledBatches
from isosphere.train.evaluation import Evaluation


@dataclass(frozen=True)
class Task:
    """Training images with what is done to their pixels, and the evaluation. A view of None leaves pixels alone."""

    images: Images
    view: View | None
    evaluation: Evaluation
    notes: tuple[str, ...] = ()  # how a copy differs from the original, what is left out, copies in both parts
    unlabeled: bool = False  # an image is its own class, of which a batch has several views
    counts: dict[str, int] = field(default_factory=dict)  # of faces: by these, results on other data are noticed
    parts: dict[str, Images] = field(default_factory=dict)  # own images as they were split, which the run folder keeps

    @property
    def sizes(self) -> dict[str, int]:
        """How many images train and test, and of how many classes if they have such."""
        found = {"train_images": len(self.images), "test_images": sum(map(len, self.evaluation.sets))}
        if not self.unlabeled:
            found["train_classes"] = len(self.images.classes)
        if self.evaluation.classes is not None:
            found["test_classes"] = self.evaluation.classes
        return found

    def in_words(self, batches: ClassBatches | ShuffledBatches) -> str:
        """What is trained on and measured, in words. A folder that was read in another way than meant shows here."""
        sizes = self.sizes
        parts = [
            f"{sizes[f'{part}_images']:,} images"
            + (f" of {sizes[f'{part}_classes']:,} classes" if f"{part}_classes" in sizes else "")
            for part in ("train", "test")
        ]
        words = f"trains on {parts[0]}, is measured on {parts[1]}"
        if isinstance(batches, ClassBatches):
            least, members = batches.per_class, batches.members
            if small := sum(len(its) < least for its in members):
                words += f"; {small:,} of {len(members):,} classes have fewer than per_class {least}, which repeat"
        return words


def noted(*notes: str) -> tuple[str, ...]:
    """Those of the notes that say something, each once."""
    return tuple(dict.fromkeys(filter(None, notes)))
