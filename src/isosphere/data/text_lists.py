"""Lists in text files: CSVs of images, and lines."""

import csv
import os
from collections import Counter
from pathlib import Path

from isosphere.errors import BadList, NoImages, NotFound, NotText, OtherCounts

from .lists import EXTENSIONS, SIDES, UNREAD, Listed, left_out, spare_parts

LISTS = {".csv", ".tsv", ".txt", ""}  # endings of what was meant as a CSV
ALIASES = {"filename": "path", "file": "path", "image": "path", "class": "label"}
COLUMNS = "the columns path,label[,split]"


def lines(path: str | Path) -> list[tuple[int, str]]:
    """Lines of a text file in UTF-8, stripped, with their numbers, without the blank ones."""
    if not Path(path).is_file():
        raise NotFound(path, "text file")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotText(path, str(error)) from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def csv_rows(path: Path, labeled: bool = True, whole: bool = False) -> Listed:
    """Images that a CSV lists in the columns path,label[,split]; other columns are ignored.

    A CSV without labels is one class of its name, unless it must be `labeled`. Rows of validation next to train and
    test are left out. With `whole` they are kept, without a split.
    """
    if not path.is_file():
        raise NotFound(path, f"CSV with {COLUMNS}")
    if path.suffix.lower() in EXTENSIONS | UNREAD:
        raise BadList(path, "one image", f"{COLUMNS}, or be a folder of images")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            given = [name.strip() for name in reader.fieldnames or []]
            lower = [name.lower() for name in given]
            columns = [name if ALIASES.get(name) in lower else ALIASES.get(name, name) for name in lower]
            reader.fieldnames = columns
            rows = [(reader.reader.line_num, row) for row in reader]  # the outer count stops at blank lines
    except (UnicodeDecodeError, csv.Error) as error:
        if path.suffix.lower() not in LISTS:
            raise BadList(path, "no text", f"{COLUMNS}, or be a folder of images") from error
        raise NotText(path, str(error)) from error
    wanted = [name for name in ("path", "label", "split") if name in columns]
    needed = {"path", "label"} if labeled or "split" in wanted else {"path"}
    if not needed <= set(wanted) or any(columns.count(name) > 1 for name in wanted):
        others = {meant: [name for name in ALIASES if ALIASES[name] == meant] for meant in ALIASES.values()}
        others = ", ".join(f"{' or '.join(names)} for {meant}" for meant, names in others.items())
        raise BadList(path, given, f"{COLUMNS}, with commas between them ({others} will do)")
    if not rows:
        raise NoImages(path, "image", "one a line")
    lines: dict[str, int] = {}  # of each file
    for line, row in rows:
        if None in row:  # which holds what is beyond the last column
            raise BadList(path, row[None], f"no cell beyond the columns {','.join(given)}", line)
        row.update({name: (row[name] or "").strip() for name in wanted})
        if not all(row[name] for name in wanted):
            raise BadList(path, [row[name] for name in wanted], f"a value in each of {', '.join(wanted)}", line)
        if row.get("split", "train").lower() not in SIDES:
            raise BadList(path, row["split"], "the split train or test", line)
        first = lines.setdefault(os.path.normpath(path.parent / row["path"]), line)
        if first != line:
            raise BadList(path, row["path"], f"each file once, and line {first} has this one", line)
    parts = Counter(row["split"].lower() for _, row in rows) if "split" in wanted else Counter()
    spare = [] if whole else spare_parts(list(parts))
    if not whole and len(parts) - len(spare) > len({SIDES[part] for part in parts}):
        raise BadList(path, list(parts), "one split to train and one to test")
    left = ""
    if spare:
        rows = [(line, row) for line, row in rows if row["split"].lower() not in spare]
        left = left_out(Counter({f"of the split {part}": parts[part] for part in spare}))
        left += "; to measure on these instead, leave out the rows of test"
    paths = [str(path.parent / row["path"]) for _, row in rows]
    missing = [name for name in paths if not Path(name).is_file()]
    if missing:
        windows = len(missing) == len(paths) and all("\\" in row["path"] for _, row in rows)
        repair = "write / between folders, not a backslash" if windows else "paths begin at the folder of the CSV"
        found, listed = {"files": len(paths) - len(missing)}, {"files": len(paths)}
        raise OtherCounts(str(path), found, listed, tuple(missing), repair)
    labels = [row.get("label", path.stem) for _, row in rows]
    splits = [SIDES[row["split"].lower()] for _, row in rows] if "split" in wanted and not whole else None
    return Listed(paths, labels, set(labels), splits, left)
