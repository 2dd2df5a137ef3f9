"""Pairs of photographs to verify, from their layouts on disk or from packs.

| name | pairs | layout |
|---|---|---|
| lfw | 6,000 | `pairs.txt` and `Name/Name_0001.jpg`, these also in `lfw/`, `lfw_funneled/` or `lfw-deepfunneled/` |
| lfw_dev | 1,000 | the same with `pairsDevTest.txt`, the pairs (of other people) that choices may be made on |
| cfp_fp, cfp_ff | 7,000 | `Protocol/` and `Data/Images/001/frontal/01.jpg`, `Data/Images/001/profile/01.jpg` |
| agedb_30 | 6,000 | |

Each may also be a pack, `<name>.bin`, or a list, `<name>_pair.txt`. A line of a list has two files and 1 or 0 (or -1).
Names with spaces need tabs or commas between them. Files are below the list's folder, or a folder in it. Packs and
lists have no folds of their own, so these are the consecutive tenths. Any other name is that of your own pairs, in such
a pack or list and of any number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from isosphere.errors import NoDataSet, Option, OtherCounts, UnknownName

from .alignment import WHOLE, FaceView
from .bins import read_bin
from .cache import CachedSet
from .images import ImageSet
from .lists import ordered, some
from .pair_lists import Pair, mixed_folds, read_cfp, read_lfw, read_list

ALLOW_MISSING = Option("data.allow_missing", True)


@dataclass(frozen=True)
class Pairs:
    """Pairs `left` and `right`, long (P,), of `images`; whether of the `same` person, bool (P,); `fold`, long (P,).

    `note` says how the pairs differ from the benchmark's own, and is empty if they do not. `home` is their folder.
    `view` brings photographs without landmarks to the common frame.
    """

    name: str
    images: ImageSet | CachedSet
    left: Tensor
    right: Tensor
    same: Tensor
    fold: Tensor
    home: Path
    view: FaceView
    note: str = ""

    def __len__(self) -> int:
        return len(self.same)


class Source(NamedTuple):
    """How a set of pairs is found: title, size, the file that marks its layout, reader, person of a file, and frame."""

    title: str
    pairs: int | None = None  # any number, for pairs of one's own
    mark: str = ""
    read: Callable[[Path], tuple[list[Path], list[Pair]]] | None = None
    person: Callable[[Path], str] = lambda file: file.parent.name
    view: FaceView = WHOLE


def read_pairs(name: str, root: str | Path, allow_missing: bool = False) -> Pairs:
    """The pairs of this name in the folder `root`, in a folder of their own there, or in the pack `root`.

    Another number of pairs than the benchmark's is an error. So is a missing image. With `allow_missing` pairs without
    their images are left out, and a note says so. CFP's images are all 7,000 for both of its protocols.
    """
    source = SETS.get(name, Source(name))
    root = _home(name, source, Path(root))
    pack, listed = root if root.suffix == ".bin" else root / f"{name}.bin", root / f"{name}_pair.txt"
    if pack.is_file():
        pixels, same = read_bin(pack)
        note = _note(source, len(same), len(same))
        if note and not allow_missing:
            counts = {"pairs": len(same)}, {"pairs": source.pairs or 0}
            raise OtherCounts(source.title, *counts, repair=f"complete {pack}", remedies=(ALLOW_MISSING,))
        images = ImageSet.from_pixels(pixels, torch.zeros(len(pixels), dtype=torch.long), [source.title])
        left = torch.arange(0, len(pixels), 2)
        return Pairs(name, images, left, left + 1, same, mixed_folds(same), root, WHOLE, note)
    if listed.is_file():
        files, pairs = read_list(listed)
    elif source.read is not None and (root / source.mark).exists():
        files, pairs = source.read(root)
    elif name not in SETS:
        raise UnknownName("pairs", name, [*SETS, str(pack), str(listed)])
    else:
        expected = ", ".join(filter(None, (source.mark, pack.name, listed.name)))
        raise NoDataSet(root, source.title, f"one of {expected}")
    return _checked(name, source, root, files, pairs, allow_missing)


def _home(name: str, source: Source, root: Path) -> Path:
    """The folder with the pairs: the root, or one of its own below, such as cfp/ for cfp_fp."""
    marks = [mark for mark in (f"{name}.bin", f"{name}_pair.txt", source.mark) if mark]
    folders = (root, root / name, root / name.split("_")[0])
    return next((folder for folder in folders if any((folder / mark).exists() for mark in marks)), root)


def _checked(name: str, source: Source, root: Path, files: list[Path], pairs: list[Pair], allow_missing: bool) -> Pairs:
    """The pairs whose images are there, or an error that counts and names what is missing."""
    absent = {file for file in files if not file.is_file()}
    there = [pair for pair in pairs if pair.left not in absent and pair.right not in absent]
    note = _note(source, len(there), len(pairs))
    names = tuple(_below(file, root) for file in sorted(absent))
    if note:
        if absent:
            note += f"; {len(absent):,} images are absent: {some(names, 20)}"
        if not allow_missing or not there:
            counts = {"pairs": len(there)}, {"pairs": source.pairs or len(pairs)}
            raise OtherCounts(source.title, *counts, names, f"complete {root}", (ALLOW_MISSING,) if there else ())
    number = {file: index for index, file in enumerate(file for file in files if file not in absent)}
    people = [source.person(file) for file in number]
    classes = ordered(set(people))
    label = {person: index for index, person in enumerate(classes)}
    images = ImageSet(torch.tensor([label[person] for person in people]), classes, list(map(str, number)))
    table = torch.tensor([(number[left], number[right], same, fold) for left, right, same, fold in there])
    left, right, same, fold = table.T.contiguous()
    return Pairs(name, images, left, right, same.bool(), fold, root, source.view, note)


def _below(file: Path, root: Path) -> str:
    """The file as seen from the root, or the end of its path if it is elsewhere. Shared records contain it."""
    return str(file.relative_to(root)) if file.is_relative_to(root) else f".../{file.parent.name}/{file.name}"


def _note(source: Source, there: int, listed: int) -> str:
    """How the number of pairs differs from the benchmark's, or from the list's for your own pairs."""
    wanted = source.pairs or listed
    return "" if there == wanted else f"{source.title} has {there:,} pairs, not {wanted:,}"


SETS = {
    "lfw": Source("LFW", 6_000, "pairs.txt", partial(read_lfw, "pairs.txt"), view=FaceView()),
    "lfw_dev": Source(
        "LFW's view 1", 1_000, "pairsDevTest.txt", partial(read_lfw, "pairsDevTest.txt"), view=FaceView()
    ),
    "cfp_fp": Source("CFP-FP", 7_000, "Protocol", partial(read_cfp, "FP"), lambda file: file.parents[1].name),
    "cfp_ff": Source("CFP-FF", 7_000, "Protocol", partial(read_cfp, "FF"), lambda file: file.parents[1].name),
    "agedb_30": Source("AgeDB-30", 6_000),
}
