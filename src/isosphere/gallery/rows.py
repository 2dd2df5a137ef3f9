"""All that a gallery keeps of its images, a row for each, and the folder of four files that holds it.

| file | what |
|---|---|
| `vectors.npy` | (N, D), memory-mapped |
| `names.json` | a path for each row, seen from its source, and the names of the classes |
| `columns.npz` | for each row: its own number, source, class, size and time of the file, end of the thumbnail, one over
|               | the length of the vector as it is kept |
| `thumbnails.bin` | small WebP images, one after the other |

A gallery of fewer numbers has `projection.npz`, too.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isosphere.data.lists import ordered
from isosphere.errors import DamagedFile

from .codes import scales

VECTORS, NAMES, COLUMNS, THUMBNAILS = "vectors.npy", "names.json", "columns.npz", "thumbnails.bin"
NUMBERS = ("ids", "sources", "sizes", "times")
BLOCK = 4096  # rows that are copied at once


@dataclass
class Rows:
    """Paths seen from their sources, labels as words, and numbers (N,) of each image.

    `ids` are rows' own numbers, which they keep; -1 before they are in a gallery. `sources` counts the manifest's, -1
    without one. `sizes` and `times` are those of the file when it was read, -1 without a file.
    """

    paths: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    sources: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    sizes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    times: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.paths)


class Store(Protocol):
    """Where vectors and thumbnails of rows can be had."""

    @property
    def vectors(self) -> np.ndarray:
        """(N, D), as they are kept."""

    def thumbnail(self, row: int) -> bytes:
        """A WebP, or nothing."""


class Folder:
    """A folder of rows that is read: vectors are mapped, thumbnails are read one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            # Copied on write, as torch knows no read-only arrays; nobody writes.
            self.vectors: np.ndarray = np.load(folder / VECTORS, mmap_mode="c", allow_pickle=False)
            names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
            with np.load(folder / COLUMNS, allow_pickle=False) as held:
                columns = {name: held[name] for name in held.files}
            labels = [names["classes"][code] for code in columns["classes"].tolist()]
            self.rows = Rows(names["paths"], labels, *(columns[name] for name in NUMBERS))
            self.scales: np.ndarray = columns["scales"]
            self.ends, size = columns["ends"], (folder / THUMBNAILS).stat().st_size
            counts = {len(its) for its in (self.vectors, *vars(self.rows).values(), self.ends, self.scales)}
            if len(counts) > 1 or self.vectors.ndim != 2 or self.ends[-1:].sum() != size:
                raise ValueError(f"its files have {sorted(counts)} rows, and {size} bytes of thumbnails")
            # Mapped, so that threads share it; an empty file cannot be.
            self._thumbnails = np.memmap(folder / THUMBNAILS, mode="r") if size else np.zeros(0, np.uint8)
        except FileNotFoundError:
            raise  # the gallery may have moved on to another folder
        except Exception as error:  # numpy raises almost anything on damaged files
            raise DamagedFile(folder, f"{type(error).__name__}: {error}") from error

    def thumbnail(self, row: int) -> bytes:
        """The WebP of a row, empty if it has none."""
        return self._thumbnails[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])].tobytes()


def write_folder(
    folder: Path, rows: Rows, stores: Sequence[Store], places: np.ndarray, stored: str, dim: int
) -> None:
    """Write a new folder of rows, with vectors of `dim` numbers kept as `stored`.

    Row i is row `places[i, 1]` of `stores[places[i, 0]]`.
    """
    folder.mkdir()
    like = stores[0].vectors
    shape = (len(rows), like.shape[1])
    vectors = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=like.dtype, shape=shape)
    ends, end, lengths = np.zeros(len(rows), np.int64), 0, np.zeros(len(rows), np.float32)
    with open(folder / THUMBNAILS, "wb") as thumbnails:
        for start in range(0, len(rows), BLOCK):
            part = places[start : start + BLOCK]
            for number in np.unique(part[:, 0]):
                chosen = np.flatnonzero(part[:, 0] == number)
                vectors[start + chosen] = stores[number].vectors[part[chosen, 1]]
            lengths[start : start + BLOCK] = scales(vectors[start : start + BLOCK], stored, dim)
            for row, (number, place) in enumerate(part.tolist(), start):
                end += thumbnails.write(stores[number].thumbnail(place))
                ends[row] = end
    vectors.flush()
    classes = ordered(set(rows.labels))
    codes = {name: code for code, name in enumerate(classes)}
    numbers: dict[str, Any] = {name: getattr(rows, name) for name in NUMBERS}
    labels = np.asarray([codes[label] for label in rows.labels], np.int32)
    np.savez(folder / COLUMNS, ends=ends, scales=lengths, classes=labels, **numbers)
    (folder / NAMES).write_text(json.dumps({"classes": classes, "paths": rows.paths}), encoding="utf-8")


def joined(parts: Iterable[Rows]) -> Rows:
    """Rows one after the other."""
    every = [Rows(), *parts]
    return Rows(
        [path for its in every for path in its.paths],
        [label for its in every for label in its.labels],
        *(np.concatenate([getattr(its, name) for its in every]) for name in NUMBERS),
    )


def taken(rows: Rows, places: Sequence[int]) -> Rows:
    """Some of the rows, in this order."""
    chosen = np.asarray(places, dtype=np.int64)
    columns = (getattr(rows, name)[chosen] for name in NUMBERS)
    return Rows([rows.paths[i] for i in places], [rows.labels[i] for i in places], *columns)
