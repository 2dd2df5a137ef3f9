"""What a stopped `index` has embedded so far: files of a few images each, every one whole or not there."""

import functools
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from isosphere import files

from .rows import NUMBERS, Rows, joined

WORK = "work"  # a folder of the gallery, gone when all is done
PART = 2048  # images in a file at most
EVERY = 20.0  # seconds after which a file is written, however few


@dataclass(frozen=True)
class Part:
    """Rows with their vectors, float16 (N, F) as the model gave them, and their thumbnails, in memory."""

    rows: Rows
    vectors: np.ndarray
    thumbnails: Sequence[bytes]

    def thumbnail(self, row: int) -> bytes:
        """A WebP."""
        return self.thumbnails[row]


@dataclass(frozen=True)
class Filed:
    """A part in a file. Only its rows are in memory; the rest is read when it is asked for."""

    path: Path
    rows: Rows

    @property
    def vectors(self) -> np.ndarray:
        """(N, F)."""
        return _read(self.path).vectors

    def thumbnail(self, row: int) -> bytes:
        """A WebP."""
        return _read(self.path).thumbnails[row]


@functools.lru_cache(maxsize=4)
def _read(path: Path) -> Part:
    with np.load(path, allow_pickle=False) as held:
        names = json.loads(held["names"].tobytes())
        blob, ends = held["thumbnails"].tobytes(), [0, *held["ends"].tolist()]
        thumbnails = [blob[start:end] for start, end in zip(ends, ends[1:], strict=False)]
        rows = Rows(names["paths"], names["labels"], *(held[name] for name in NUMBERS))
        return Part(rows, held["vectors"], thumbnails)


@dataclass
class Journal:
    """Parts of a gallery that is being made, in a folder of the model that makes them."""

    folder: Path
    parts: list[Filed] = field(default_factory=list)
    pending: list[Part] = field(default_factory=list)
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(cls, gallery: Path, model: str) -> "Journal":
        """Take up what the model of this hash has left; what another one left goes."""
        folder = gallery / WORK / model[:16]
        for other in gallery.glob(f"{WORK}/*"):
            if other != folder:
                shutil.rmtree(other)
        folder.mkdir(parents=True, exist_ok=True)
        _read.cache_clear()
        return cls(folder, [Filed(path, _read(path).rows) for path in sorted(folder.glob("part-*.npz"))])

    def add(self, part: Part) -> None:
        """Keep a part; it is written with others, after some time or some images."""
        self.pending.append(part)
        late = time.monotonic() - self.written > EVERY
        if late or sum(len(one.rows) for one in self.pending) >= PART:
            self.write()

    def write(self) -> None:
        """Write what is kept."""
        if not self.pending:
            return
        rows = joined(part.rows for part in self.pending)
        thumbnails = [one for part in self.pending for one in part.thumbnails]
        names = {"paths": rows.paths, "labels": rows.labels}
        path = self.folder / f"part-{len(self.parts) + 1:06d}.npz"
        with files.replacing(path) as file:
            np.savez(
                file,
                names=np.frombuffer(json.dumps(names).encode(), np.uint8),
                vectors=np.concatenate([part.vectors for part in self.pending]),
                thumbnails=np.frombuffer(b"".join(thumbnails), np.uint8),
                ends=np.cumsum([len(one) for one in thumbnails]),
                **{name: getattr(rows, name) for name in NUMBERS},
            )
        self.parts.append(Filed(path, rows))
        self.pending, self.written = [], time.monotonic()

    def end(self) -> None:
        """Remove all parts: the gallery has them."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)
