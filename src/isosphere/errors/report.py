"""Figures, the page and the inspection of embeddings."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError


@dataclass(eq=False)
class NoRoom(InputError):
    """A figure whose labels leave no room for its panels."""

    text: ClassVar[str] = "the labels of {figure!r} leave no room for its panels: draw fewer runs, or shorten names"
    figure: str


@dataclass(eq=False)
class NotArrays(InputError):
    """A file that does not hold the arrays that are wanted."""

    text: ClassVar[str] = "{path} does not hold {kind} as a plain .npy array or in a .npz of np.savez: {reason}"
    path: Any
    kind: str
    reason: str
