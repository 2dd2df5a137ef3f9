"""List the caches of decoded images, and remove some or all.

  isosphere cache                                   where they are, of what, how large, when they were used
  isosphere cache --clear ./my_photos               remove those of this folder or list
  isosphere cache --clear                           remove all; a cache that a run uses stays

Training decodes images once and keeps them in a cache. A removed cache is made again by the next run that needs it.
ISOSPHERE_CACHE says where caches are, and ISOSPHERE_CACHE_GB how large all of them may be. Then the one that was not
used for longest goes first.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    text = "another folder of caches, as data.cache may name one; by default ISOSPHERE_CACHE or ~/.cache/isosphere"
    parser.add_argument("--place", type=Path, metavar="FOLDER", help=text)
    text = "remove the caches of this folder or list of images; without one all of them"
    parser.add_argument("--clear", nargs="?", const="", metavar="SOURCE", help=text)


def run(asked: Namespace) -> None:
    from isosphere.data.cache import places

    place = asked.place or places.standard_place()
    if asked.clear is not None:
        _clear(place, asked.clear)
    _show(place)


def _clear(place: Path, source: str) -> None:
    """Remove the caches of a source, or all, and say how many bytes that was."""
    from isosphere.cli.endings import note
    from isosphere.data.cache import places
    from isosphere.errors import Held, NotFound
    from isosphere.errors.files import in_bytes

    found = [cache for cache in places.caches(place) if not source or cache.is_of(source)]
    if source and not found:
        raise NotFound(source, "cache of")
    kept = [cache for cache in found if not places.remove(cache)]
    gone = [cache for cache in found if cache not in kept]
    note(f"removed {len(gone)} caches, {in_bytes(sum(cache.bytes for cache in gone))}")
    if kept:
        raise Held(", ".join(str(cache.folder) for cache in kept), "a run")


def _show(place: Path) -> None:
    """A line for each cache, those used last first, and where they are."""
    import time

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from isosphere.data.cache import places
    from isosphere.errors.files import in_bytes

    table = Table("images of", "first stage", "images", "size", "last use", box=None)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    found = places.caches(place)
    for cache in found:
        used = "in use" if cache.in_use else time.strftime("%Y-%m-%d %H:%M", time.localtime(cache.used))
        table.add_row(escape(cache.source), cache.stored, f"{cache.images:,}", in_bytes(cache.bytes), used)
    held, most = in_bytes(sum(cache.bytes for cache in found)), in_bytes(places.limit())
    table.caption = f"{len(found)} caches in {escape(str(place))}: {held} of at most {most}"
    Console().print(table, highlight=False)
