"""What the commands about a gallery share: its options, opening it, and what they print."""

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isosphere.cli.parser import Parser

if TYPE_CHECKING:
    from isosphere.gallery import Gallery


def declare_gallery(parser: Parser) -> None:
    """The gallery, and how results are shown."""
    parser.add_argument("gallery", type=Path, help="the folder that `isosphere index` wrote")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write one HTML page with pictures")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.device()


def declare_run(parser: Parser) -> None:
    """The option of commands that embed images."""
    parser.add_argument("--run", type=Path, help="where the run is now that embedded the gallery, if it has moved")


def opened(asked: Namespace) -> "Gallery":
    """The gallery; a page that cannot be written is refused before any work."""
    from isosphere.files import writable
    from isosphere.gallery import load_gallery

    if asked.page is not None:
        writable(asked.page)
    gallery = load_gallery(asked.gallery, asked.device, getattr(asked, "engine", None))
    if getattr(asked, "run", None) is not None:
        gallery.use(asked.run)
    return gallery


def threshold(name: str, value: float | None) -> float | None:
    """A cosine that was given, or None."""
    from isosphere.errors import BadArgument

    if value is not None and not -1 <= value <= 1:
        raise BadArgument(f"--{name}", value, "a cosine, from -1 to 1")
    return value


def images_of(places: Sequence[Path]) -> list[str]:
    """Files as they are given; of a folder all images in it and below."""
    from isosphere.data.lists import flat_folder
    from isosphere.errors import NotFound

    found: list[str] = []
    for place in places:
        if not place.exists():
            raise NotFound(place, "image or folder")
        found += flat_folder(place).paths if place.is_dir() else [str(place)]
    return found


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> None:
    """A table on stdout, whole at any width; columns with these places are numbers."""
    from rich.markup import escape
    from rich.table import Table

    from isosphere.report.tables import show

    table = Table(title=escape(title), title_justify="left", box=None)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    show(table)


def print_json(values: Any) -> None:
    """One JSON value on stdout."""
    print(json.dumps(values, indent=1))


def wrote(asked: Namespace) -> None:
    """Say where the page is, on stderr if stdout has JSON."""
    from isosphere.cli.endings import note

    if asked.json:
        note(f"wrote {asked.page}")
    else:
        print(asked.page)
