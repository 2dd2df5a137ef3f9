"""Errors as types with fields. The front end puts them into words.

`text` is a template over the fields. An `Option` is a recipe's field and the value that would help. Python reads it
as `data.allow_shared=True`, the command line as `--data.allow_shared true`. Exit codes come from the types.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

MOST = 5  # names of a long list that a message shows


class Option(NamedTuple):
    """A recipe's field, and the value that would help; None leaves the value to the reader."""

    field: str
    value: Any = None


def as_argument(option: Option) -> str:
    """An option in the words of Python: `data.allow_shared=True`."""
    return option.field if option.value is None else f"{option.field}={option.value!r}"


def as_flag(option: Option) -> str:
    """An option in the words of the command line: `--data.allow_shared true`."""
    value = str(option.value).lower() if isinstance(option.value, bool) else option.value
    return f"--{option.field}" if value is None else f"--{option.field} {value}"


def words(error: BaseException, option: Callable[[Option], str] = as_argument) -> str:
    """An error as one line; `option` says how recipe fields are written."""
    if not isinstance(error, IsosphereError):
        return " ".join(str(error).split())
    values = {field.name: _shown(getattr(error, field.name), option) for field in fields(error)}
    return " ".join(error.text.format(**values).split())


def _shown(value: Any, option: Callable[[Option], str]) -> Any:
    if isinstance(value, Option):
        return option(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        names = [str(_shown(item, option)) for item in value]
        more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
        return ", ".join(names[:MOST]) + more
    if isinstance(value, dict):
        return ", ".join(f"{name} {_change(item)}" for name, item in value.items())
    return value


def _change(value: Any) -> str:
    """A number in few digits, or a value before and after."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]!r} -> {value[1]!r}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(eq=False)
class IsosphereError(Exception):
    """Base of all errors of ours; a subclass is a dataclass of its fields with a `text`."""

    text: ClassVar[str] = ""
    code: ClassVar[int] = 1

    def __str__(self) -> str:
        return words(self)

    def __reduce__(self) -> tuple[Any, ...]:  # worker processes send their errors home
        return _rebuilt, (type(self), {field.name: getattr(self, field.name) for field in fields(self)})


def _rebuilt(kind: type[IsosphereError], values: dict[str, Any]) -> IsosphereError:
    return kind(**values)


@dataclass(eq=False)
class InputError(IsosphereError, ValueError):
    """Something that was given cannot be used: exit code 2."""

    code: ClassVar[int] = 2


@dataclass(eq=False)
class RunError(IsosphereError, RuntimeError):
    """A run failed: exit code 1."""


def kinds(base: type[IsosphereError] = IsosphereError) -> Iterator[type[IsosphereError]]:
    """Every error type that has words of its own."""
    for kind in base.__subclasses__():
        if "text" in vars(kind):
            yield kind
        yield from kinds(kind)


# ---------------------------------------------------------------- what is missing


@dataclass(eq=False)
class MissingExtra(IsosphereError, ImportError):
    """A dependency of an extra that is not installed."""

    text: ClassVar[str] = "{what} needs {package}: pip install 'isosphere[{extra}]'"
    code: ClassVar[int] = 2
    what: str
    package: str
    extra: str


def need(package: str, extra: str, what: str) -> Any:
    """The module of an extra, or the one line that names the command which installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(what, package.split(".")[0], extra) from error


# ---------------------------------------------------------------- run folders and reports


@dataclass(eq=False)
class NotARun(InputError, FileNotFoundError):
    """A folder that is no run folder."""

    text: ClassVar[str] = "{folder} is not a run folder: it has no {file}"
    folder: Any
    file: str


@dataclass(eq=False)
class DamagedFile(InputError):
    """A file of a run that cannot be read."""

    text: ClassVar[str] = "{path} is damaged or half-written: {reason}"
    path: Any
    reason: str


@dataclass(eq=False)
class OtherVersion(InputError):
    """A file of a run that another version of isosphere wrote."""

    text: ClassVar[str] = "{path} is of another version of isosphere: {reason}"
    path: Any
    reason: str


@dataclass(eq=False)
class MissingPart(InputError):
    """Something that a run has not recorded, and the options with which it would."""

    text: ClassVar[str] = "{folder} has no {part}: train with {options}"
    folder: Any
    part: str
    options: tuple[Option, ...]


@dataclass(eq=False)
class UnfinishedRun(InputError):
    """A run folder without a file that is written later."""

    text: ClassVar[str] = "{folder} has no {file}: the run has not come that far; resume it"
    folder: Any
    file: str


@dataclass(eq=False)
class NotResults(InputError):
    """A file that does not hold the results of runs."""

    text: ClassVar[str] = "{path} is not a file of results: {reason}"
    path: Any
    reason: str


# ---------------------------------------------------------------- arguments, of functions and recipes


@dataclass(eq=False)
class BadArgument(InputError):
    """An argument or a recipe's field with a value that cannot be."""

    text: ClassVar[str] = "{name} must be {expected}, not {value!r}"
    name: str
    value: Any
    expected: str


# ---------------------------------------------------------------- files that are written or held


@dataclass(eq=False)
class NotAPlainFile(InputError):
    """A device, a folder, a pipe or a circle of links, which a file would replace."""

    text: ClassVar[str] = "{path} is not a plain file: name another file to write"
    path: str


@dataclass(eq=False)
class NoFolder(InputError, FileNotFoundError):
    """A file to write whose folder does not exist."""

    text: ClassVar[str] = "cannot write {path}: there is no folder {folder}"
    path: str
    folder: str


@dataclass(eq=False)
class Held(InputError, OSError):
    """A lock that another process holds."""

    text: ClassVar[str] = "{path} is in use by {holder}"
    path: str
    holder: str


# ---------------------------------------------------------------- train: what is trained and measured on


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


# ---------------------------------------------------------------- train: runs and their checkpoints


@dataclass(eq=False)
class Incompatible(InputError):
    """Fields of a recipe that do not go together."""

    text: ClassVar[str] = "{reason}; use {remedies}"
    fields: tuple[str, ...]
    reason: str
    remedies: tuple[Option, ...]


@dataclass(eq=False)
class WrongSize(InputError):
    """A backbone that cannot take images of the recipe's size."""

    text: ClassVar[str] = "{backbone} cannot take images of {size} x {size} pixels: {reason}"
    backbone: str
    size: int
    reason: str


@dataclass(eq=False)
class RunExists(InputError):
    """A folder to train into that holds a run."""

    text: ClassVar[str] = "{folder} already holds a run: resume it, or choose another folder"
    folder: Any


@dataclass(eq=False)
class NoCheckpoint(InputError, FileNotFoundError):
    """A run folder without a checkpoint."""

    text: ClassVar[str] = "no checkpoint {path}: {reason}"
    path: Any
    reason: str


@dataclass(eq=False)
class BadCheckpoint(InputError):
    """A checkpoint that cannot be read, or is not one."""

    text: ClassVar[str] = "{path} is not a checkpoint that can be used: {reason}"
    path: Any
    reason: str


@dataclass(eq=False)
class OtherRecipe(InputError):
    """A checkpoint or a result of another recipe; `changes` are the fields with both values."""

    text: ClassVar[str] = "{path} belongs to another recipe: {changes}. Train a new run"
    path: Any
    changes: dict[str, tuple[Any, Any]]


@dataclass(eq=False)
class OtherImages(InputError):
    """Training images that are not those of the checkpoint, by their `what`: classes, number or names."""

    text: ClassVar[str] = (
        "the training images are not those of the checkpoint, by their {what} (now {now}, then {then}): put them back, "
        "or begin a new run"
    )
    what: str
    now: Any
    then: Any


@dataclass(eq=False)
class NotSaved(RunError, OSError):
    """A checkpoint that could not be written; the one before it is whole, if there is one."""

    text: ClassVar[str] = "could not save the checkpoint {path}: {reason}; {before}"
    path: Any
    reason: str
    before: str


@dataclass(eq=False)
class Diverged(RunError):
    """Training diverged; `remedies` are what the run could try and does not."""

    text: ClassVar[str] = "training diverged at step {step}: {reason} ({values}). Try {remedies}"
    step: int
    reason: str
    values: dict[str, float]
    remedies: tuple[Option, ...]


@dataclass(eq=False)
class Interrupted(RunError):
    """Training was asked to stop by a signal, and saved."""

    text: ClassVar[str] = "stopped and saved at step {step} of {steps}; resume {folder}"
    step: int
    steps: int
    folder: Any
    signal: int

    @property
    def code(self) -> int:
        """As a shell has it."""
        return 128 + self.signal
