"""What a stopped `index` has embedded so far: files of a few images each, every one whole or not there."""

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
    """Rows with their vectors and thumbnails, in memory."""

    rows: Rows
    vectors: np.ndarray
    thumbnails: Sequence[bytes]

    def thumbnail(self, row: int) -> bytes:
        """A WebP."""
        return self.thumbnails[row]


@dataclass
class Journal:
    """Parts of a gallery that is being made, by the model of this hash; those of another model are dropped."""

    folder: Path
    model: str
    parts: list[Part] = field(default_factory=list)
    pending: list[Part] = field(default_factory=list)
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(cls, gallery: Path, model: str) -> "Journal":
        """Take up what is there."""
        folder = gallery / WORK
        folder.mkdir(exist_ok=True)
        found = cls(folder, model)
        for path in sorted(folder.glob("part-*.npz")):
            with np.load(path, allow_pickle=False) as held:
                names = json.loads(held["names"].tobytes())
                if names["model"] != model:
                    continue
                numbers = (held[name] for name in NUMBERS)
                blob, ends = held["thumbnails"].tobytes(), [0, *held["ends"].tolist()]
                thumbnails = [blob[start:end] for start, end in zip(ends, ends[1:], strict=False)]
                rows = Rows(names["paths"], names["labels"], *numbers)
                found.parts.append(Part(rows, held["vectors"], thumbnails))
        return found

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
        part = Part(rows, np.concatenate([part.vectors for part in self.pending]), thumbnails)
        names = {"model": self.model, "paths": rows.paths, "labels": rows.labels}
        taken = [int(path.stem.removeprefix("part-")) for path in self.folder.glob("part-*.npz")]
        with files.replacing(self.folder / f"part-{max(taken, default=0) + 1:06d}.npz") as file:
            np.savez(
                file,
                names=np.frombuffer(json.dumps(names).encode(), np.uint8),
                vectors=part.vectors,
                thumbnails=np.frombuffer(b"".join(thumbnails), np.uint8),
                ends=np.cumsum([len(one) for one in thumbnails]),
                **{name: getattr(rows, name) for name in NUMBERS},
            )
        self.parts.append(part)
        self.pending, self.written = [], time.monotonic()

    def end(self) -> None:
        """Remove all parts: the gallery has them."""
        shutil.rmtree(self.folder, ignore_errors=True)
