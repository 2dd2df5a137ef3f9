"""Changes of a gallery's folder: one process at a time, and whole or not at all."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from isosphere import locks
from isosphere.errors import FolderExists, Held

from .codes import Projection, encode
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
    folder: Path,
    manifest: Manifest,
    rows: Rows,
    stores: Sequence[Store],
    places: Sequence[tuple[int, int]],
    projection: Projection | None,
) -> Manifest:
    """Make these rows the gallery's. Row i is row `places[i][1]` of `stores[places[i][0]]`, kept as in the manifest.

    They are written next to the old ones, then the manifest names them, then the old ones go. Whoever has these open
    keeps them. What a stopped process left is removed, too.
    """
    numbers = [int(path.name.removeprefix("data-")) for path in folder.glob("data-*")]
    new = np.flatnonzero(rows.ids < 0)
    rows.ids[new] = manifest.next_id + np.arange(len(new))
    following = manifest.next_id + len(new)
    made = replace(manifest, data=f"data-{max(numbers, default=0) + 1}", count=len(rows), next_id=following)
    write_folder(folder / made.data, rows, stores, np.asarray(places, np.int64).reshape(-1, 2), made.stored, made.dim)
    if projection is not None:
        projection.write(folder / made.data)
    write_manifest(folder, made)
    for path in folder.glob("data-*"):
        if path.name != made.data:
            shutil.rmtree(path, ignore_errors=True)  # Windows keeps what is open; it goes next time
    return made


@dataclass(frozen=True)
class Kept:
    """What a store has, with its vectors as a gallery keeps them."""

    store: Store
    stored: str
    projection: Projection | None

    @property
    def vectors(self) -> np.ndarray:
        """(N, D)."""
        unit = torch.from_numpy(np.asarray(self.store.vectors))
        return encode(unit if self.projection is None else self.projection(unit), self.stored)

    def thumbnail(self, row: int) -> bytes:
        """A WebP."""
        return self.store.thumbnail(row)
