"""Crops, flips and shifts with random numbers from (seed, step, position in the global batch) alone.

The same numbers come out on any device and with any number of workers and ranks. A captured CUDA graph has them, too.
Pixels stay uint8, as the model normalizes. Every view first brings the image to one scale with antialiasing. A packed
store does that once. Then it samples the crop without antialiasing. At that scale a crop is hardly ever reduced, so
filtering would gain nothing. A batched sampler on the GPU gives the same pixels as the workers.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

ATTEMPTS = 10
CROP_DRAWS = 2 * ATTEMPTS + 2  # numbers that one random crop uses up


def uniforms(seed: int, step: int | Tensor, positions: Tensor, draws: int) -> Tensor:
    """Random numbers in [0, 1), float32 (len(positions), draws), hashed from (seed, step, position, draw).

    `positions` is int64 (N,) and decides the device. `step` may be a 0-d int64 tensor there.
    """
    key = _mixed(positions.new_full((), seed), 1)
    key = _mixed(key + step, 2)
    key = _mixed(key + positions, 3)
    counters = torch.arange(draws, device=positions.device)
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


def flips(numbers: Tensor) -> Tensor:
    """Which images to mirror, bool, for numbers of the same shape."""
    return numbers < 0.5


def resize_shorter(image: Tensor, shorter: int) -> Tensor:
    """The image with its shorter side at `shorter`, antialiased, uint8 (C, H, W) -> (C, H', W')."""
    from torchvision.transforms.v2 import functional

    return functional.resize(image, [shorter], antialias=True)


def center_crop(image: Tensor, size: int) -> Tensor:
    """The central square, (..., H, W) -> (..., size, size)."""
    from torchvision.transforms.v2 import functional

    return functional.center_crop(image, [size, size])


def apply_crop(image: Tensor, box: Tensor, flip: bool | Tensor, size: int) -> Tensor:
    """The box (top, left, height, width) of an image, bilinear, no antialiasing, (C, H, W) -> (C, size, size)."""
    from torchvision.transforms.v2 import functional

    crop = functional.resized_crop(image, *box.tolist(), [size, size], antialias=False)
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


@dataclass(frozen=True)
class TrainView:
    """Shorter side to `shorter`, a random crop to `size`, a random flip: uint8 (C, H, W) -> (C, size, size)."""

    size: int = 227
    shorter: int = 256
    scale: tuple[float, float] = (0.16, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    draws: ClassVar[int] = CROP_DRAWS + 1

    def __call__(self, image: Tensor, numbers: Tensor) -> Tensor:
        """One image with its numbers (draws,), or a batch (N, C, H, W) with numbers (N, draws)."""
        if image.ndim == 4:
            return torch.stack([self(one, its) for one, its in zip(image, numbers, strict=True)])
        image = resize_shorter(image, self.shorter)
        height, width = torch.tensor(image.shape[-2:])[:, None]
        box = crop_boxes(numbers[None, :CROP_DRAWS], height, width, self.scale, self.ratio)[0]
        return apply_crop(image, box, self.flip and flips(numbers[CROP_DRAWS]), self.size)


@dataclass(frozen=True)
class TestView:
    """Shorter side to `shorter`, then the central square: uint8 (..., H, W) -> (..., size, size)."""

    size: int = 227
    shorter: int = 256
    draws: ClassVar[int] = 0
    __test__: ClassVar[bool] = False  # not a test case, whatever pytest reads from the name

    def __call__(self, image: Tensor, numbers: Tensor | None = None) -> Tensor:
        """One image or a batch; it uses no random numbers."""
        return center_crop(resize_shorter(image, self.shorter), self.size)


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
