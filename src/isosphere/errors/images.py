"""Images, lists of images and data sets that cannot be read."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError, Option, RunError


@dataclass(eq=False)
class UnreadableImage(InputError):
    """A file that cannot be decoded."""

    text: ClassVar[str] = "cannot read the image {path}: {reason}"
    path: str
    reason: str


@dataclass(eq=False)
class UnreadableImages(InputError):
    """All files of a set of `total` that cannot be decoded. `lost` are classes that would have no image left."""

    failures: list[UnreadableImage]
    total: int
    lost: tuple[str, ...] = ()
    remedies: tuple[Option, ...] = ()

    @property
    def text(self) -> str:
        """Classes and options only where there are some."""
        lost = "; {lost} would have no image left" if self.lost else ""
        remedies = ", or use {remedies}" if self.remedies else ""
        return f"{len(self.failures)} of {self.total} images cannot be read: {{failures}}{lost}; repair them{remedies}"


@dataclass(eq=False)
class NoImages(InputError):
    """A folder or file without what it should hold; `others` counts the files that are something else."""

    text: ClassVar[str] = "{place} holds no {what} ({others} other files); give {instead}"
    place: Any
    what: str
    instead: str
    others: int = 0


@dataclass(eq=False)
class NoMatch(InputError):
    """A pattern that is in the name of no file."""

    place: Any
    pattern: str
    files: int
    example: str
    option: Option

    @property
    def text(self) -> str:
        """An example only where there is one."""
        example = ", such as {example}" if self.files else ""
        return f"{{option}} {{pattern!r}} matches none of {{files:,}} image files of {{place}}{example}; change it"


@dataclass(eq=False)
class EmptyClasses(InputError):
    """Class folders without an image; `deeper` images are in folders below, `others` files have no known ending."""

    text: ClassVar[str] = (
        "{folder} has {total} class folders, and these hold no image: {classes} ({deeper} images are in folders below, "
        "{others} files have other endings); fill or remove them, or give the folder right above the class folders, or "
        "a CSV of path,label"
    )
    folder: Any
    classes: list[str]
    total: int
    deeper: int = 0
    others: int = 0


@dataclass(eq=False)
class SharedClasses(InputError):
    """Classes that would be trained and tested on."""

    text: ClassVar[str] = "these classes are in both train and test: {classes}; to allow this use {option}"
    classes: list[str]
    option: Option


@dataclass(eq=False)
class OtherCounts(InputError):
    """A data set, or a list, with other numbers than it should have. `absent` are files or classes it lacks."""

    title: str
    found: dict[str, int]
    expected: dict[str, int]
    absent: tuple[str, ...] = ()
    repair: str = ""
    remedies: tuple[Option, ...] = ()

    @property
    def text(self) -> str:
        """Only with what is known."""
        absent = f"; {len(self.absent):,} absent: {{absent}}" if self.absent else ""
        repair = "; {repair}" if self.repair else ""
        remedies = "; or use {remedies}" if self.remedies else ""
        return f"{{title}} has {{found}}, not {{expected}}{absent}{repair}{remedies}"


@dataclass(eq=False)
class NoDataSet(InputError, FileNotFoundError):
    """A folder without a data set; `source` says where to get it."""

    folder: Any
    title: str
    expected: str
    source: str = ""
    option: Option | None = None

    @property
    def text(self) -> str:
        """Only with what is known."""
        source, option = "; get it from {source}" if self.source else "", ", or use {option}" if self.option else ""
        return f"{{folder}} does not hold {{title}}: expected {{expected}}{source}{option}"


@dataclass(eq=False)
class NotAPack(InputError):
    """A file that is no pack of face pairs, as its `part` shows."""

    text: ClassVar[str] = "{path} is not a pack of face pairs: {part} must be {expected}, not {found}"
    path: Any
    part: str
    found: str
    expected: str


@dataclass(eq=False)
class BadRecord(InputError):
    """A record of a .rec file that cannot be read. Of a file that was cut off, `whole` records are before the cut."""

    text: ClassVar[str] = "{path}: record {record} at byte {byte}: {reason}"
    path: Any
    record: int
    byte: int
    reason: str
    whole: int | None = None


@dataclass(eq=False)
class WrongIndex(InputError):
    """An index whose records are not the whole file: bytes in none of them, or in two."""

    text: ClassVar[str] = (
        "{path} lists {records} records, but bytes {begin} to {end} belong to {owners} of them; copy it and its .rec "
        "again"
    )
    path: Any
    records: int
    begin: int
    end: int
    owners: int


@dataclass(eq=False)
class DownloadFailed(RunError, OSError):
    """A download that brought nothing, or the wrong file."""

    text: ClassVar[str] = "{url} cannot be downloaded: {reason}; try again, or download it by hand"
    url: str
    reason: str


@dataclass(eq=False)
class OtherRankFailed(RunError, OSError):
    """A process that others wait for has ended."""

    text: ClassVar[str] = "the process that {work} has ended; its own message says why"
    work: str


@dataclass(eq=False)
class WorkerDied(RunError):
    """A process that reads images has ended before its time; `cause` says how."""

    text: ClassVar[str] = "a process that reads images {cause}; free memory, or use {option}"
    cause: str
    option: Option
