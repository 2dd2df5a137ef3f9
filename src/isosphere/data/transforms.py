"""Crops, flips and shifts with random numbers from (seed, step, position in the global batch) alone.

The same numbers come out on any device and with any number of workers and ranks. A captured CUDA graph has them, too.
Pixels stay uint8, as the model normalizes. A view of photographs has two stages. The first, `stored`, brings the image
to one scale with antialiasing. It draws nothing, so a cache holds its result. The rest samples the crop without
antialiasing. At that scale a crop is hardly ever reduced, so filtering would gain nothing. A batched sampler on the GPU
gives the same pixels as the workers.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from .fits import Fit, Interpolation, Size, Stored, sides

ATTEMPTS = 10
CROP_DRAWS = 2 * ATTEMPTS + 2  # numbers that one random crop uses up


def uniforms(seed: int, step: int | Tensor, positions: Tensor, draws: int, first: int = 0) -> Tensor:
    """Random numbers in [0, 1), float32 (len(positions), draws), hashed from (seed, step, position, draw).

    Draws are counted from `first`, so that two users of one step have others. `positions` is int64 (N,) and decides the
    device. `step` may be a 0-d int64 tensor there.
    """
    key = _mixed(positions.new_full((), seed), 1)
    key = _mixed(key + step, 2)
    key = _mixed(key + positions, 3)
    counters = torch.arange(first, first + draws, device=positions.device)
    bits = _mixed(key[:, None] + counters * _GOLDEN, 4)
    return ((bits >> 40) & 0xFFFFFF).float() * 2.0**-24


_GOLDEN = 0x9E3779B97F4A7C15 - 2**64


def _mixed(values: Tensor, stage: int) -> Tensor:
    """The finalizer of splitmix64 on int64 that wraps. Masks make its arithmetic shifts logical."""
    values = values + (stage * _GOLDEN + 2**63) % 2**64 - 2**63
    values = (values ^ ((values >> 30) & (2**34 - 1))) * (0xBF58476D1CE4E5B9 - 2**64)
    values = (values ^ ((values >> 27) & (2**37 - 1))) * (0x94D049BB133111EB - 2**64)
    return values ^ ((values >> 31) & (2**33 - 1))


def crop_boxes(
    numbers: Tensor,
    heights: Tensor,
    widths: Tensor,
    scale: tuple[float, float] = (0.16, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Random crops (top, left, height, width), int64 (N, 4), of images of these sizes, by numbers (N, CROP_DRAWS).

    As torchvision's RandomResizedCrop: area and aspect are drawn up to ten times until the box fits the image. Else it
    is the largest central box of an allowed aspect. In float64, so that devices do not differ by a rounding.
    """
    numbers, heights, widths = numbers.double(), heights[:, None].double(), widths[:, None].double()
    area = (scale[0] + (scale[1] - scale[0]) * numbers[:, :ATTEMPTS]) * heights * widths
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = (low + (high - low) * numbers[:, ATTEMPTS : 2 * ATTEMPTS]).exp()
    tried_h, tried_w = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    # The central box stands last and always fits, so the first that fits is well defined.
    central_h = torch.minimum(heights, (widths / ratio[0]).round())
    central_w = torch.minimum(widths, (heights * ratio[1]).round())
    all_h, all_w = torch.cat([tried_h, central_h], 1), torch.cat([tried_w, central_w], 1)
    fits = (all_h > 0) & (all_h <= heights) & (all_w > 0) & (all_w <= widths)
    chosen = fits.to(torch.uint8).argmax(1, keepdim=True)
    height, width = all_h.gather(1, chosen), all_w.gather(1, chosen)
    spare = torch.cat([heights - height, widths - width], 1)  # (N, 2)
    corner = torch.where(chosen == ATTEMPTS, spare / 2, numbers[:, -2:] * (spare + 1)).floor()
    return torch.cat([corner, height, width], 1).long()


def central_boxes(heights: Tensor, widths: Tensor, size: Size) -> Tensor:
    """The central box of each image as (top, left, height, width), long (N, 4), rounded as torchvision does."""
    spare = zip((heights, widths), sides(size), strict=True)
    top, left = (((given - side).double() / 2).round().long() for given, side in spare)
    return torch.stack((top, left, *(torch.full_like(top, side) for side in sides(size))), dim=1)


def flips(numbers: Tensor) -> Tensor:
    """Which images to mirror, bool, for numbers of the same shape."""
    return numbers < 0.5


def center_crop(image: Tensor, size: Size) -> Tensor:
    """The central box, (..., H, W) -> (..., S, S), or of this height and width."""
    from torchvision.transforms.v2 import functional

    return functional.center_crop(image, [*sides(size)])


def apply_crop(image: Tensor, box: Tensor, flip: bool | Tensor, size: Size) -> Tensor:
    """The box (top, left, height, width) of an image, bilinear, no antialiasing, (C, H, W) -> (C, S, S)."""
    from torchvision.transforms.v2 import functional

    crop = functional.resized_crop(image, *box.tolist(), [*sides(size)], antialias=False)
    return crop.flip(-1) if flip else crop


def shift(images: Tensor, numbers: Tensor, pixels: int) -> Tensor:
    """Each image moved by up to `pixels` both ways, edges repeated, (N, C, H, W) with numbers (N, 2)."""
    moves = (numbers.double() * (2 * pixels + 1)).long() - pixels
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) + moves[:, :1]).clamp(0, height - 1)  # (N, H)
    columns = (torch.arange(width, device=images.device) + moves[:, 1:]).clamp(0, width - 1)  # (N, W)
    images = images.gather(2, rows[:, None, :, None].expand(images.shape))
    return images.gather(3, columns[:, None, None, :].expand(images.shape))


class View(Protocol):
    """What is done to pixels: uint8 (N, C, H, W), or one image, with `draws` random numbers for each."""

    @property
    def draws(self) -> int: ...

    def __call__(self, images: Tensor, numbers: Tensor, /) -> Tensor: ...


@runtime_checkable
class Staged(View, Protocol):
    """A view in stages: `view(image, numbers)` is `view.rest(view.stored(image), numbers)`.

    The rest cuts a box out of the stored image, mirrors it, and `finish`es the crop. A cache on a GPU does that for a
    whole batch at once: it asks for `boxes`, samples them, and calls `finish`.
    """

    @property
    def size(self) -> Size: ...

    @property
    def stored(self) -> Stored: ...

    def rest(self, images: Tensor, numbers: Tensor, /) -> Tensor:
        """Stored images of one size, or one of them, to crops."""

    def boxes(self, numbers: Tensor, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes (top, left, height, width), long (N, 4), of stored images of these sizes, and which to mirror, (N,)."""

    def finish(self, crops: Tensor, numbers: Tensor) -> Tensor:
        """What is done to crops (N, C, S, S), on any device, from the numbers that `boxes` leaves over."""


def random_boxes(view: "RandomCrops", numbers: Tensor, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
    """A view's random boxes (N, 4) of stored images of these sizes, and which to mirror (N,)."""
    (height, width), (least, most) = sides(view.size), view.ratio
    ratio = view.ratio if height == width else (least * width / height, most * width / height)  # about the frame's own
    boxes = crop_boxes(numbers[:, :CROP_DRAWS], heights, widths, view.scale, ratio)
    return boxes, view.flip & flips(numbers[:, CROP_DRAWS])


class RandomCrops(Protocol):
    """What random crops of a view are drawn by."""

    @property
    def size(self) -> Size: ...

    @property
    def scale(self) -> tuple[float, float]: ...

    @property
    def ratio(self) -> tuple[float, float]: ...

    @property
    def flip(self) -> bool: ...


@dataclass(frozen=True)
class TrainView:
    """The frame of `fits.py`, a random crop of it to `size`, a random flip: uint8 (C, H, W) -> (C, size, size)."""

    size: Size = 227
    shorter: int = 256
    scale: tuple[float, float] = (0.16, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"
    draws: ClassVar[int] = CROP_DRAWS + 1

    @property
    def stored(self) -> Stored:
        """The first stage."""
        return Stored.of(self.size, self.shorter, self.fit, self.interpolation)

    def __call__(self, image: Tensor, numbers: Tensor) -> Tensor:
        """One image with its numbers (draws,), or a batch (N, C, H, W) with numbers (N, draws)."""
        return self.rest(self.stored(image), numbers)

    def rest(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The same of stored images."""
        if images.ndim == 3:
            return self.rest(images[None], numbers[None])[0]
        sides = (torch.full((len(images),), side) for side in images.shape[-2:])
        found = zip(images, *self.boxes(numbers, *sides), strict=True)
        crops = [apply_crop(image, box, flip, self.size) for image, box, flip in found]
        return self.finish(torch.stack(crops), numbers)

    def boxes(self, numbers: Tensor, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        """Random boxes (N, 4) of stored images of these sizes, and which to mirror (N,)."""
        return random_boxes(self, numbers, heights, widths)

    def finish(self, crops: Tensor, numbers: Tensor) -> Tensor:
        """Nothing is left to do."""
        return crops


@dataclass(frozen=True)
class TestView:
    """The frame of `fits.py`, its center or all of it: uint8 (..., H, W) -> (..., S, S)."""

    size: Size = 227
    shorter: int = 256
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"
    draws: ClassVar[int] = 0
    __test__: ClassVar[bool] = False  # not a test case, whatever pytest reads from the name

    @property
    def stored(self) -> Stored:
        """The first stage."""
        return Stored.of(self.size, self.shorter, self.fit, self.interpolation)

    def __call__(self, image: Tensor, numbers: Tensor | None = None) -> Tensor:
        """One image or a batch; it uses no random numbers."""
        return self.rest(self.stored(image))

    def rest(self, images: Tensor, numbers: Tensor | None = None) -> Tensor:
        """The same of stored images."""
        if self.fit == "crop":
            return center_crop(images, self.size)
        return apply_crop(images, torch.tensor([0, 0, *images.shape[-2:]]), False, self.size)

    def boxes(self, numbers: Tensor, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        """The central box of each, or all of it, and none to mirror."""
        begin = torch.zeros_like(heights)
        whole = torch.stack((begin, begin, heights, widths), dim=1)
        boxes = central_boxes(heights, widths, self.size) if self.fit == "crop" else whole
        return boxes, torch.zeros_like(heights, dtype=torch.bool)

    def finish(self, crops: Tensor, numbers: Tensor) -> Tensor:
        """Nothing is left to do."""
        return crops


@dataclass(frozen=True)
class ShiftView:
    """Small images in memory, moved by up to `pixels`: uint8 (N, C, H, W) with numbers (N, 2)."""

    pixels: int = 2
    draws: ClassVar[int] = 2

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """One image with its numbers (2,), or a batch."""
        if images.ndim == 3:
            return shift(images[None], numbers[None], self.pixels)[0]
        return shift(images, numbers, self.pixels)
