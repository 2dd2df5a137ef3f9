"""Images of a cache: decoded once, uint8, in one memory-mapped file or on a GPU.

Sizes differ, and nothing is padded or squared. An image is a stretch of the buffer, found by its start and size.

| pixels are | batches are made |
|---|---|
| mapped from the cache's file | by worker processes, image by image, with the bits that files give |
| on the GPU, where they fit | there, as one gather of all crops |
| mapped, for a GPU where they do not fit | there, from the batch's own pixels, which go through pinned memory |
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from isosphere.errors import BadArgument, DamagedCacheWarning, DamagedFile

from ..crops import CHUNK, compiled_crops, sample_crops
from ..fits import Stored
from ..images import ImageSet, LabeledImages, read_batch
from ..recordio import RecordSet
from ..transforms import Staged, View
from ..workers import cores
from .filling import Chunks, FirstStage
from .store import PIXELS, Store, void, whole

SHARE = 0.5  # of a GPU's free memory that pixels may take
ROUND = 1 << 20  # pixels to which a batch's own are rounded up, so that few lengths occur
BLOCK = 1 << 26  # bytes that go to a device at once


class Origin:
    """What cached images were made from, and their checksums: the records of a store at these rows, in this order.

    A checksum is compared when its image is first used. An image that has changed is decoded again.
    """

    def __init__(self, store: Store, rows: np.ndarray, chunks: Chunks, use: object) -> None:
        self.folder, self.rows, self.chunks, self.use = store.folder, rows, chunks, use
        self.records = store.records[rows]
        self.checked = torch.zeros(len(rows), dtype=torch.bool).share_memory_()  # by all workers of a loader
        self.again: set[int] = set()  # those that this process has decoded again

    def check(self, place: int, pixels: Tensor) -> None:
        """Compare the pixels (P, 3) of the image at a place; those that have changed become the file's."""
        if self.checked[place] or place in self.again:
            return
        if whole(self.records[place], pixels.numpy().data):
            self.checked[place] = True
            return
        name = self.chunks.images.called(self.chunks.places[place])
        text = f"the cached pixels of {name} have changed, so it is decoded again; is the disk of {self.folder} sound?"
        warnings.warn(DamagedCacheWarning(text, 1, [name]), stacklevel=2)
        with suppress(OSError):  # of a disk that became read-only
            void(self.folder, int(self.rows[place]))
        found = self.chunks.only(place)[0]
        for error in found.failures.values():
            raise error
        if found.images[0].digest != self.records["digest"][place].tobytes():
            raise DamagedFile(self.folder, f"the pixels of {name} have changed, and its file has, too; start again")
        pixels.copy_(found.pixels)  # the map is private to this process
        self.again.add(place)


class CachedSet(LabeledImages):
    """Cached images with labels: `set[i]` is uint8 (3, H, W) after the first stage of a view.

    `buffer` is uint8 (P, 3), all pixels of all images by rows. `starts`, `heights`, `widths` are long (N,), on the
    buffer's device. `device` is where batches are made, None for worker processes. `images` are the files.
    """

    def __init__(
        self, images: ImageSet | RecordSet, stored: FirstStage, origin: Origin, device: torch.device | None = None
    ) -> None:
        super().__init__(images.labels, images.classes)
        self.images, self.stored, self.origin, self.device = images, stored, origin, device
        images.marked(self, slice(None))
        looks = np.frombuffer(origin.records["look"].tobytes(), "<i8").reshape(len(origin.records), -1)
        self.looks = torch.from_numpy(looks.copy())
        self.places, self.file = torch.arange(len(images)), origin.folder / PIXELS
        self.buffer, self.resident = mapped(self.file), False
        parts = (torch.from_numpy(origin.records[part].astype(np.int64)) for part in ("start", "height", "width"))
        self.starts, self.heights, self.widths = parts
        self.crops: Callable[..., Tensor] = sample_crops

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "buffer": self.buffer if self.resident else None}

    def __setstate__(self, held: dict[str, object]) -> None:
        self.__dict__.update(held)
        self.buffer = mapped(self.file) if self.buffer is None else self.buffer

    def __getitem__(self, index: int) -> Tensor:
        height, width = int(self.heights[index]), int(self.widths[index])
        return self.rows_of(index).view(height, width, 3).permute(2, 0, 1).contiguous()

    def rows_of(self, index: int) -> Tensor:
        """The pixels of one image by rows, (P, 3)."""
        start, count = int(self.starts[index]), int(self.heights[index]) * int(self.widths[index])
        pixels = self.buffer[start : start + count]
        if not self.resident:
            self.origin.check(int(self.places[index]), pixels)
        return pixels

    def __repr__(self) -> str:
        where = f"on {self.buffer.device}" if self.resident else f"in {self.origin.folder}"
        return f"CachedSet({len(self)} images of {len(self.classes)} classes, {self.nbytes / 1e9:.2f} GB {where})"

    @property
    def nbytes(self) -> int:
        """Of all pixels of these images."""
        return 3 * int((self.heights * self.widths).sum())

    @property
    def paths(self) -> Sequence[str] | None:
        """The files; None for records in one file."""
        return self.images.paths

    @property
    def digests(self) -> list[bytes]:
        """Of the bytes of each file."""
        return self.origin.records["digest"][self.places.numpy()].tolist()

    @property
    def sides(self) -> np.ndarray:
        """Height and width of each file's image, int (N, 2)."""
        its = self.origin.records[self.places.numpy()]
        return np.stack([its["raw_height"], its["raw_width"]], axis=1).astype(np.int64)

    @property
    def on_disk(self) -> bool:
        """Whether worker processes make the batches."""
        return self.device is None

    def subset(self, indices: Iterable[int] | Tensor) -> Self:
        """The images at these indices, in this order, relabeled as `ImageSet.subset` does; the buffer is shared."""
        kept = torch.as_tensor(indices if isinstance(indices, Tensor) else list(indices), dtype=torch.long).cpu()
        part, images = self._alike(), self.images.subset(kept)
        part.images, part.labels, part.classes, part.places = images, images.labels, images.classes, self.places[kept]
        self.marked(part, kept)
        for name in ("starts", "heights", "widths"):
            its = getattr(self, name)
            setattr(part, name, its[kept.to(its.device)])
        return part

    def _alike(self) -> Self:
        """The same set as another object, of the same pixels; a plain copy would map the file again."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    # ---------------------------------------------------------------- where the pixels are

    def placed(self, device: torch.device | str) -> "CachedSet":
        """The set for training on a device: on a GPU, if it fits there, else with batches that are made there."""
        device = torch.device(device)
        if device.type != "cuda":
            return self
        if self.fits(device):
            return self.to(device)
        part = self._alike()
        part.device = device
        return part

    def fits(self, device: torch.device | str, share: float = SHARE) -> bool:
        """Whether the pixels take at most this share of the device's free memory. On the CPU they always fit."""
        device = torch.device(device)
        return device.type != "cuda" or self.nbytes <= share * torch.cuda.mem_get_info(device)[0]

    def to(self, device: torch.device | str) -> "CachedSet":
        """The same set with its pixels in the device's memory, all of them checked."""
        device, order = torch.device(device), self.starts.argsort().tolist()  # as they lie on the disk
        counts = (self.heights * self.widths).cpu()
        starts, end = torch.empty_like(counts), 0
        buffer = torch.empty(self.nbytes // 3, 3, dtype=torch.uint8, device=device)
        with ThreadPoolExecutor(cores()) as pool:  # checksums are computed without the interpreter's lock
            for block in torch.tensor(order).split(max(1, BLOCK * len(self) // max(1, self.nbytes))):
                pixels = torch.cat([*pool.map(self.rows_of, block.tolist())])
                buffer[end : end + len(pixels)].copy_(pixels)
                starts[block] = end + counts[block].cumsum(0) - counts[block]
                end += len(pixels)
        moved = self._alike()
        moved.buffer, moved.device, moved.resident = buffer, device, True
        moved.starts, moved.heights, moved.widths = (part.to(device) for part in (starts, self.heights, self.widths))
        return moved

    def fuse_crops(self) -> None:
        """Compute crops in one compiled kernel from now on, within one gray level of the plain ones."""
        self.crops = compiled_crops()

    # ---------------------------------------------------------------- batches

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Images at these indices (N,) seen through the view, uint8 (N, 3, S, S), without waiting for a GPU.

        Crops are channels last in memory. `numbers` (N, view.draws) are on the set's device, `indices` on the CPU.
        """
        if self.device is None:
            return self.read(indices, view, numbers)
        self._check(view)
        if numbers is None:
            if view is not None and view.draws:
                raise BadArgument("numbers", None, f"{view.draws} for each image")
            numbers = torch.empty(len(indices), 0, device=self.device)
        if not isinstance(view, Staged):
            return self._stacked(indices) if view is None else view(self._stacked(indices), numbers)
        buffer, starts, heights, widths = self._taken(indices, self.device)
        boxes, flipped = view.boxes(numbers, heights, widths)
        parts = zip(*(part.split(CHUNK) for part in (starts, widths, boxes, flipped)), strict=True)
        return view.finish(torch.cat([self.crops(buffer, *part, view.size) for part in parts]), numbers)

    def read(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """The same image by image, with the bits that files give."""
        self._check(view)
        return read_batch(self, indices, view, numbers)

    def _check(self, view: View | None) -> None:
        """Refuse a view that begins with another first stage, which would see other pixels than those of files."""
        if isinstance(self.stored, Stored):
            fits = isinstance(view, Staged) and view.stored == self.stored and self.stored.holds(view.size)
        else:
            fits = not isinstance(view, Staged)  # a face in its frame is all that a view can ask for
        if not fits:
            raise BadArgument("view", view, f"a view whose first stage is {self.stored}")

    def _stacked(self, indices: Tensor) -> Tensor:
        """Whole images of one size, (N, 3, H, W)."""
        if not self.resident:
            images = torch.stack([self[index] for index in indices.tolist()])
            return images.to(self.device or images.device, non_blocking=True)
        rows, height, width = indices.to(self.starts.device, non_blocking=True), *self[0].shape[1:]
        places = self.starts[rows] // (height * width)
        return self.buffer.view(-1, height, width, 3)[places].permute(0, 3, 1, 2).contiguous()

    def _taken(self, indices: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A buffer on the device with these images, and their starts, heights and widths there."""
        if self.resident:
            rows = indices.to(device, non_blocking=True)
            return self.buffer, self.starts[rows], self.heights[rows], self.widths[rows]
        heights, widths = self.heights[indices], self.widths[indices]
        once = list(dict.fromkeys(indices.tolist()))
        with ThreadPoolExecutor(cores()) as pool:
            if device.type == "cpu":
                for _ in pool.map(self.rows_of, once):
                    pass
                return self.buffer, self.starts[indices], heights, widths
            ends = (self.heights[once] * self.widths[once]).cumsum(0)
            staged = torch.empty(-(-int(ends[-1]) // ROUND) * ROUND, 3, dtype=torch.uint8, pin_memory=True)
            begins = dict(zip(once, [0, *ends.tolist()], strict=False))

            def load(index: int) -> None:
                pixels = self.rows_of(index)
                staged[begins[index] : begins[index] + len(pixels)].copy_(pixels)

            for _ in pool.map(load, once):
                pass
        starts = torch.tensor([begins[index] for index in indices.tolist()])
        parts = (part.to(device, non_blocking=True) for part in (staged, starts, heights, widths))
        buffer, starts, heights, widths = parts
        return buffer, starts, heights, widths


def mapped(file: Path) -> Tensor:
    """The pixels of a file, uint8 (P, 3), read when they are used. What a process writes to them stays its own."""
    if not file.stat().st_size:
        return torch.empty(0, 3, dtype=torch.uint8)
    pixels = np.memmap(file, np.uint8, mode="c")  # torch's own mapping takes no name that is not UTF-8
    return torch.from_numpy(pixels).view(-1, 3)
