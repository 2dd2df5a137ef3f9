"""Lists of paths as text, a line for each image. A name with a line break or a tab is written as JSON."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from isosphere import files

ANY_NAME = {"encoding": "utf-8", "errors": "surrogateescape"}  # of files, also one that is not UTF-8


def write_paths(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write a line for each row, its texts separated by tabs."""
    lines = ("\t".join(map(_written, row)) + "\n" for row in rows)
    files.write(path, "".join(lines), ANY_NAME["errors"])


def read_paths(path: Path) -> list[list[str]]:
    """The rows of a list, also of one that was written before names with line breaks were quoted."""
    lines = path.read_bytes().decode(**ANY_NAME).removesuffix("\n").split("\n")
    return [[_read(field) for field in line.removesuffix("\r").split("\t")] for line in lines]


def _written(name: str) -> str:
    """A name as it is, if it is one line to every reader; a backslash begins no escape there."""
    plain = name.splitlines() in ([name], []) and "\t" not in name and not name.startswith('"')
    return name if plain else json.dumps(name)


def _read(field: str) -> str:
    try:
        found = json.loads(field) if field.startswith('"') else field
    except ValueError:
        return field
    return found if isinstance(found, str) else field
