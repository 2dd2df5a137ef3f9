"""Images that cannot be trained or measured on."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError, Option


@dataclass(eq=False)
class TooFewClasses(InputError):
    """Too few classes to train or to test on: there would be nothing to tell apart."""

    text: ClassVar[str] = "{place} leaves {found} class to {use} on; {needed} or more are needed"
    place: str
    use: str
    found: int
    needed: int


@dataclass(eq=False)
class SingleImages(InputError):
    """One image of each class to test on, so that none can be found by another."""

    text: ClassVar[str] = (
        "{place} has one image of each of the {classes} classes to test on; some need two, as an image is looked for "
        "by another of its class"
    )
    place: str
    classes: int


@dataclass(eq=False)
class OneSplit(InputError):
    """A given split of which all images are in one part."""

    text: ClassVar[str] = (
        "{place} has no image for {missing}: all have the split {given}. Give some the split {missing}, or leave out "
        "the split"
    )
    place: str
    given: str
    missing: str


@dataclass(eq=False)
class NoTestPart(InputError):
    """A given split without a test image, where only these are measured."""

    text: ClassVar[str] = "{place} gives a split without a test image; leave out the split to measure on all"
    place: str


@dataclass(eq=False)
class NoSplit(InputError):
    """Classes too small to set images aside for testing."""

    text: ClassVar[str] = (
        "{place}: {images} images of {classes} classes cannot be split. Measuring needs a class of at least {needed} "
        "images, a test/ next to a train/ of class folders, or a CSV whose column split has train and test"
    )
    place: str
    images: int
    classes: int
    needed: int


@dataclass(eq=False)
class UntrainedClasses(InputError):
    """Classes with test images alone, where labels must be known from training."""

    text: ClassVar[str] = "{count} classes have test images alone: {classes}; give each a training image"
    count: int
    classes: list[str]


@dataclass(eq=False)
class OneKindOfPairs(InputError):
    """Pairs that are all of one person, or all of two."""

    text: ClassVar[str] = "{name}: all {count} pairs are of {people}; both kinds are needed"
    name: str
    count: int
    people: str


@dataclass(eq=False)
class SinglePhotographs(InputError):
    """Probes of which no person has two photographs that can be read."""

    text: ClassVar[str] = "{place} has no person with two photographs that can be read: none can be identified"
    place: str


@dataclass(eq=False)
class ProbesAmongDistractors(InputError):
    """Photographs to identify that are distractors, too."""

    text: ClassVar[str] = (
        "{shared} of {distractors} distractors are among the {probes} photographs to identify, which hides these: "
        "{paths}; take other distractors"
    )
    paths: list[str]
    shared: int
    distractors: int
    probes: int


@dataclass(eq=False)
class RepeatedDistractors(InputError):
    """Distractors that are named twice."""

    text: ClassVar[str] = "{repeated} of {distractors} distractors are there twice; name each set once"
    repeated: int
    distractors: int


@dataclass(eq=False)
class TrainedPhotographs(InputError):
    """Photographs to test on that would be trained on."""

    text: ClassVar[str] = (
        "{shared} of {tested} photographs to test on are among those to train on, as {people}; list their names, one "
        "a line, in a file and name it with {option}"
    )
    people: list[str]
    shared: int
    tested: int
    option: Option


@dataclass(eq=False)
class MovedData(InputError, FileNotFoundError):
    """A run's images that are not where they were."""

    text: ClassVar[str] = "{reason} (seen from {folder} and from above the run); say where it is now with {option}"
    reason: str
    folder: Any
    option: Option


@dataclass(eq=False)
class NoProbe(InputError):
    """A linear probe of a run that has none."""

    text: ClassVar[str] = "the linear probe needs a run without labels on images that have some, not one on {data}"
    data: str
