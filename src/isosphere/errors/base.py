"""What all errors share: fields, an exit code, a template of words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

MOST = 5  # names of a long list that a message shows
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}  # in a file's name: they move the cursor


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
        return _line(str(error))
    values = {field.name: _shown(getattr(error, field.name), option) for field in fields(error)}
    return _line(error.text.format(**values))


def _line(text: str) -> str:
    return " ".join(text.split()).translate(CONTROLS)


def _shown(value: Any, option: Callable[[Option], str]) -> Any:
    if isinstance(value, Option):
        return option(value)
    if isinstance(value, Exception):
        return words(value, option) or type(value).__name__
    if isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value):
        return value  # a shape, or a pair of limits
    if isinstance(value, (list, tuple, set, frozenset)):
        names = [str(_shown(item, option)) for item in value]
        more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
        return ", ".join(names[:MOST]) + more
    if isinstance(value, dict):
        return ", ".join(f"{v:,} {k}" if type(v) is int else f"{k} {_change(v)}" for k, v in value.items())
    return value


def _change(value: Any) -> str:
    """A number in few digits, or a value before and after."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]!r} -> {value[1]!r}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(eq=False)
class IsosphereError(Exception):
    """Base of all our errors. A subclass is a dataclass of its fields with a `text`."""

    @property
    def text(self) -> str:
        """The template of its words, with the names of fields; most types have one, some choose among several."""
        return ""

    @property
    def code(self) -> int:
        """The exit code of the command line."""
        return 1

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
