"""Packed images: decoded once, the shorter side at one size, uint8, in one memory-mapped file.

Widths differ, and nothing is padded or squared. An image is a stretch of the buffer, found by its start and size. The
buffer may be on a GPU, where a batch of crops is one gather.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import Self

from isosphere.errors import BadArgument

from .crops import CHUNK, compiled_crops, sample_crops
from .images import ImageSet, LabeledImages
from .transforms import Staged, Stored, View


class PackedSet(LabeledImages):
    """Packed images with labels: `set[i]` is uint8 (3, H, W), `set.batch(...)` crops on the store's device.

    `buffer` is uint8 (P, 3), all pixels of all images by rows. `starts`, `heights`, `widths` are long (N,). On the CPU,
    `buffer` maps `file`, and each process that the set is pickled to maps it again.
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
        self.crops: Callable[..., Tensor] = sample_crops

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "buffer": None if self.device.type == "cpu" else self.buffer}

    def __setstate__(self, held: dict[str, object]) -> None:
        self.__dict__.update(held)
        self.buffer = mapped(self.file) if self.buffer is None else self.buffer

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
    def paths(self) -> Sequence[str] | None:
        """The files that were packed."""
        return self.images.paths

    @property
    def on_disk(self) -> bool:
        """Whether the buffer is a mapped file."""
        return self.device.type == "cpu"

    def subset(self, indices: Iterable[int] | Tensor) -> Self:
        """The images at these indices, in this order, relabeled as `ImageSet.subset` does; the buffer is shared."""
        kept = torch.as_tensor(indices if isinstance(indices, Tensor) else list(indices), dtype=torch.long).cpu()
        places = (part[kept.to(part.device)] for part in (self.starts, self.heights, self.widths))
        part = type(self)(self.images.subset(kept), self.shorter, self.file, self.buffer, *places)
        part.note = self.note
        return part

    def fits(self, device: torch.device | str, share: float = 0.5) -> bool:
        """Whether the buffer takes at most this share of the device's free memory. On the CPU it always fits."""
        device = torch.device(device)
        return device.type != "cuda" or self.buffer.numel() <= share * torch.cuda.mem_get_info(device)[0]

    def to(self, device: torch.device | str) -> "PackedSet":
        """The same set with its buffer on the device."""
        parts = (part.to(device) for part in (self.buffer, self.starts, self.heights, self.widths))
        moved = PackedSet(self.images, self.shorter, self.file, *parts)
        moved.note = self.note
        return moved

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """These images seen through the view, uint8 (N, 3, S, S), channels last in memory, without synchronizing.

        `indices` (N,) and `numbers` (N, view.draws) are on the store's device.
        """
        if not isinstance(view, Staged) or view.stored != Stored(self.shorter) or not view.stored.holds(view.size):
            expected = f"a view in stages for packed images of the shorter side {self.shorter}"
            raise BadArgument("view", view, expected)
        if numbers is None:
            if view.draws:
                raise BadArgument("numbers", None, f"{view.draws} for each image")
            numbers = torch.empty(len(indices), 0, device=self.device)
        widths = self.widths[indices]
        boxes, flipped = view.boxes(numbers, self.heights[indices], widths)
        parts = zip(*(part.split(CHUNK) for part in (self.starts[indices], widths, boxes, flipped)), strict=True)
        return view.finish(torch.cat([self.crops(self.buffer, *part, view.size) for part in parts]), numbers)

    def fuse_crops(self) -> None:
        """Compute crops in one compiled kernel from now on, within one gray level of the plain ones."""
        self.crops = compiled_crops()


def mapped(file: Path) -> Tensor:
    """The pixels of a file, uint8 (P, 3), read when they are used."""
    return torch.from_file(str(file), shared=False, size=file.stat().st_size, dtype=torch.uint8).view(-1, 3)
