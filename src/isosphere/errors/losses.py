"""Losses and metrics: values that are not finite, and transforms that a loss does not have."""

from dataclasses import dataclass
from typing import ClassVar

from .base import InputError, RunError


@dataclass(eq=False)
class NotFinite(InputError):
    """A row of an input that holds NaN, infinity or numbers too large for a norm."""

    text: ClassVar[str] = "{name}: row {row} of {rows} holds NaN, infinity or too large numbers; check what computed it"
    name: str
    row: int
    rows: int


@dataclass(eq=False)
class LossOverflow(InputError):
    """A loss that is NaN or infinite although its inputs are finite."""

    text: ClassVar[str] = "the loss is {value} although its inputs are finite; make the inputs or the scale smaller"
    value: float


@dataclass(eq=False)
class Unsupported(RunError):
    """A derivative or transform that a loss or constraint does not have, or a format that a network does not."""

    text: ClassVar[str] = "{what} does not support {transform}: {remedy}"
    what: str
    transform: str
    remedy: str


@dataclass(eq=False)
class UnequalRanks(InputError):
    """Ranks that bring different numbers of rows to `gather`, by rank, or other `kinds` of rows."""

    embeddings: list[int]
    labels: list[int]
    kinds: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Of kinds where these differ, else of numbers."""
        if self.kinds:
            return "gather needs rows of one width and type on every rank, not {kinds}; use one model and one precision"
        return (
            "gather needs the same number of rows on every rank, not {embeddings} embeddings and {labels} labels; use "
            "drop_last=True in the DataLoader"
        )
