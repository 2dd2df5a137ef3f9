"""Lists in text files: CSVs of images, and lines."""

import csv
from pathlib import Path

from isosphere.errors import BadList, NotFound, NotText

from .columns import COLUMNS, NO_NAMING, Naming, Table, meanings
from .lists import EXTENSIONS, UNREAD, Column
from .paths import Paths

LISTS = {".csv", ".tsv", ".txt", ""}  # endings of what was meant as a CSV


def lines(path: str | Path) -> list[tuple[int, str]]:
    """Lines of a text file in UTF-8, stripped, with their numbers, without the blank ones."""
    if not Path(path).is_file():
        raise NotFound(path, "text file")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotText(path, str(error)) from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def csv_table(path: Path, labeled: bool = True, naming: Naming = NO_NAMING) -> Table:
    """The columns of a CSV that mean something; other columns are ignored. Labels may be missing unless `labeled`."""
    if path.suffix.lower() in EXTENSIONS | UNREAD:
        raise BadList(path, "one image", f"{COLUMNS}, or be a folder of images")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            given = [name.strip() for name in next(reader, [])]
            found = meanings(path, given, labeled, naming)
            cells: dict[str, list[str]] = {name: [] for name in found}
            lines = []
            for row in reader:
                if len(row) > len(given):
                    expected = f"no cell beyond the columns {','.join(given)}"
                    raise BadList(path, row[len(given) :], expected, reader.line_num)
                if row:
                    lines.append(reader.line_num)
                    for name, place in found.items():
                        cells[name].append(row[place].strip() if place < len(row) else "")
    except (UnicodeDecodeError, csv.Error) as error:
        if path.suffix.lower() not in LISTS:
            raise BadList(path, "no text", f"{COLUMNS}, or be a folder of images") from error
        raise NotText(path, str(error)) from error
    paths = Paths.of(cells.pop("path"))
    return Table(paths, {name: Column.of(its) for name, its in cells.items()}, lines)
