"""A packed store: every image decoded once, shorter side at one size, uint8, end to end in one memory-mapped file.

Widths differ, so nothing is padded or squared: an image is a stretch of the buffer, found by its start and size. The
buffer may live on a GPU, where a batch of crops is one gather. Packing survives being killed: the next call goes on
after the last whole image, and the finished folder appears by a rename. It is redone when a file's content has
changed (looked at where its size or time has), and refused when its own pixels have.
"""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from isosphere import locks

from .images import ImageSet, LabeledImages, UnreadableImage, cores, decode, some
from .transforms import CROP_DRAWS, TestView, TrainView, crop_boxes, flips, resize_shorter

VERSION = 2
RECORD = np.dtype([("height", "<u4"), ("width", "<u4"), ("crc", "<u4")])
PIXELS, RECORDS, MANIFEST = "pixels.bin", "records.bin", "manifest.json"
CHUNK = 128  # images cropped at once, which bounds the memory of the gather's indices


class PackedSet(LabeledImages):
    """Packed images with labels: `set[i]` is uint8 (3, H, W), `set.batch(...)` a batch of crops on the store's device.

    `buffer` is uint8 (P, 3), all pixels of all images by rows; `starts`, `heights`, `widths` are long (N,). `file` is
    what the buffer maps on the CPU, and is mapped again by each process that the set is pickled to.
    """

    def __init__(
        self,
        images: ImageSet,
        shorter: int,
        file: Path,
        buffer: Tensor,
        starts: Tensor,
        heights: Tensor,
        widths: Tensor,
    ) -> None:
        super().__init__(images.labels, images.classes)
        self.images, self.shorter, self.file, self.note = images, shorter, file, images.note
        self.buffer, self.starts, self.heights, self.widths = buffer, starts, heights, widths
        self.crops = sample_crops

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "buffer": None if self.device.type == "cpu" else self.buffer}

    def __setstate__(self, held: dict[str, object]) -> None:
        self.__dict__.update(held)
        self.buffer = _mapped(self.file) if self.buffer is None else self.buffer

    def __getitem__(self, index: int) -> Tensor:
        start, height, width = (int(part[index]) for part in (self.starts, self.heights, self.widths))
        return self.buffer[start : start + height * width].view(height, width, 3).permute(2, 0, 1)

    def __repr__(self) -> str:
        size = self.buffer.numel() / 1e9
        return f"PackedSet({len(self)} images of {len(self.classes)} classes, {size:.2f} GB on {self.buffer.device})"

    @property
    def device(self) -> torch.device:
        """Where the buffer is."""
        return self.buffer.device

    @property
    def paths(self) -> list[str] | None:
        """The files that were packed."""
        return self.images.paths

    @property
    def on_disk(self) -> bool:
        """Whether the buffer is a mapped file."""
        return self.device.type == "cpu"

    def subset(self, indices: Iterable[int] | Tensor) -> "PackedSet":
        """The images at these indices, in this order, relabeled as `ImageSet.subset` does; the buffer is shared."""
        kept = torch.as_tensor(indices if isinstance(indices, Tensor) else list(indices), dtype=torch.long).cpu()
        parts = (part[kept.to(part.device)] for part in (self.starts, self.heights, self.widths))
        return PackedSet(self.images.subset(kept), self.shorter, self.file, self.buffer, *parts)

    def fits(self, device: torch.device | str, share: float = 0.5) -> bool:
        """Whether the buffer takes no more than this share of the device's free memory; on the CPU it always fits."""
        device = torch.device(device)
        return device.type != "cuda" or self.buffer.numel() <= share * torch.cuda.mem_get_info(device)[0]

    def to(self, device: torch.device | str) -> "PackedSet":
        """The same set with its buffer on the device."""
        parts = (part.to(device) for part in (self.buffer, self.starts, self.heights, self.widths))
        return PackedSet(self.images, self.shorter, self.file, *parts)

    def batch(self, indices: Tensor, view: TrainView | TestView, numbers: Tensor | None = None) -> Tensor:
        """These images seen through the view, uint8 (N, 3, S, S), channels last in memory, without synchronizing.

        `indices` (N,) and, for a TrainView, `numbers` (N, view.draws) are on the store's device.
        """
        if view.shorter != self.shorter or view.size > self.shorter:
            raise ValueError(f"the images are packed with shorter side {self.shorter}, which does not serve {view}")
        heights, widths = self.heights[indices], self.widths[indices]
        if isinstance(view, TrainView):
            boxes = crop_boxes(numbers[:, :CROP_DRAWS], heights, widths, view.scale, view.ratio)
            flipped = flips(numbers[:, CROP_DRAWS]) if view.flip else torch.zeros_like(heights, dtype=torch.bool)
        else:
            boxes, flipped = central_boxes(heights, widths, view.size), torch.zeros_like(heights, dtype=torch.bool)
        parts = zip(*(part.split(CHUNK) for part in (self.starts[indices], widths, boxes, flipped)), strict=True)
        return torch.cat([self.crops(self.buffer, *part, view.size) for part in parts])

    def fuse_crops(self) -> None:
        """From now on compute a batch's crops in one compiled kernel, within one gray level of the plain ones."""
        self.crops = _compiled_crops()


def central_boxes(heights: Tensor, widths: Tensor, size: int) -> Tensor:
    """The central square of each image as (top, left, height, width), long (N, 4), rounded as torchvision does."""
    top, left = (((side - size).double() / 2).round().long() for side in (heights, widths))
    return torch.stack((top, left, torch.full_like(top, size), torch.full_like(top, size)), dim=1)


def sample_crops(buffer: Tensor, starts: Tensor, widths: Tensor, boxes: Tensor, flipped: Tensor, size: int) -> Tensor:
    """Boxes (N, 4) of the images that start here in the buffer (P, 3), bilinear, not antialiased -> (N, 3, S, S)."""
    top, left, height, width = boxes.T[:, :, None]  # (N, 1) each
    places = torch.arange(size, device=buffer.device).expand(len(boxes), size)
    columns = torch.where(flipped[:, None], size - 1 - places, places)
    above, below, down = _taps(places, height, size)  # (N, S) each
    before, after, right = _taps(columns, width, size)
    rows = [(starts[:, None] + (top + row) * widths[:, None])[:, :, None] for row in (above, below)]
    sides = [(left + column)[:, None, :] for column in (before, after)]
    right, down = right[:, None, :, None], down[:, :, None, None]
    upper, lower = (
        torch.lerp(buffer[row + sides[0]].float(), buffer[row + sides[1]].float(), right) for row in rows
    )  # (N, S, S, 3)
    return torch.lerp(upper, lower, down).round().to(torch.uint8).permute(0, 3, 1, 2)


@cache
def _compiled_crops() -> Callable[..., Tensor]:
    return torch.compile(sample_crops)


def _taps(places: Tensor, lengths: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For output places (N, S) over inputs of these lengths (N, 1): the two input places and the second's weight."""
    exact = ((places + 0.5) * (lengths / size) - 0.5).clamp(min=0)
    first = torch.minimum(exact.long(), lengths - 1)
    return first, torch.minimum(first + 1, lengths - 1), exact - first


def pack(image_set: ImageSet, folder: str | Path, shorter: int = 256, workers: int | None = None) -> PackedSet:
    """The packed store of an image set's files in `folder`, opened if it is there and current, else made or repaired.

    `workers` processes decode (by default one for each core); unreadable images are an error that names them.
    Other processes that ask for the same store wait for it.
    """
    if image_set.paths is None:
        raise ValueError("only images in files can be packed; these are in memory already")
    folder = Path(folder)
    partial = folder.with_name(f"{folder.name}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locks.hold(folder.with_name(f"{folder.name}.lock"), wait=True):
        manifest = _manifest(image_set.paths, shorter, (folder, partial))
        if not _is_current(folder, manifest):
            if not _is_begun(partial, manifest):
                shutil.rmtree(partial, ignore_errors=True)
                if _is_begun(folder, manifest):  # the right images, but files of the wrong length: keep what is whole
                    folder.rename(partial)
                else:
                    partial.mkdir()
                    _write_manifest(partial, manifest)
            _fill(partial, image_set.paths, shorter, cores() if workers is None else workers)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        if _held(folder) != manifest:  # touched or copied, but the same
            _write_manifest(folder, manifest)
    records = np.fromfile(folder / RECORDS, RECORD)
    heights, widths = (torch.from_numpy(records[side].astype(np.int64)) for side in ("height", "width"))
    ends = (heights * widths).cumsum(0)
    file, starts = folder / PIXELS, ends - heights * widths
    store = PackedSet(image_set, shorter, file, _mapped(file), starts, heights, widths)
    _check_whole(store, records["crc"], folder)
    return store


def _mapped(file: Path) -> Tensor:
    return torch.from_file(str(file), shared=False, size=file.stat().st_size, dtype=torch.uint8).view(-1, 3)


def _check_whole(store: PackedSet, sums: np.ndarray, folder: Path) -> None:
    """Refuse a store whose pixels have changed since they were packed, by the checksum of every image."""
    starts, sizes = store.starts.tolist(), (store.heights * store.widths).tolist()

    def is_whole(index: int) -> bool:
        return zlib.crc32(store.buffer[starts[index] : starts[index] + sizes[index]].numpy()) == sums[index]

    with ThreadPoolExecutor() as pool:  # the sums are computed without the interpreter's lock
        fine = list(pool.map(is_whole, range(len(sums))))
    damaged = [path for path, whole in zip(store.images.paths, fine, strict=True) if not whole]
    if damaged:
        raise ValueError(f"{folder} is damaged at {len(damaged)} images: {some(damaged)}; delete it to pack them again")


class _Resized(Dataset):
    """`resized[i]` is file i decoded, its shorter side at `shorter`, uint8 (H, W, 3), or the error that it gave."""

    def __init__(self, paths: list[str], shorter: int) -> None:
        self.paths, self.shorter = paths, shorter

    def __getitem__(self, index: int) -> Tensor | UnreadableImage:
        try:
            return resize_shorter(decode(self.paths[index]), self.shorter).permute(1, 2, 0).contiguous()
        except UnreadableImage as error:  # returned, because a worker would raise it without its path
            return error


def _fill(partial: Path, paths: list[str], shorter: int, workers: int) -> None:
    """Append every image that is not yet there, pixels first and its record after them."""
    from rich.progress import track

    done, unreadable = _keep_whole(partial), []
    loader = DataLoader(
        _Resized(paths, shorter),
        batch_size=None,
        sampler=range(done, len(paths)),
        num_workers=min(workers, len(paths) - done),
        generator=torch.Generator(),  # else the loader would draw its base seed from the global stream
    )
    with open(partial / PIXELS, "ab") as pixels, open(partial / RECORDS, "ab") as records:
        for image in track(loader, "packing images", len(paths) - done, transient=True):
            if isinstance(image, UnreadableImage):
                unreadable.append(str(image))
            if unreadable:  # nothing more is written, but the rest is looked at, to name all that need repair
                continue
            data = image.numpy()
            pixels.write(data)
            pixels.flush()
            records.write(np.array([(*data.shape[:2], zlib.crc32(data))], RECORD).tobytes())
            records.flush()
        for file in (pixels, records):
            os.fsync(file.fileno())
    if unreadable:
        raise ValueError(f"{len(unreadable)} of {len(paths)} images are unreadable: {some(unreadable)}")


def _keep_whole(partial: Path) -> int:
    """Cut an interrupted store after its last whole image (by checksum) and count the images that are left."""
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


def _manifest(paths: list[str], shorter: int, stores: Iterable[Path]) -> dict[str, int | str]:
    """What the store must have been made from: the files' names below their common folder, and their contents.

    They are read again only if no store at hand was made from files of these sizes and times.
    """
    stamps = _digest(paths, lambda path: f"{os.stat(path).st_size} {os.stat(path).st_mtime_ns}")
    known = (held["files"] for held in map(_held, stores) if held.get("stamps") == stamps)
    files = next(known, None) or _digest(paths, lambda path: hashlib.blake2b(Path(path).read_bytes()).hexdigest())
    return {"version": VERSION, "shorter": shorter, "images": len(paths), "files": files, "stamps": stamps}


def _digest(paths: list[str], look: Callable[[str], str]) -> str:
    """One digest of what `look` tells of each file, with its name below their common folder."""
    common, digest = os.path.commonpath(paths), hashlib.sha256()
    with ThreadPoolExecutor() as pool:
        for path, told in zip(paths, pool.map(look, paths), strict=True):
            digest.update(f"{os.path.relpath(path, common)}\0{told}\n".encode())
    return digest.hexdigest()


def _write_manifest(folder: Path, manifest: dict[str, int | str]) -> None:
    (folder / "manifest.new").write_text(json.dumps(manifest))
    os.replace(folder / "manifest.new", folder / MANIFEST)


def _held(folder: Path) -> dict[str, int | str]:
    """A store's manifest; empty where it is absent, damaged, or of an earlier version."""
    try:
        held = json.loads((folder / MANIFEST).read_text())
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
