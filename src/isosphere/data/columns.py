"""A list of images as columns, wherever it is from: which columns it needs, and what they may hold."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isosphere.errors import BadList, NoImages, OtherCounts

from .lists import ROLES, SIDES, Column, Listed, spare_parts
from .paths import Paths

MEANINGS = ("path", "label", "split", "role", "group")
ALIASES = {"filename": "path", "file": "path", "image": "path", "class": "label"}
COLUMNS = "the columns path,label[,split][,role][,group]"
AT_ONCE = 10_000  # files of which a thread asks the system


@dataclass(frozen=True)
class Naming:
    """Patterns whose first group is the label or the group of a file, and columns such as "label=person".

    A pattern is searched in a file's name. One with a slash is searched in the path below the data's root.
    """

    label_regex: str = ""
    group_regex: str = ""
    columns: Sequence[str] = ()


NO_NAMING = Naming()


class Table(NamedTuple):
    """Paths as the list has them, the other columns by their meaning, and the line of each row."""

    paths: Paths
    columns: dict[str, Column]
    lines: Sequence[int] | np.ndarray

    def rows(self, rows: np.ndarray) -> "Table":
        """These rows."""
        columns = {name: column.rows(rows) for name, column in self.columns.items()}
        return Table(self.paths[rows], columns, np.asarray(self.lines)[rows])


def meanings(place: Path, given: Sequence[str], labeled: bool, naming: Naming) -> dict[str, int]:
    """Which column has which meaning, {"path": 0}. Labels are needed if images must be `labeled`, or have a split."""
    named = dict(pair.split("=", 1) for pair in naming.columns)
    lower = [name.strip().lower() for name in given]
    found: dict[str, int] = {}
    for meaning in MEANINGS:
        known = [named[meaning]] if meaning in named else [meaning]
        known += [] if meaning in named or meaning in lower else [name for name in ALIASES if ALIASES[name] == meaning]
        places = [place for place, name in enumerate(lower) if name in {one.strip().lower() for one in known}]
        lost = not places and meaning in named and (labeled or meaning == "path")
        if len(places) > 1 or lost:
            raise BadList(place, given, f"one column {named[meaning]}" if meaning in named else f"{COLUMNS}, each once")
        if places:
            found[meaning] = places[0]
    needed = {"path", "label"} if (labeled or "split" in found) and not naming.label_regex else {"path"}
    if not needed <= found.keys():
        others = {meant: [name for name in ALIASES if ALIASES[name] == meant] for meant in ALIASES.values()}
        words = ", ".join(f"{' or '.join(names)} for {meant}" for meant, names in others.items())
        expected = f"{COLUMNS}, with commas between them ({words} will do, and data.columns may name others)"
        raise BadList(place, given, expected)
    return found


def listed(place: Path, table: Table, whole: bool) -> Listed:
    """The images of a table; with `whole` without a split. One without labels is one class of its file's name."""
    if not len(table.paths):
        raise NoImages(place, "image", "one a line")
    _check_cells(place, table)
    _check_repeats(place, table)
    sides, asks, parts = _sides(place, table, whole)
    held = None
    if sides is not None and (spare := spare_parts(list(parts))):
        held = np.isin(_lowered(table.columns["split"]), spare)
        sides = sides & ~held
    paths = Paths(table.paths.text, table.paths.starts, table.paths.ends, str(place.parent))
    _check_files(place, paths, table.paths)
    labels, groups = table.columns.get("label"), table.columns.get("group")
    return Listed(
        paths,
        Column(np.zeros(len(paths), np.int64), [place.stem]) if labels is None else labels,
        "",
        sides,
        held,
        asks,
        None if groups is None else groups.apart(),
    )


def _check_cells(place: Path, table: Table) -> None:
    """Each row has a path, and a label and a split where there are such columns."""
    needed = [name for name in ("label", "split") if name in table.columns]
    empty = table.paths.starts == table.paths.ends
    for name in needed:
        empty |= table.columns[name].codes < 0
    if empty.any():
        row = int(empty.argmax())
        cells = [table.paths[row], *(table.columns[name].cell(row) for name in needed)]
        raise BadList(place, cells, f"a value in each of {', '.join(('path', *needed))}", int(table.lines[row]))


def _check_repeats(place: Path, table: Table) -> None:
    """Each file stands there once, however it is written."""
    digests = table.paths.digests()
    order = digests.argsort(kind="stable")
    again = np.flatnonzero(digests[order][1:] == digests[order][:-1])
    for one, other in zip(order[again].tolist(), order[again + 1].tolist(), strict=True):
        if os.path.normpath(table.paths[one]) == os.path.normpath(table.paths[other]):  # else chance
            expected = f"each file once, and line {table.lines[one]} has this one"
            raise BadList(place, table.paths[other], expected, int(table.lines[other]))


def _sides(
    place: Path, table: Table, whole: bool
) -> tuple[np.ndarray | None, np.ndarray | None, Counter[str]]:
    """Whether each row is for testing, which rows ask, and how many rows each split has; None where nothing says it."""
    split, role = table.columns.get("split"), table.columns.get("role")
    parts: Counter[str] = Counter()
    if split is not None:
        words = _lowered(split)
        _check_words(place, table, words, {*SIDES, *ROLES}, "the split train or test")
        parts = Counter(words.tolist())
        sides = parts.keys() - ROLES
        if not whole and len(sides) - len(spare_parts(list(parts))) > len({SIDES[part] for part in sides}):
            raise BadList(place, list(parts), "one split to train and one to test")
    if role is None:
        role = split if split is not None and parts.keys() & ROLES else None
    asks = None
    if role is not None:
        roles = _lowered(role)
        if role is not split:
            _check_words(place, table, roles, {"", "train", *ROLES}, "the role query or gallery")
        asks = roles == "query"
    if whole or (split is None and role is None):
        return None, asks, parts
    if split is None:
        return np.isin(roles, [*ROLES]), asks, parts
    tested = np.isin(words, [name for name, side in SIDES.items() if side == "test"] + [*ROLES])
    if asks is not None and (asks & ~tested).any():
        row = int((asks & ~tested).argmax())
        raise BadList(place, "query", "the role of a row that is for testing", int(table.lines[row]))
    return tested, asks, parts


def _lowered(column: Column) -> np.ndarray:
    """The words of a column without capitals, (N,); empty ones are empty."""
    return np.array([*(value.lower() for value in column.values), ""])[column.codes]


def _check_words(place: Path, table: Table, words: np.ndarray, known: Iterable[str], expected: str) -> None:
    odd = ~np.isin(words, [*known])
    if odd.any():
        row = int(odd.argmax())
        raise BadList(place, str(words[row]), expected, int(table.lines[row]))


def _check_files(place: Path, paths: Paths, written: Paths) -> None:
    """All files are there."""

    def absent(part: Paths) -> list[bytes]:
        return [path for path in part.encoded() if not os.path.isfile(path)]

    with ThreadPoolExecutor() as pool:  # which a distant disk needs
        parts = (paths[start : start + AT_ONCE] for start in range(0, len(paths), AT_ONCE))
        missing = [os.fsdecode(path) for its in pool.map(absent, parts) for path in its]
    if missing:
        windows = len(missing) == len(paths) and all("\\" in path for path in written)
        repair = "write / between folders, not a backslash" if windows else "paths begin at the folder of the list"
        found, listed = {"files": len(paths) - len(missing)}, {"files": len(paths)}
        raise OtherCounts(str(place), found, listed, tuple(missing), repair)
