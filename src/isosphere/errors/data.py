"""Images that cannot be trained or measured on."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError, Option


@dataclass(eq=False)
class TooFewClasses(InputError):
    """Too few classes to train or to test on: there would be nothing to distinguish."""

    text: ClassVar[str] = "{place} needs at least {needed} classes to {use} on, not {found}; add classes"
    place: str
    use: str
    found: int
    needed: int


@dataclass(eq=False)
class SingleImages(InputError):
    """One image of each class to test or validate on, so that none can be found by another."""

    text: ClassVar[str] = (
        "{place} has only one image of each of the {classes} classes to {use} on; give some of them two or more, as an "
        "image searches for another one of its class"
    )
    place: str
    classes: int
    use: str = "test"


@dataclass(eq=False)
class OneSplit(InputError):
    """A given split of which all images are in one part."""

    text: ClassVar[str] = (
        "{place} has no image for {missing}: all have the split {given}; give some the split {missing}, or remove the "
        "split"
    )
    place: str
    given: str
    missing: str


@dataclass(eq=False)
class NoTestPart(InputError):
    """A given split without a test image, where only these are measured."""

    text: ClassVar[str] = "{place} has a split without test images; remove the split to measure on all images"
    place: str


@dataclass(eq=False)
class NoSplit(InputError):
    """Classes too small to set images aside for testing."""

    text: ClassVar[str] = (
        "{place}: {images} images of {classes} classes cannot be split into train and test; give a class of at least "
        "{needed} images, class folders in train/ and test/, or a CSV whose column split has train and test"
    )
    place: str
    images: int
    classes: int
    needed: int


@dataclass(eq=False)
class UntrainedClasses(InputError):
    """Classes with test images alone, where labels must be known from training."""

    text: ClassVar[str] = "{count} classes have only test images: {classes}; give each a training image"
    count: int
    classes: list[str]


@dataclass(eq=False)
class OneKindOfPairs(InputError):
    """Pairs that are all of one person, or all of two."""

    text: ClassVar[str] = "{name}: all {count} pairs are of {people}; add pairs of the other kind"
    name: str
    count: int
    people: str


@dataclass(eq=False)
class SinglePhotographs(InputError):
    """Probes of which no person has two photographs that can be read."""

    text: ClassVar[str] = "{place} has no person with two readable photographs to identify; add a second one"
    place: str


@dataclass(eq=False)
class ProbesAmongDistractors(InputError):
    """Photographs to identify that are distractors, too."""

    text: ClassVar[str] = (
        "{shared} of {distractors} distractors are also among the {probes} photographs to identify: {paths}; take "
        "other distractors"
    )
    paths: list[str]
    shared: int
    distractors: int
    probes: int


@dataclass(eq=False)
class RepeatedDistractors(InputError):
    """Distractors that are named twice."""

    text: ClassVar[str] = "{repeated} of {distractors} distractors appear twice; name each set once"
    repeated: int
    distractors: int


@dataclass(eq=False)
class TrainedPhotographs(InputError):
    """Photographs to test on that would be trained on."""

    text: ClassVar[str] = (
        "{shared} of {tested} test photographs are also training photographs, of {people}; write these names, one a "
        "line, into a file, and give it with {option}"
    )
    people: list[str]
    shared: int
    tested: int
    option: Option


@dataclass(eq=False)
class MovedData(InputError, FileNotFoundError):
    """A run's images that are not where they were."""

    text: ClassVar[str] = "{reason} (searched from {folder} and above the run folder); give its new place with {option}"
    reason: str
    folder: Any
    option: Option


@dataclass(eq=False)
class NoProbe(InputError):
    """A linear probe of a run that has none."""

    text: ClassVar[str] = (
        "the linear probe is for runs that train without labels, on images that have classes; this one is on {data}"
    )
    data: str
