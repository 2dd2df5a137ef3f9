"""What a field of an option may hold. Its type says it, `Checked` reads it, and errors name the field.

A number without a `Range` must be finite. Annotations are dropped wherever a type is shown or parsed.
"""

import math
import re
import types
import typing
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from numbers import Integral, Real
from typing import Annotated, Any

from isosphere.errors import BadArgument


class Checked:
    """An option that refuses values which its fields' types do not allow."""

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if expected := refusal(hint, value):
                raise BadArgument(name, value, expected)


@dataclass(frozen=True)
class Range:
    """Bounds of a number; `above` and `below` are themselves left out."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a number is within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    @property
    def words(self) -> str:
        """The bounds as they follow the name of a type: " above 0 and at most 1"."""
        bounds = {"of at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and".join(f" {bound} {value:.5g}" for bound, value in bounds.items() if value is not None)


@dataclass(frozen=True)
class InOrder:
    """Numbers of which none is below the one before it; `strict`: each is above it."""

    strict: bool = False

    def holds(self, values: tuple[float, ...]) -> bool:
        """Whether the numbers are in order."""
        return all(one < next_ if self.strict else one <= next_ for one, next_ in pairwise(values))

    words = ", in order"


@dataclass(frozen=True)
class Like:
    """A text of this form."""

    pattern: str
    words: str

    def holds(self, value: str) -> bool:
        """Whether the text has the form."""
        return re.fullmatch(self.pattern, value) is not None


Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Fraction = Annotated[float, Range(least=0, most=1)]
Share = Annotated[float, Range(above=0, most=1)]
"""A fraction that is more than nothing."""
Part = Annotated[float, Range(least=0, below=1)]
"""A fraction that leaves something."""
CosineValue = Annotated[float, Range(least=-1, most=1)]
Count = Annotated[int, Range(least=1)]
Whole = Annotated[int, Range(least=0)]
Size = Count | Annotated[str, Like("[1-9][0-9]*x[1-9][0-9]*", " as 256x128, height x width")]
"""Side of a square, or height and width."""
Shares = Annotated[tuple[Share, Share], InOrder()]
Ramp = Annotated[tuple[Fraction, Fraction], InOrder()]


def refusal(hint: Any, value: Any) -> str:
    """What a field of this type may hold, if the value is not that; else nothing."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind, *marks = parts
        fits = not refusal(kind, value) and all(mark.holds(value) for mark in marks)
    elif origin in (typing.Union, types.UnionType):
        fits = not all(refusal(part, value) for part in parts)
    elif origin is typing.Literal:
        fits = isinstance(value, str) and value in parts
    elif origin is tuple:
        kinds = [parts[0]] * len(value) if parts[-1] is ... and isinstance(value, tuple) else parts
        fits = isinstance(value, tuple) and len(value) == len(kinds) and not any(map(refusal, kinds, value))
    elif hint is int:
        fits = isinstance(value, Integral) and not isinstance(value, bool)
    elif hint is float:
        fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    else:
        fits = is_dataclass(hint) or isinstance(value, hint)  # groups of fields are checked where they are made
    return "" if fits else words(hint)


NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "none"}


def words(hint: Any) -> str:
    """What a field of this type may hold, in words."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return "".join([words(parts[0]), *(mark.words for mark in parts[1:])])
    if origin is typing.Literal:
        return " or ".join(parts)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(words(part) for part in parts)
    if origin is tuple:
        each = " or ".join(dict.fromkeys(words(part) for part in parts if part is not ...))
        return f"a list, each {each}" if parts[-1] is ... else f"{len(parts)} values, each {each}"
    return NAMES.get(hint, "a group of fields")


@cache
def _hints(owner: type) -> dict[str, Any]:
    hints = typing.get_type_hints(owner, include_extras=True)
    return {field.name: hints[field.name] for field in fields(owner)}
