"""Lists of pairs of faces: LFW's, CFP's protocol, and two files and a truth value a line."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from isosphere.errors import BadList, DamagedFile, OtherCounts

from .text_lists import lines


class Pair(NamedTuple):
    """Two files, whether they show one person, and the fold."""

    left: Path
    right: Path
    same: bool
    fold: int


def read_lfw(listed: str, root: Path) -> tuple[list[Path], list[Pair]]:
    """LFW's list. Its first line has the number of folds (not in view 1), then of pairs of each kind in a fold."""
    path = root / listed
    (head, *_), *rows = _rows(path, r"((?:\d+\s+)?\d+)|(\S+)\s+(\d+)\s+(?:(\S+)\s+)?(\d+)", "a pair as in LFW")
    if head is None:
        number, line = lines(path)[0]
        raise BadList(path, line, "the number of folds, and of pairs of each kind in a fold", number)
    folds, count = (1, *map(int, head.split()))[-2:]
    if len(rows) != 2 * folds * count or not rows:
        expected = {"pairs": 2 * folds * count}
        raise OtherCounts(str(path), {"pairs": len(rows)}, expected, repair="the first line gives their number")
    folders = [root, *(root / name for name in ("lfw", "lfw_funneled", "lfw-deepfunneled"))]
    folder = next((folder for folder in folders if (folder / f"{rows[0][1]}").is_dir()), root)
    suffix = next((file.suffix for file in sorted((folder / f"{rows[0][1]}").glob("*_????.*"))), ".jpg")
    pairs = []
    for place, (number, person, one, other, two) in enumerate(rows):
        same = place % (2 * count) < count
        if number or same != (other is None):
            raise _bad_pair(path, len(rows), place, f"a pair of {'one person' if same else 'two people'}")
        named = (person, one), (person if same else other, two)
        left, right = (folder / name / f"{name}_{int(at):04d}{suffix}" for name, at in named)
        pairs.append(Pair(left, right, same, place // (2 * count)))
    _refuse_twins(path, pairs)
    return _files(pairs), pairs


def read_cfp(kinds: str, root: Path) -> tuple[list[Path], list[Pair]]:
    """All images of the protocol, frontal before profile, and ten folds of pairs of these kinds, FP or FF."""
    listed, pairs = {}, []
    for kind in "FP":
        rows = _rows(root / "Protocol" / f"Pair_list_{kind}.txt", r"(\d+)\s+(\S+)", "a number and a file")
        listed[kind] = {int(number): root / Path(*Path(file).parts[-5:]) for number, file in rows}
    for fold in range(10):
        for same in (True, False):
            path = root / "Protocol" / "Split" / kinds / f"{fold + 1:02d}" / ("same.txt" if same else "diff.txt")
            found = []
            rows = _rows(path, r"(\d+)\s*,\s*(\d+)", "two numbers")
            for place, row in enumerate(rows):
                try:
                    left, right = (listed[kind][int(number)] for kind, number in zip(kinds, row, strict=True))
                except KeyError as error:
                    raise _bad_pair(path, len(rows), place, "numbers of images that are listed") from error
                found.append(Pair(left, right, same, fold))
            _refuse_twins(path, found)
            pairs += found
    return [*listed["F"].values(), *listed["P"].values()], pairs


def read_list(path: Path) -> tuple[list[Path], list[Pair]]:
    """Two files and a truth value a line. The files are below the list's folder, or a folder in it."""
    forms = (r"([^\t]+)\t([^\t]+)\t\s*(1|0|-1)", r"([^,]+),([^,]+),\s*(1|0|-1)", r"(\S+)\s+(\S+)\s+(1|0|-1)")
    form = "two files and 1, 0 or -1, with tabs or commas between them if names have spaces"
    rows = [tuple(part.strip() for part in row if part) for row in _rows(path, "|".join(forms), form)]
    folders = [path.parent, *sorted(folder for folder in path.parent.iterdir() if folder.is_dir())]
    folder = next((folder for folder in folders if (folder / rows[0][0]).is_file()), path.parent)
    folds = mixed_folds(torch.tensor([same == "1" for *_, same in rows])).tolist()
    pairs = [Pair(folder / a, folder / b, same == "1", fold) for (a, b, same), fold in zip(rows, folds, strict=True)]
    _refuse_twins(path, pairs)
    return _files(pairs), pairs


def _rows(path: Path, pattern: str, form: str) -> list[tuple[str, ...]]:
    """The parts of every line that is not blank. A line of another form is an error."""
    found = []
    for number, line in lines(path):
        match = re.fullmatch(pattern, line)
        if not match:
            raise BadList(path, line, form, number)
        found.append(match.groups())
    if not found:
        raise DamagedFile(path, "it is empty")
    return found


def _refuse_twins(path: Path, pairs: list[Pair]) -> None:
    """Refuse pairs of an image with itself. The pairs are the last lines of this list."""
    alike = [place for place, pair in enumerate(pairs) if os.path.realpath(pair.left) == os.path.realpath(pair.right)]
    if alike:
        expected = f"pairs of two images; {len(alike)} of {len(pairs)} are of an image with itself"
        raise _bad_pair(path, len(pairs), alike[0], expected)


def _bad_pair(path: Path, pairs: int, place: int, expected: str) -> BadList:
    """The error for one of the pairs, which are the last lines of the list."""
    number, line = lines(path)[-pairs:][place]
    return BadList(path, line, expected, number)


def _files(pairs: list[Pair]) -> list[Path]:
    """Every file once, in order of appearance."""
    return list(dict.fromkeys(file for pair in pairs for file in pair[:2]))


def _tenths(count: int) -> Tensor:
    """Ten folds of consecutive pairs, long (count,). If ten does not divide, the first ones are longer by one."""
    parts = torch.arange(count).tensor_split(10)
    return torch.repeat_interleave(torch.arange(10), torch.tensor([len(part) for part in parts]))


def mixed_folds(same: Tensor) -> Tensor:
    """Ten folds of pairs, bool (P,) -> long (P,): tenths of the list if these mix both kinds.

    A fold of one kind is measured with a threshold that more of the other kind have set. A sorted list has such tenths.
    There, if there are ten pairs of each kind, every tenth pair of each kind is one fold.
    """
    folds = _tenths(len(same))
    alike = any(len(same[folds == fold].unique()) == 1 for fold in range(10))
    if alike and min(int(same.sum()), int((~same).sum())) >= 10:
        for kind in (same, ~same):
            folds[kind] = torch.arange(int(kind.sum())) % 10
    return folds
