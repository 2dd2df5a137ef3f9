"""Files that cannot be read, written or held."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError


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
