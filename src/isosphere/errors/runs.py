"""Run folders, their checkpoints and results."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError, Option, RunError


@dataclass(eq=False)
class NotARun(InputError, FileNotFoundError):
    """A folder that is no run folder."""

    text: ClassVar[str] = "{folder} is not a run folder: it has no {file}; give the folder that training wrote"
    folder: Any
    file: str


@dataclass(eq=False)
class MissingPart(InputError):
    """Something that a run has not recorded, and the options with which it would."""

    text: ClassVar[str] = "{folder} has no {part}; train with {options}"
    folder: Any
    part: str
    options: tuple[Option, ...]


@dataclass(eq=False)
class UnfinishedRun(InputError):
    """A run folder without a file that is written later."""

    text: ClassVar[str] = "{folder} has no {file}: the run is not finished; resume it"
    folder: Any
    file: str


@dataclass(eq=False)
class NotResults(InputError):
    """A file that does not hold the results of runs."""

    text: ClassVar[str] = "{path} is not a file of results: {field} {reason}"
    path: Any
    reason: str
    field: str = ""  # that is odd: runs[3].last


@dataclass(eq=False)
class RunExists(InputError):
    """A folder to train into that holds a run."""

    text: ClassVar[str] = "{folder} already holds a run; resume it, or choose another folder"
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

    text: ClassVar[str] = "{path} is not a usable checkpoint: {reason}"
    path: Any
    reason: str


@dataclass(eq=False)
class OtherRecipe(InputError):
    """A checkpoint or a result of another recipe; `changes` are the fields with both values."""

    text: ClassVar[str] = "{path} belongs to another recipe: {changes}; train a new run"
    path: Any
    changes: dict[str, tuple[Any, Any]]


@dataclass(eq=False)
class OtherData(InputError):
    """A result on other data; `counts` are the numbers of its images and people, then and now."""

    text: ClassVar[str] = "{path} holds a result on other data: {counts}; use other folders for runs and results"
    path: Any
    counts: dict[str, tuple[int, int]]


@dataclass(eq=False)
class OtherImages(InputError):
    """Training images that are not those of the checkpoint, by their `what`: classes, number or names."""

    text: ClassVar[str] = (
        "the training images differ from the checkpoint's in their {what} (now {now}, before {then}); restore them, or "
        "train a new run"
    )
    what: str
    now: Any
    then: Any


@dataclass(eq=False)
class NotSaved(RunError, OSError):
    """A checkpoint that could not be written; the one before it is whole, if there is one."""

    text: ClassVar[str] = "cannot save the checkpoint {path}: {reason}; {before}"
    path: Any
    reason: str
    before: str


@dataclass(eq=False)
class NoSettings(InputError):
    """A file of results that does not decide the settings of a method in a cell."""

    text: ClassVar[str] = "{path} has no settings for {method} of {cell}: {reason}"
    path: Any
    method: str
    cell: str
    reason: str


@dataclass(eq=False)
class OtherEmbeddings(RunError):
    """An exported file whose embeddings are further from torch's than the limit, as shares of their mean norm."""

    text: ClassVar[str] = (
        "{path} would give other embeddings than torch: {error:.1e} of their mean norm apart, where {limit:.0e} is the "
        "limit; it was not written"
    )
    path: Any
    error: float
    limit: float
