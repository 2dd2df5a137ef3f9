"""Packing images into a store on disk, from which `PackedSet` reads.

Packing survives being killed. The next call goes on after the last whole image, and a rename makes the finished folder.
A store is made again if a file's content has changed. Contents are read if sizes or times have changed. A store whose
own pixels have changed is refused.
"""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from isosphere import files, locks
from isosphere.errors import DamagedFile, UnreadableImage, UnreadableImages

from .decoding import decode
from .fits import resize_shorter
from .images import ImageSet
from .lists import some
from .packed import PackedSet, mapped
from .workers import in_workers

VERSION = 2
RECORD = np.dtype([("height", "<u4"), ("width", "<u4"), ("crc", "<u4")])
PIXELS, RECORDS, MANIFEST = "pixels.bin", "records.bin", "manifest.json"


def pack(image_set: ImageSet, folder: str | Path, shorter: int = 256, workers: int | None = None) -> PackedSet:
    """The packed store of a set's files in `folder`. It is opened if it is current, else made or repaired.

    `workers` processes decode, by default one for each core. Unreadable images are an error that names them. Other
    processes that ask for the same store wait for it.
    """
    folder, paths = Path(folder), image_set.files
    partial = folder.with_name(f"{folder.name}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locks.hold(folder.with_name(f"{folder.name}.lock"), wait=True):
        manifest = _manifest(paths, shorter, (folder, partial))
        if not _is_current(folder, manifest):
            if not _is_begun(partial, manifest):
                shutil.rmtree(partial, ignore_errors=True)
                if _is_begun(folder, manifest):  # the right images, but files of the wrong length: keep what is whole
                    folder.rename(partial)
                else:
                    partial.mkdir()
                    _write_manifest(partial, manifest)
            _fill(partial, paths, shorter, workers)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        if _held(folder) != manifest:  # touched or copied, but the same
            _write_manifest(folder, manifest)
    records = np.fromfile(folder / RECORDS, RECORD)
    heights, widths = (torch.from_numpy(records[side].astype(np.int64)) for side in ("height", "width"))
    ends = (heights * widths).cumsum(0)
    file, starts = folder / PIXELS, ends - heights * widths
    store = PackedSet(image_set, shorter, file, mapped(file), starts, heights, widths)
    _check_whole(store, records["crc"], folder)
    return store


def _check_whole(store: PackedSet, sums: np.ndarray, folder: Path) -> None:
    """Refuse a store whose pixels have changed since they were packed, by the checksum of every image."""
    starts, sizes = store.starts.tolist(), (store.heights * store.widths).tolist()

    def is_whole(index: int) -> bool:
        return zlib.crc32(store.buffer[starts[index] : starts[index] + sizes[index]].numpy().data) == sums[index]

    with ThreadPoolExecutor() as pool:  # the sums are computed without the interpreter's lock
        fine = list(pool.map(is_whole, range(len(sums))))
    damaged = [path for path, whole in zip(store.images.files, fine, strict=True) if not whole]
    if damaged:
        reason = f"the pixels of {len(damaged)} images have changed: {some(damaged)}; delete it to pack them again"
        raise DamagedFile(folder, reason)


class _Resized(Dataset):
    """`resized[i]` is file i decoded, its shorter side at `shorter`, uint8 (H, W, 3), or its error."""

    def __init__(self, paths: Sequence[str], shorter: int) -> None:
        self.paths, self.shorter = paths, shorter

    def __getitem__(self, index: int) -> Tensor | UnreadableImage:
        try:
            return resize_shorter(decode(self.paths[index]), self.shorter).permute(1, 2, 0).contiguous()
        except UnreadableImage as error:  # returned, because a worker would raise it without its path
            return error


def _fill(partial: Path, paths: Sequence[str], shorter: int, workers: int | None) -> None:
    """Append every image that is not yet there, pixels first and its record after them."""
    done, unreadable = _keep_whole(partial), []
    images = in_workers(_Resized(paths, shorter), range(done, len(paths)), workers, "packing images")
    with open(partial / PIXELS, "ab") as pixels, open(partial / RECORDS, "ab") as records:
        for image in images:
            if isinstance(image, UnreadableImage):
                unreadable.append(image)
            if unreadable:  # nothing more is written, but the rest is decoded, too, to name all that need repair
                continue
            data = image.numpy()
            pixels.write(data)
            pixels.flush()
            records.write(np.array([(*data.shape[:2], zlib.crc32(data))], RECORD).tobytes())
            records.flush()
        for file in (pixels, records):
            os.fsync(file.fileno())
    if unreadable:
        raise UnreadableImages(unreadable, len(paths))


def _keep_whole(partial: Path) -> int:
    """Cut an interrupted store after its last whole image, by checksum, and count the images that are left."""
    for name in (PIXELS, RECORDS):
        (partial / name).touch()
    records = np.fromfile(partial / RECORDS, RECORD)
    done = end = 0
    with open(partial / PIXELS, "r+b") as pixels:
        for height, width, crc in records.tolist():
            data = pixels.read(3 * height * width)
            if len(data) < 3 * height * width or zlib.crc32(data) != crc:
                break
            done, end = done + 1, end + len(data)
        pixels.truncate(end)
    os.truncate(partial / RECORDS, done * RECORD.itemsize)
    return done


def _manifest(paths: Sequence[str], shorter: int, stores: Iterable[Path]) -> dict[str, int | str]:
    """What the store must have been made from: names below the common folder, and contents.

    Contents are read again only if no store was made from files of these sizes and times.
    """
    stamps = _digest(paths, lambda path: f"{os.stat(path).st_size} {os.stat(path).st_mtime_ns}")
    known = (held["files"] for held in map(_held, stores) if held.get("stamps") == stamps)
    contents = next(known, None) or _digest(paths, lambda path: hashlib.blake2b(Path(path).read_bytes()).hexdigest())
    return {"version": VERSION, "shorter": shorter, "images": len(paths), "files": contents, "stamps": stamps}


def _digest(paths: Sequence[str], content: Callable[[str], str]) -> str:
    """One digest of the `content` of each file, with its name below their common folder."""
    common, digest = os.path.commonpath(paths), hashlib.sha256()
    with ThreadPoolExecutor() as pool:
        for path, found in zip(paths, pool.map(content, paths), strict=True):
            digest.update(f"{os.path.relpath(path, common)}\0{found}\n".encode())
    return digest.hexdigest()


def _write_manifest(folder: Path, manifest: dict[str, int | str]) -> None:
    files.write(folder / MANIFEST, json.dumps(manifest))


def _held(folder: Path) -> dict[str, int | str]:
    """A store's manifest; empty where it is absent, damaged, or of an earlier version."""
    try:
        held = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) and held.get("version") == VERSION else {}


def _is_begun(folder: Path, manifest: dict[str, int | str]) -> bool:
    return _held(folder) | {"stamps": ""} == manifest | {"stamps": ""}


def _is_current(folder: Path, manifest: dict[str, int | str]) -> bool:
    if not _is_begun(folder, manifest) or not (folder / PIXELS).is_file() or not (folder / RECORDS).is_file():
        return False
    records = np.fromfile(folder / RECORDS, RECORD)
    pixels = 3 * int((records["height"].astype(np.int64) * records["width"]).sum())
    return len(records) == manifest["images"] and (folder / PIXELS).stat().st_size == pixels
