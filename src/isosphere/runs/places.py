"""Where a run's images are: its relative paths begin where it was trained, or above it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isosphere.errors import DamagedFile
from isosphere.recipes.fields import PLACES, split_share
from isosphere.runs.folder import RUN, parsed


def bases(run: Path) -> tuple[Path, ...]:
    """Folders where a run's relative paths may begin: where it was trained, then those above it, nearest first.

    The current folder is not among them, as it may hold other images under the same name.
    """
    path, above = run / RUN, tuple(run.resolve().parents)
    begun = parsed(path).get("seen_from") if path.is_file() else None
    if not isinstance(begun, str | None):
        raise DamagedFile(path, "seen_from is not text", "seen_from")
    return above if begun is None else (run.resolve() / begun, *above)


def locate(path: str, root: str, run: Path) -> Path:
    """The file of a test image. `path` is below the recipe's data.root or as given, seen from the run's start or here.

    A root that is a CSV stands for its folder. What an older path repeats of the root is dropped if need be. A file
    that is nowhere keeps its path.
    """
    begun = (*bases(run), Path())
    folders = [its.parent if its.is_file() else its for its in (base / root for base in begun)]
    parts, name = Path(path).parts, Path(root).name
    tail = Path(*parts[parts.index(name) + 1 :]) if name in parts else Path(path)
    places = [*(its / path for its in folders), *(base / path for base in begun), *(its / tail for its in folders)]
    return next((place for place in places if place.is_file()), Path(path))


def is_inside(path: Path, data: Mapping[str, Any], run: Path) -> bool:
    """Whether a path is below one of the places that the recipe's data names, seen from where `locate` looks.

    Data without a place are confined to the run's own folder and the current one. Links inside of data that came with
    the run may not lead out of them; in data elsewhere they are the user's own.
    """
    named = [data.get(name) for name in PLACES]
    each = [its for one in named for its in (one if isinstance(one, list | tuple) else [one])]
    places = [its for its in each if its and isinstance(its, str)]
    begun, own = (*bases(run), Path()), run.resolve().parent
    roots = [base / split_share(its)[0] for its in places for base in begun] or [own, Path()]
    for root in (its.parent if its.is_file() else its for its in roots):
        real = Path(os.path.realpath(root))
        if real == Path(real.anchor):
            continue  # everything is below it
        shipped = real.is_relative_to(own)
        whole = os.path.realpath(path) if shipped else os.path.normpath(os.path.join(os.getcwd(), path))
        if any(Path(whole).is_relative_to(its) for its in {real, Path(os.path.abspath(root))}):
            return True
    return False
