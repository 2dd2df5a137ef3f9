"""Galleries and what is searched in them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import InputError


@dataclass(eq=False)
class NotAGallery(InputError, FileNotFoundError):
    """A folder that is no gallery, or one that has not been written to its end."""

    text: ClassVar[str] = "{folder} is not a gallery: it has no {file}; make one with `isosphere index`"
    folder: Any
    file: str


@dataclass(eq=False)
class OtherModel(InputError):
    """A gallery whose vectors are of another model, or of other preprocessing, than the one that is given."""

    text: ClassVar[str] = "{folder} was made with another model ({reason}); give that one, or index into a new folder"
    folder: Any
    reason: str


@dataclass(eq=False)
class NoModel(InputError):
    """A gallery of vectors that were given: no model can embed images for it."""

    text: ClassVar[str] = "{folder} holds vectors without a model; search it with vectors, not images"
    folder: Any
