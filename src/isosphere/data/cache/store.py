"""One cache on disk: stored images one after another, what each was made from, and checksums.

| file | holds |
|---|---|
| `pixels.bin` | the pixels of all images by rows, uint8 (P, 3) |
| `names.bin` | the name of each image, ended by a zero byte |
| `records.bin` | a RECORD of each image |
| `manifest.json` | what it is a cache of; how many records there were when it was last closed, and their checksum |

Files only grow. An image's pixels are written first and its record last, so a killed process leaves whole images. What
came after the last closing is checked image by image, the rest by one checksum of names and records. Pixels are checked
when they are first used. A record of size -1 counts no longer. Of two records of one name the later counts.
"""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isosphere import files

VERSION = 2
RECORD = np.dtype(
    [
        ("start", "<i8"),  # its first pixel in pixels.bin
        ("height", "<u4"),
        ("width", "<u4"),
        ("raw_height", "<u4"),  # of the file's image
        ("raw_width", "<u4"),
        ("size", "<i8"),  # of the file, and when it was changed
        ("time", "<i8"),
        ("extra", "<u8"),  # what else it was made from, such as landmarks
        ("digest", "V16"),  # of the file's bytes
        ("look", "V16"),  # of the file's image
        ("seed", "<u4"),  # checksum of all before and of the name
        ("crc", "<u4"),  # checksum of the pixels, which begins with the seed
    ]
)
STAMP = np.dtype([(name, RECORD[name]) for name in ("size", "time", "extra")])
MOVED = (".new", ".old")  # ends of folders while a cache is written anew
PIXELS, NAMES, RECORDS, MANIFEST = PARTS = ("pixels.bin", "names.bin", "records.bin", "manifest.json")


class About(NamedTuple):
    """What a cache is of: a folder or list, and the first stage that its images went through."""

    source: str
    stored: str


class Store:
    """The images of a cache: `records` (N,) and `names`, as read under the cache's lock."""

    def __init__(self, folder: Path, about: About) -> None:
        self.folder, self.about = folder, about
        self.records, self.names = np.empty(0, RECORD), list[bytes]()
        self.sealed = False  # whether the manifest says what the files hold

    @classmethod
    def open(cls, folder: Path, about: About) -> "Store":
        """The cache in a folder with all whole images; one of something else, or of another version, begins anew."""
        store, (new, old) = cls(folder, about), (folder.with_name(folder.name + end) for end in MOVED)
        if old.is_dir() and not folder.is_dir():  # killed between two renames
            old.rename(folder)
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        held = manifest(folder)
        if held.get("version") != VERSION or About(held.get("source", ""), held.get("stored", "")) != about:
            store._begin()
        else:
            store._read(held)
        return store

    # ---------------------------------------------------------------- what there is

    def find(self, names: Sequence[bytes], stamps: np.ndarray) -> np.ndarray:
        """The record of each name with its stamp, int64 (K,); -1 where there is none."""
        places = dict(zip(self.names, range(len(self.names)), strict=True))
        rows = np.fromiter((places.get(name, -1) for name in names), np.int64, len(names))
        if not len(self.records):
            return rows
        its = self.records[rows]
        same = (rows >= 0) & (its["size"] >= 0) & np.all([its[key] == stamps[key] for key in STAMP.names or ()], axis=0)
        return np.where(same, rows, -1)

    def _read(self, held: dict) -> None:
        """Records and names; what the manifest's checksum does not cover is checked, and dropped if it is not whole."""
        for name in (PIXELS, NAMES, RECORDS):
            (self.folder / name).touch()
        blob = (self.folder / NAMES).read_bytes()
        records, names = np.fromfile(self.folder / RECORDS, RECORD), blob.split(b"\0")[:-1]
        count, known = min(len(records), len(names)), held.get("count", 0)
        self.records, self.names = records[:count], names[:count]
        first = known if self._sum(known) == held.get("sum") else 0
        self.sealed = first == count == len(records) == len(names)
        pixels = self._pixels()
        for row in range(first, count):
            if not self._is_whole(row, pixels):
                self.records["size"][row] = -1
        beyond = self._ends() > len(pixels) // 3
        self.records["size"][beyond] = -1
        if not self.sealed or beyond.any():  # what a killed process has left of an image goes
            self.sealed = False
            self._rewrite()

    def _pixels(self) -> memoryview:
        """All bytes of the pixels, mapped."""
        file = self.folder / PIXELS
        return memoryview(np.memmap(file, np.uint8, "r") if file.stat().st_size else b"")  # type: ignore[arg-type]

    def _is_whole(self, row: int, pixels: memoryview) -> bool:
        its = self.records[row]
        begin, count = int(its["start"]), int(its["height"]) * int(its["width"])
        data = pixels[3 * begin : 3 * (begin + count)]
        fits = its["size"] >= 0 and begin >= 0 and 0 < 3 * count == len(data)
        return bool(fits and seed_of(its, self.names[row]) == its["seed"] and whole(its, data))

    @property
    def sizes(self) -> np.ndarray:
        """Pixels of each record, int64 (N,)."""
        return self.records["height"].astype(np.int64) * self.records["width"]

    def _ends(self) -> np.ndarray:
        """Behind the last pixel of each record."""
        return np.where(self.records["size"] >= 0, self.records["start"] + self.sizes, 0)

    def _sum(self, count: int) -> int:
        """Checksum of so many records and names."""
        return zlib.crc32(b"\0".join(self.names[:count]), zlib.crc32(self.records[:count].tobytes()))

    # ---------------------------------------------------------------- changing it, under the cache's lock

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (PIXELS, NAMES, RECORDS):
            (self.folder / name).write_bytes(b"")
        self.seal()

    def _rewrite(self) -> None:
        """Names and records as they are here, and no pixels behind the last image."""
        self.records.tofile(self.folder / RECORDS)
        (self.folder / NAMES).write_bytes(b"".join(name + b"\0" for name in self.names))
        os.truncate(self.folder / PIXELS, 3 * int(self._ends().max(initial=0)))

    def seal(self) -> None:
        """Say in the manifest what there is."""
        if not self.sealed:
            count = len(self.records)
            held = {"version": VERSION, **self.about._asdict(), "count": count, "sum": self._sum(count)}
            files.write(self.folder / MANIFEST, json.dumps(held))
            self.sealed = True

    @contextmanager
    def adding(self) -> Iterator[Callable[[bytes, np.void, bytes, bytes, tuple[int, int], np.ndarray], None]]:
        """`add(name, stamp, digest, look, raw size, pixels (H, W, 3))` appends an image. A full disk takes back all."""
        parts = [self.folder / name for name in (PIXELS, NAMES, RECORDS)]
        before, end = [part.stat().st_size for part in parts], int(self._ends().max(initial=0))
        before[0] = 3 * end
        os.truncate(parts[0], before[0])
        added: list[np.ndarray] = []
        names: list[bytes] = []

        def add(
            name: bytes, stamp: np.void, digest: bytes, look: bytes, raw: tuple[int, int], pixels: np.ndarray
        ) -> None:
            nonlocal end
            row = np.zeros(1, RECORD)
            row["start"], (row["height"], row["width"]) = end, pixels.shape[:2]
            row["raw_height"], row["raw_width"] = raw
            row["size"], row["time"], row["extra"] = stamp["size"], stamp["time"], stamp["extra"]
            row["digest"], row["look"] = np.void(digest), np.void(look)
            row["seed"] = seed_of(row[0], name)
            data = np.ascontiguousarray(pixels).data
            row["crc"] = zlib.crc32(data, int(row["seed"][0]))
            for file, part in zip(opened, (data, memoryview(name + b"\0"), memoryview(row.tobytes())), strict=True):
                _write(file, part)
            end += pixels.shape[0] * pixels.shape[1]
            added.append(row)
            names.append(name)

        self.sealed = False
        with ExitStack() as stack:
            opened = [stack.enter_context(FileIO(part, "ab")) for part in parts]
            try:
                yield add
                for file in opened:
                    os.fsync(file.fileno())
            except OSError:
                for part, size in zip(parts, before, strict=True):
                    os.truncate(part, size)
                raise
        self.records, self.names = np.concatenate([self.records, *added]), self.names + names

    def compact(self, kept: np.ndarray) -> None:
        """Write it anew with these records (K,) alone."""
        new, old = (self.folder.with_name(self.folder.name + end) for end in MOVED)
        kept = kept[self.records["start"][kept].argsort(kind="stable")]
        other = Store(new, self.about)
        other._begin()
        pixels = self._pixels()
        with other.adding() as add:
            for row in kept.tolist():
                its = self.records[row]
                begin, end = 3 * int(its["start"]), 3 * int(its["start"] + self.sizes[row])
                if whole(its, pixels[begin:end]):  # else it is decoded again
                    raw = int(its["raw_height"]), int(its["raw_width"])
                    image = np.frombuffer(pixels[begin:end], np.uint8).reshape(its["height"], its["width"], 3)
                    add(self.names[row], its, its["digest"].tobytes(), its["look"].tobytes(), raw, image)
        other.seal()
        self.folder.rename(old)
        new.rename(self.folder)
        shutil.rmtree(old, ignore_errors=True)
        self.records, self.names, self.sealed = other.records, other.names, True


def _write(file: FileIO, data: memoryview) -> None:
    """All of the data, at once: what a buffer kept back after an error would be written later."""
    left = data.cast("B")
    while len(left):
        left = left[file.write(left) :]


def manifest(folder: Path) -> dict:
    """A cache's manifest; empty where it is absent or damaged."""
    try:
        held = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) and isinstance(held.get("count"), int) else {}


def seed_of(record: np.void, name: bytes) -> int:
    """Where the checksum of an image's pixels begins, so that it also covers name, place and stamp."""
    return zlib.crc32(name, zlib.crc32(record.tobytes()[: RECORD.fields["seed"][1]]))  # type: ignore[index]


def whole(record: np.void, pixels: memoryview | bytes) -> bool:
    """Whether these are the pixels of a record."""
    return bool(zlib.crc32(pixels, int(record["seed"])) == record["crc"])


def void(folder: Path, row: int) -> None:
    """Let a record count no longer, from any process: the manifest's checksum fails, and all is checked next time."""
    with open(folder / RECORDS, "r+b") as file:
        file.seek(row * RECORD.itemsize + RECORD.fields["size"][1])  # type: ignore[index]
        file.write(np.int64(-1).tobytes())
