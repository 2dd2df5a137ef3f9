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
    return value


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
