"""What a run trains on and is measured on."""

from dataclasses import dataclass, field

from isosphere.data.images import Images
from isosphere.data.transforms import View
from isosphere.samplers import ClassBatches, ShuffledBatches
from isosphere.train.evaluation import Evaluation


@dataclass(frozen=True)
class Task:
    """Training images with what is done to their pixels, and the evaluation. A view of None leaves pixels alone.

    `given` are validation images that the data bring. With a `validation` the evaluation waits for the end.
    """

    images: Images
    view: View | None
    evaluation: Evaluation
    notes: tuple[str, ...] = ()  # how a copy differs from the original, what is left out, copies in both parts
    unlabeled: bool = False  # an image is its own class, of which a batch has several views
    given: Images | None = None
    validation: Evaluation | None = None
    counts: dict[str, int] = field(default_factory=dict)  # of faces: by these, results on other data are noticed
    parts: dict[str, Images] = field(default_factory=dict)  # own images as they were split, which the run folder keeps

    @property
    def sizes(self) -> dict[str, int]:
        """How many images train, validate and test, and of how many classes if they have such."""
        found = {"train_images": len(self.images)}
        found |= {} if self.unlabeled else {"train_classes": len(self.images.classes)}
        for part, evaluation in (("validation", self.validation), ("test", self.evaluation)):
            if evaluation is not None:
                found[f"{part}_images"] = sum(map(len, evaluation.sets))
                found |= {} if evaluation.classes is None else {f"{part}_classes": evaluation.classes}
        return found

    def in_words(self, batches: ClassBatches | ShuffledBatches) -> str:
        """What is trained on and measured, in words. A folder that was read in another way than meant shows here."""
        sizes = self.sizes
        parts = {
            part: f"{sizes[f'{part}_images']:,} images"
            + (f" of {sizes[f'{part}_classes']:,} classes" if f"{part}_classes" in sizes else "")
            for part in ("train", "validation", "test") if f"{part}_images" in sizes
        }  # fmt: skip
        words = f"trains on {parts['train']}, "
        words += f"is validated on {parts['validation']}, " if "validation" in parts else ""
        words += f"is measured on {parts['test']}" + " at the end" * ("validation" in parts)
        if isinstance(batches, ClassBatches):
            least, members = batches.per_class, batches.members
            if small := sum(len(its) < least for its in members):
                words += f"; {small:,} of {len(members):,} classes have fewer than per_class {least}, which repeat"
        return words


def noted(*notes: str) -> tuple[str, ...]:
    """Those of the notes that say something, each once."""
    return tuple(dict.fromkeys(filter(None, notes)))
