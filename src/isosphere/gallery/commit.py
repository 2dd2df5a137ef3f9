"""Changes of a gallery's folder: one process at a time, and whole or not at all."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from isosphere import locks
from isosphere.errors import FolderExists, Held

from .journal import WORK
from .manifest import MANIFEST, Manifest, write_manifest
from .rows import Rows, Store, write_folder

LOCK = ".lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder of a gallery, made if need be, that no other process changes meanwhile."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names and not names & {MANIFEST, WORK, LOCK}:
        raise FolderExists(folder, "it is not a gallery")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locks.hold(folder / LOCK):
            yield
    except Held as error:
        raise Held(str(folder), error.holder) from None


def commit(
    folder: Path, manifest: Manifest, rows: Rows, stores: Sequence[Store], places: Sequence[tuple[int, int]]
) -> Manifest:
    """Make these rows the gallery's. Row i is row `places[i][1]` of `stores[places[i][0]]`.

    They are written next to the old ones, then the manifest names them, then the old ones go. Whoever has these open
    keeps them. What a stopped process left is removed, too.
    """
    numbers = [int(path.name.removeprefix("data-")) for path in folder.glob("data-*")]
    made = replace(manifest, data=f"data-{max(numbers, default=0) + 1}")
    write_folder(folder / made.data, rows, stores, np.asarray(places, np.int64).reshape(-1, 2))
    write_manifest(folder, made)
    for path in folder.glob("data-*"):
        if path.name != made.data:
            shutil.rmtree(path, ignore_errors=True)  # Windows keeps what is open; it goes next time
    return made
