"""Labels and groups from the names of files, by patterns."""

import os
import re
from collections import Counter
from pathlib import Path

import numpy as np

from isosphere.errors import NoMatch, NotFound, Option

from .columns import COLUMNS, NO_NAMING, Naming, listed
from .lists import (
    PARTS,
    WHOLE,
    Column,
    Listed,
    files_below,
    inside,
    left_out,
    named,
    spare_parts,
    split_of,
    subfolders,
    unread,
)
from .parquet import is_parquet, parquet_table
from .paths import Paths
from .text_lists import csv_table

UNMATCHED = "without a match of {}, such as {}"


def by_list(path: Path, labeled: bool = True, whole: bool = False, naming: Naming = NO_NAMING) -> Listed:
    """Images that a CSV or Parquet file lists. A pattern of labels takes the place of a column."""
    if not path.is_file():
        raise NotFound(path, f"list with {COLUMNS}")
    table = (parquet_table if is_parquet(path) else csv_table)(path, labeled, naming)
    left = ""
    if naming.label_regex:
        labels = matched(naming.label_regex, table.paths, path, "label_regex")
        lost = labels.codes < 0
        if lost.any():
            example = Path(table.paths[int(lost.argmax())]).name
            left = left_out(Counter({UNMATCHED.format(naming.label_regex, example): int(lost.sum())}))
        table = table._replace(columns=table.columns | {"label": labels}).rows(np.flatnonzero(~lost))
    found = listed(path, table, whole)
    return found._replace(left_out="; ".join(filter(None, (left, found.left_out))))


def by_name(root: Path, naming: Naming, whole: bool = False, keep: bool = False) -> Listed:
    """All images below a folder whose names have a label; others are left out, or with `keep` called as the folder.

    Folders train/ and test/, or train/, query/ and gallery/, are a split. Then other folders are left out. With `whole`
    they are kept, without a split.
    """
    if not root.is_dir():
        raise NotFound(root, "folder of images")
    names = subfolders(root)
    parts_of = [name for name in names if name.lower() in PARTS]
    held = spare_parts(parts_of)
    sides = {PARTS[name.lower()]: name for name in parts_of if name not in held}
    given = sides.keys() in WHOLE and not whole
    files, others, _ = inside(root)
    side_of = {name: side for side, name in sides.items()} | dict.fromkeys(held, "val")
    side_of = side_of if given else dict.fromkeys(names, "")
    paths, parts, spare = ([], [], len(files)) if given else ([*files], [""] * len(files), 0)
    for name in names:
        found, more = files_below(root / name)
        others += more
        if name in side_of:
            paths += found
            parts += [side_of[name]] * len(found)
        else:
            spare += len(found)
    every = Paths.of(paths)
    labels = matched(naming.label_regex, every, root, "label_regex", keep)
    lost = [place for place, code in enumerate(labels.codes.tolist()) if code < 0]
    left = unread(others)
    if lost and keep:
        cells = [labels.cell(place) or named(root) for place in range(len(every))]
        labels = Column.of(cells)
    elif lost:
        left[UNMATCHED.format(naming.label_regex, Path(every[lost[0]]).name)] = len(lost)
        there = labels.codes >= 0
        every, parts = every[there], [part for part, kept in zip(parts, there.tolist(), strict=True) if kept]
        labels = labels.rows(there.nonzero()[0])
    if spare:
        left[f"outside of {', '.join(sides.values())}"] = spare
    return Listed(every, labels, left_out(left), *split_of(parts if given else [], whole))


def matched(pattern: str, paths: Paths, root: str | Path, field: str, keep: bool = False) -> Column:
    """What a pattern finds in the name of each file, or nothing. No match at all is an error, but with `keep`."""
    search, whole, begin = re.compile(pattern).search, "/" in pattern, os.path.join(root, "")
    names = (path.removeprefix(begin) if whole else path.rpartition("/")[2] for path in paths)
    column = Column.of(match[1] or "" if match else "" for match in map(search, names))
    if not column.values and not keep:
        example = "" if not len(paths) else paths[0].removeprefix(begin) if whole else Path(paths[0]).name
        raise NoMatch(root, pattern, len(paths), example, Option(f"data.{field}"))
    return column
