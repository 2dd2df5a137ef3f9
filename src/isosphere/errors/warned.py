"""Warnings as types with fields, which `warnings.filterwarnings` can choose by their category."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class DataWarning(UserWarning):
    """Something about images with which a run goes on: words, how many, and the names."""

    text: str
    count: int = 0
    names: Sequence[str] = ()

    def __str__(self) -> str:
        return self.text


class UnreadableImagesWarning(DataWarning):
    """Files that cannot be decoded, or people who have too few others, are left out."""


class LeftOutWarning(DataWarning):
    """Files of a folder or rows of a list are left out, or a name to leave out is not there."""


class CopiesWarning(DataWarning):
    """Test images are copies of training images."""


class NearCopiesWarning(DataWarning):
    """Test images look nearly like training images, such as the same photograph saved again."""


class NamesakesWarning(DataWarning):
    """People have the name of others whom a test needs to be strangers."""


class CroppedFacesWarning(DataWarning):
    """The central square of faces is taken, as nothing says where they are."""


class NotCachedWarning(DataWarning):
    """Images cannot be cached, so they are decoded at each step."""


class DamagedCacheWarning(DataWarning):
    """A cached image has changed, so it is decoded again."""
