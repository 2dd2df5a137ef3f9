"""People to train on, and what training does to their faces."""

import unicodedata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from isosphere.errors import BadArgument, LeftOutWarning, TooFewClasses

from .images import ImageSet
from .lists import some
from .recordio import RecordSet
from .transforms import flips


@dataclass(frozen=True)
class FlipView:
    """Half of the faces mirrored, and nothing else: uint8 (N, C, H, W) with numbers (N, 1)."""

    draws: ClassVar[int] = 1

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """One image with its number (1,), or a batch."""
        return torch.where(flips(numbers)[..., None, None], images.flip(-1), images)


def identities(source: str | Path, exclude: Iterable[str] = (), minimum: int = 1) -> ImageSet | RecordSet:
    """Images by person: from a folder of folders, a .rec next to its .idx, or a folder with `train.rec`.

    Left out are people named in `exclude`, and those with fewer than `minimum` images. Names are compared by letters
    and digits: "Catherine Zeta-Jones" is Catherine_Zeta_Jones. A warning lists names that nobody has. Such a name may
    be spelled in another way. Then the person is not left out.
    """
    source, exclude = Path(source), list(exclude)
    unwanted = set(map(letters, exclude))
    recorded = source.suffix == ".rec" or (source / "train.rec").is_file()
    images = RecordSet.pair(source) if recorded else ImageSet.folder(source, lambda name: letters(name) in unwanted)
    if images.splits is not None:
        raise BadArgument("source", str(source), "the folder of people to train on, not that of train/ and test/")
    names = list(map(letters, images.classes))
    absent = [name for name in exclude if letters(name) not in set(names)]
    if absent:
        text = f"{len(absent)} of {len(exclude)} names to leave out are not among the {len(names)} people of {source}"
        warnings.warn(LeftOutWarning(f"{text}: {some(absent)}", len(absent), absent), stacklevel=2)
    counts = torch.bincount(images.labels, minlength=len(names)).tolist()
    kept = [label for label, name in enumerate(names) if name not in unwanted and counts[label] >= minimum]
    if not kept:
        place = f"{source}, by people of {minimum} images or more that are not left out,"
        raise TooFewClasses(place, "train", 0, 1)
    return images.of_classes(kept)


def letters(name: str) -> str:
    """The name's letters and digits, lower case, without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", name).casefold() if letter.isalnum()) or name
