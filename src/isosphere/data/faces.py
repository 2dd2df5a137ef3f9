"""Faces: people to train on, and pairs of photographs to verify, from their layouts on disk or from packs.

| name | pairs | layout |
|---|---|---|
| lfw | 6,000 | `pairs.txt` and `Name/Name_0001.jpg`, these also in `lfw/`, `lfw_funneled/` or `lfw-deepfunneled/` |
| lfw_dev | 1,000 | the same with `pairsDevTest.txt`, the pairs (of other people) that choices may be made on |
| cfp_fp, cfp_ff | 7,000 | `Protocol/` and `Data/Images/001/frontal/01.jpg`, `Data/Images/001/profile/01.jpg` |
| agedb_30 | 6,000 | |

Each may also be a pack, `<name>.bin`, or a list, `<name>_pair.txt`, with two files (below the list's folder or a folder
in it) and 1 or 0 (or -1) a line, tabs or commas between them where names have spaces. Packs and lists have no folds of
their own: they are the consecutive tenths. Any other name is that of pairs of your own, in such a pack or list and of
any number.
"""

import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .alignment import WHOLE, FaceView
from .bins import read_bin
from .images import ImageSet, lines, ordered, some
from .recordio import RecordSet
from .transforms import flips


@dataclass(frozen=True)
class FlipView:
    """Half of the faces mirrored, which is all that training does to them: uint8 (N, C, H, W) with numbers (N, 1)."""

    draws: ClassVar[int] = 1

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """One image with its number (1,), or a batch."""
        return torch.where(flips(numbers)[..., None, None], images.flip(-1), images)


@dataclass(frozen=True)
class Pairs:
    """Pairs of images, `left` and `right` long (P,) in `images`; whether of the `same` person, bool (P,); `fold` (P,).

    `note` says how the pairs differ from the benchmark's own, and is empty where they do not. `home` is the folder
    that they are in, and `view` what brings these photographs to the common frame where there are no landmarks.
    """

    name: str
    images: ImageSet
    left: Tensor
    right: Tensor
    same: Tensor
    fold: Tensor
    home: Path
    view: FaceView
    note: str = ""

    def __len__(self) -> int:
        return len(self.same)


class Pair(NamedTuple):
    """Two files, whether they show one person, and the fold."""

    left: Path
    right: Path
    same: bool
    fold: int


class Source(NamedTuple):
    """A set of pairs: its size, the file that its layout is known by, the reader, whom a file shows, and the frame."""

    title: str
    pairs: int | None = None  # any number, for pairs of one's own
    mark: str = ""
    read: Callable[[Path], tuple[list[Path], list[Pair]]] | None = None
    person: Callable[[Path], str] = lambda file: file.parent.name
    view: FaceView = WHOLE


def identities(source: str | Path, exclude: Iterable[str] = (), minimum: int = 1) -> ImageSet | RecordSet:
    """Images by person, from a folder of folders, a .rec beside its .idx, or a folder with `train.rec` in it.

    People named in `exclude` are left out, as are those with fewer than `minimum` images. Names are compared by letters
    and digits alone: "Catherine Zeta-Jones" is Catherine_Zeta_Jones. A warning tells which are not there: a name that
    is spelt otherwise is not left out.
    """
    source, exclude = Path(source), list(exclude)
    unwanted = set(map(letters, exclude))
    recorded = source.suffix == ".rec" or (source / "train.rec").is_file()
    images = RecordSet.pair(source) if recorded else ImageSet.folder(source, lambda name: letters(name) in unwanted)
    if images.splits is not None:
        raise ValueError(f"{source} holds a train and a test folder of people; give the one to train on")
    names = list(map(letters, images.classes))
    absent = [name for name in exclude if letters(name) not in set(names)]
    if absent:
        told = f"{len(absent)} of {len(exclude)} names to leave out are not among the {len(names)} people of {source}"
        warnings.warn(f"{told}: {some(absent)}", stacklevel=2)
    counts = torch.bincount(images.labels, minlength=len(names)).tolist()
    kept = [label for label, name in enumerate(names) if name not in unwanted and counts[label] >= minimum]
    if not kept:
        raise ValueError(f"{source}: of {len(names)} people none has {minimum} images and is not left out")
    return images.of_classes(kept)


def verification(name: str, root: str | Path, allow_missing: bool = False) -> Pairs:
    """The pairs of this name in the folder `root`, see the module's table, in one of its own there, or the pack `root`.

    Another number of pairs than the benchmark's is an error, and so is a missing image; with `allow_missing` the pairs
    that need one are left out, and this is recorded. CFP's images are all 7,000 for both of its protocols.
    """
    source = SETS.get(name, Source(name))
    root = _home(name, source, Path(root))
    pack, listed = root if root.suffix == ".bin" else root / f"{name}.bin", root / f"{name}_pair.txt"
    if pack.is_file():
        pixels, same = read_bin(pack)
        note = _note(source, len(same), len(same))
        if note and not allow_missing:
            raise ValueError(f"{pack}: {note}; complete it, or add --data.allow_missing true")
        images = ImageSet.from_pixels(pixels, torch.zeros(len(pixels), dtype=torch.long), [source.title])
        left = torch.arange(0, len(pixels), 2)
        return Pairs(name, images, left, left + 1, same, _mixed_folds(same), root, WHOLE, note)
    if listed.is_file():
        files, pairs = _read_list(listed)
    elif source.read is not None and (root / source.mark).exists():
        files, pairs = source.read(root)
    elif name not in SETS:
        own = f"for pairs of your own {root} must hold {pack.name} or {listed.name}"
        raise ValueError(f"no pairs {name!r}; there are {', '.join(SETS)}; {own}")
    else:
        expected = ", ".join(filter(None, (source.mark, pack.name, listed.name)))
        raise FileNotFoundError(f"{root} does not hold {source.title}: expected one of {expected}")
    return _checked(name, source, root, files, pairs, allow_missing)


def _home(name: str, source: Source, root: Path) -> Path:
    """The folder that holds the pairs: the root itself, or one of its own below, such as cfp/ for cfp_fp."""
    marks = [mark for mark in (f"{name}.bin", f"{name}_pair.txt", source.mark) if mark]
    folders = (root, root / name, root / name.split("_")[0])
    return next((folder for folder in folders if any((folder / mark).exists() for mark in marks)), root)


def _checked(name: str, source: Source, root: Path, files: list[Path], pairs: list[Pair], allow_missing: bool) -> Pairs:
    """The pairs whose images are there, or an error that counts and names what is missing."""
    absent = {file for file in files if not file.is_file()}
    there = [pair for pair in pairs if pair.left not in absent and pair.right not in absent]
    note = _note(source, len(there), len(pairs))
    if note:
        if absent:
            names = some((_below(file, root) for file in sorted(absent)), 20)
            note += f"; {len(absent):,} images are absent: {names}"
        if not allow_missing or not there:
            raise ValueError(f"{note}; complete {root}" + (", or add --data.allow_missing true" if there else ""))
    number = {file: index for index, file in enumerate(file for file in files if file not in absent)}
    people = [source.person(file) for file in number]
    classes = ordered(set(people))
    label = {person: index for index, person in enumerate(classes)}
    images = ImageSet(torch.tensor([label[person] for person in people]), classes, list(map(str, number)))
    table = torch.tensor([(number[left], number[right], same, fold) for left, right, same, fold in there])
    left, right, same, fold = table.T.contiguous()
    return Pairs(name, images, left, right, same.bool(), fold, root, source.view, note)


def _below(file: Path, root: Path) -> str:
    """The file as seen from the root, or the end of its path if it lies elsewhere: records that are shared tell it."""
    return str(file.relative_to(root)) if file.is_relative_to(root) else f".../{file.parent.name}/{file.name}"


def _note(source: Source, there: int, listed: int) -> str:
    """How the number of pairs that are there differs from the benchmark's, or from the list's for one's own pairs."""
    wanted = source.pairs or listed
    return "" if there == wanted else f"{source.title} has {there:,} pairs, not {wanted:,}"


def _read_lfw(listed: str, root: Path) -> tuple[list[Path], list[Pair]]:
    """The first line tells the folds (not in view 1) and the pairs of a kind in a fold, which begins with the same."""
    path = root / listed
    (head, *_), *rows = _rows(path, r"((?:\d+\s+)?\d+)|(\S+)\s+(\d+)\s+(?:(\S+)\s+)?(\d+)", "a pair as in LFW")
    if head is None:
        raise ValueError(f"{path} must begin with the number of folds and of pairs of each kind in a fold")
    folds, count = (1, *map(int, head.split()))[-2:]
    if len(rows) != 2 * folds * count or not rows:
        raise ValueError(f"{path} has {len(rows):,} pairs, not {2 * folds * count:,} as its first line tells")
    folders = [root, *(root / name for name in ("lfw", "lfw_funneled", "lfw-deepfunneled"))]
    folder = next((folder for folder in folders if (folder / f"{rows[0][1]}").is_dir()), root)
    suffix = next((file.suffix for file in sorted((folder / f"{rows[0][1]}").glob("*_????.*"))), ".jpg")
    pairs = []
    for place, (number, person, one, other, two) in enumerate(rows):
        same = place % (2 * count) < count
        if number or same != (other is None):
            raise ValueError(f"{path}: pair {place + 1} must be of {'one person' if same else 'two people'}")
        named = (person, one), (person if same else other, two)
        files = (folder / name / f"{name}_{int(at):04d}{suffix}" for name, at in named)
        pairs.append(Pair(*files, same, place // (2 * count)))
    _refuse_twins(path, pairs)
    return _files(pairs), pairs


def _read_cfp(kinds: str, root: Path) -> tuple[list[Path], list[Pair]]:
    """All images that the protocol lists, frontal before profile, and ten folds of pairs of these kinds, FP or FF."""
    listed, pairs = {}, []
    for kind in "FP":
        rows = _rows(root / "Protocol" / f"Pair_list_{kind}.txt", r"(\d+)\s+(\S+)", "a number and a file")
        listed[kind] = {int(number): root / Path(*Path(file).parts[-5:]) for number, file in rows}
    for fold in range(10):
        for same in (True, False):
            path = root / "Protocol" / "Split" / kinds / f"{fold + 1:02d}" / ("same.txt" if same else "diff.txt")
            found = []
            for row in _rows(path, r"(\d+)\s*,\s*(\d+)", "two numbers"):
                try:
                    left, right = (listed[kind][int(number)] for kind, number in zip(kinds, row, strict=True))
                except KeyError as error:
                    raise ValueError(f"{path} pairs {','.join(row)}, but no image {error} is listed") from error
                found.append(Pair(left, right, same, fold))
            _refuse_twins(path, found)
            pairs += found
    return [*listed["F"].values(), *listed["P"].values()], pairs


def _read_list(path: Path) -> tuple[list[Path], list[Pair]]:
    forms = (r"([^\t]+)\t([^\t]+)\t\s*(1|0|-1)", r"([^,]+),([^,]+),\s*(1|0|-1)", r"(\S+)\s+(\S+)\s+(1|0|-1)")
    told = "two files and 1, 0 or -1, with tabs or commas between them if names have spaces"
    rows = [tuple(part.strip() for part in row if part) for row in _rows(path, "|".join(forms), told)]
    folders = [path.parent, *sorted(folder for folder in path.parent.iterdir() if folder.is_dir())]
    folder = next((folder for folder in folders if (folder / rows[0][0]).is_file()), path.parent)
    folds = _mixed_folds(torch.tensor([same == "1" for *_, same in rows])).tolist()
    pairs = [Pair(folder / a, folder / b, same == "1", fold) for (a, b, same), fold in zip(rows, folds, strict=True)]
    _refuse_twins(path, pairs)
    return _files(pairs), pairs


def _rows(path: Path, pattern: str, form: str) -> list[tuple[str, ...]]:
    """The parts of every line of a list that is not blank; a line of another form is an error."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    found = []
    for number, line in lines(path):
        match = re.fullmatch(pattern, line)
        if not match:
            raise ValueError(f"{path}: line {number} is {line!r}; it must be {form}")
        found.append(match.groups())
    if not found:
        raise ValueError(f"{path} is empty")
    return found


def _refuse_twins(path: Path, pairs: list[Pair]) -> None:
    """Two photographs are verified, so no pair, each a line at the end of this list, may be of one with itself."""
    alike = [place for place, pair in enumerate(pairs) if os.path.realpath(pair.left) == os.path.realpath(pair.right)]
    if alike:
        number, line = lines(path)[-len(pairs) :][alike[0]]
        told = f"{len(alike)} of {len(pairs)} pairs are of an image with itself, the first in line {number}, {line!r}"
        raise ValueError(f"{path}: {told}; remove them, or pair two images")


def _files(pairs: list[Pair]) -> list[Path]:
    """Every file once, in order of appearance."""
    return list(dict.fromkeys(file for pair in pairs for file in pair[:2]))


def _tenths(count: int) -> Tensor:
    """Ten folds of consecutive pairs, the first ones longer by one where ten does not divide; long (count,)."""
    parts = torch.arange(count).tensor_split(10)
    return torch.repeat_interleave(torch.arange(10), torch.tensor([len(part) for part in parts]))


def _mixed_folds(same: Tensor) -> Tensor:
    """Ten folds of pairs, bool (P,) -> long (P,): tenths of the list, or what mixes both kinds where that would not.

    A fold of one kind is measured with a threshold that more of the other kind have set. So where there are ten of each
    and a tenth would be all alike, as in a sorted list, the pairs of each kind are dealt out in turn.
    """
    folds = _tenths(len(same))
    alike = any(len(same[folds == fold].unique()) == 1 for fold in range(10))
    if alike and min(int(same.sum()), int((~same).sum())) >= 10:
        for kind in (same, ~same):
            folds[kind] = torch.arange(int(kind.sum())) % 10
    return folds


def letters(name: str) -> str:
    """The name's letters and digits, lower case, without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", name).casefold() if letter.isalnum()) or name


SETS = {
    "lfw": Source("LFW", 6_000, "pairs.txt", partial(_read_lfw, "pairs.txt"), view=FaceView()),
    "lfw_dev": Source(
        "LFW's view 1", 1_000, "pairsDevTest.txt", partial(_read_lfw, "pairsDevTest.txt"), view=FaceView()
    ),
    "cfp_fp": Source("CFP-FP", 7_000, "Protocol", partial(_read_cfp, "FP"), lambda file: file.parents[1].name),
    "cfp_ff": Source("CFP-FF", 7_000, "Protocol", partial(_read_cfp, "FF"), lambda file: file.parents[1].name),
    "agedb_30": Source("AgeDB-30", 6_000),
}
