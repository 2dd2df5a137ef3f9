"""Files that cannot be read, written or held."""

import errno
from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError, Option, RunError


@dataclass(eq=False)
class DamagedFile(InputError):
    """A file of a run that cannot be read."""

    text: ClassVar[str] = "{path} is damaged or incomplete: {reason}"
    path: Any
    reason: str
    field: str = ""  # or line that is odd


@dataclass(eq=False)
class OtherVersion(InputError):
    """A file of a run that another version of isosphere wrote."""

    text: ClassVar[str] = "{path} was written by another version of isosphere: {reason}"
    path: Any
    reason: str
    field: str = ""  # that is not of this one


@dataclass(eq=False)
class NotAPlainFile(InputError):
    """A device, a folder, a pipe or a circle of links, which a file would replace."""

    text: ClassVar[str] = "{path} is not a plain file: name another file to write"
    path: str


@dataclass(eq=False)
class NoFolder(InputError, FileNotFoundError):
    """A file to write whose folder does not exist."""

    text: ClassVar[str] = "cannot write {path}: there is no folder {folder}; make it first"
    path: str
    folder: str


@dataclass(eq=False)
class Held(InputError, OSError):
    """A lock that another process holds."""

    text: ClassVar[str] = "{path} is in use by {holder}; wait until it ends"
    path: str
    holder: str


@dataclass(eq=False)
class NotFound(InputError, FileNotFoundError):
    """A file or folder that does not exist, or is the other of the two."""

    text: ClassVar[str] = "there is no {what} {path}; check the path"
    path: Any
    what: str


@dataclass(eq=False)
class FolderExists(InputError, FileExistsError):
    """A folder to be made that is there already."""

    text: ClassVar[str] = "{folder} exists already: {reason}; move it away"
    folder: Any
    reason: str


@dataclass(eq=False)
class NotText(InputError):
    """A list that is not text in UTF-8."""

    text: ClassVar[str] = "{path} is not text in UTF-8 ({reason}); save it as UTF-8"
    path: Any
    reason: str


@dataclass(eq=False)
class BadList(InputError):
    """A list, or one line of it, that says what cannot be."""

    path: Any
    value: Any
    expected: str
    line: int | None = None

    @property
    def text(self) -> str:
        """Of a line, or of the whole list."""
        where = "{path} has {value!r}; it must have {expected}"
        return where if self.line is None else "{path}: line {line} has {value!r}; it must have {expected}"


@dataclass(eq=False)
class UnsafeFile(InputError):
    """A file that could run code, or write outside of its folder."""

    text: ClassVar[str] = "{path} is refused because it {reason}; it may be malicious, so do not use it"
    path: Any
    reason: str


@dataclass(eq=False)
class UnfitWeights(InputError):
    """A weight file that does not fit a backbone. The `keys` are missing, unknown, of another shape or not finite."""

    text: ClassVar[str] = "{path} does not fit this backbone (weights {problem}: {keys}); use weights of this backbone"
    path: Any
    problem: str
    keys: list[str]


@dataclass(eq=False)
class Unreachable(InputError, OSError):
    """Weights of a hub that cannot be had; `remedy` takes them from a file."""

    text: ClassVar[str] = (
        "cannot get {backbone} from its hub ({reason}); download its model.safetensors where there is a network, and "
        "name it with {remedy}"
    )
    backbone: str
    reason: str
    remedy: Option


@dataclass(eq=False)
class DiskFull(RunError, OSError):
    """A disk without room: at least `needed` bytes more than were there, of which `free` are left again."""

    path: Any
    needed: int
    free: int

    def __post_init__(self) -> None:
        self.errno = errno.ENOSPC

    @property
    def text(self) -> str:
        """With both numbers."""
        return f"cannot write {{path}}: {self.reason}; make room"

    @property
    def reason(self) -> str:
        """Without the file."""
        return f"the disk is full, it needs {in_bytes(self.needed)} or more and has {in_bytes(self.free)}"


@dataclass(eq=False)
class NoSpace(RunError, OSError):
    """A place without room for cached images: bytes `needed`, bytes `free`, and what limits them."""

    place: str
    needed: int
    free: int
    limited: str
    option: Option

    @property
    def text(self) -> str:
        """Bytes in words; the rest is a template, as a path may have braces."""
        needed, free = in_bytes(self.needed), in_bytes(self.free)
        return f"{{place}} needs {needed} for cached images and has {free} ({{limited}}); free some, or use {{option}}"


def in_bytes(size: int) -> str:
    """So many bytes in words: 3.20 GB."""
    unit, name = next(((u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if size >= u), (1, "bytes"))
    return f"{size / unit:,.{0 if unit == 1 else 2}f} {name}"


@dataclass(eq=False)
class NoCache(InputError, OSError):
    """A place where no cache can be kept."""

    text: ClassVar[str] = "images cannot be cached in {place}: {reason}; use {option}"
    place: str
    reason: str
    option: Option
