"""How an image of any shape becomes one of the network's: cropped, padded or squashed. The first stage of a view."""

from dataclasses import dataclass
from math import gcd
from typing import Literal

import torch
from torch import Tensor

Size = int | tuple[int, int]
"""Side of a square, or height and width."""
Fit = Literal["crop", "pad", "squash"]
Interpolation = Literal["bilinear", "bicubic"]
GRAY = (124, 116, 104)
"""What is around a padded image: the mean color of ImageNet, which is near 0 once it is normalized."""


def sides(size: Size) -> tuple[int, int]:
    """Height and width."""
    return (size, size) if isinstance(size, int) else size


@dataclass(frozen=True)
class Stored:
    """The first stage of a view, which a cache holds. All its fields are part of the cache's key.

    The frame has the shape of what the network sees (`aspect`, height to width), its shorter side is `shorter`. `crop`
    covers the frame with the image, whose longer side may stand out. `pad` and `squash` give just the frame with the
    whole image in it. What is stored already stays as it is, so a whole view also takes images of a cache.
    """

    shorter: int
    aspect: tuple[int, int] = (1, 1)
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"

    @classmethod
    def of(cls, size: Size, shorter: int, fit: Fit, interpolation: Interpolation = "bilinear") -> "Stored":
        """The first stage of a view that ends in this size."""
        height, width = sides(size)
        common = gcd(height, width)
        return cls(shorter, (height // common, width // common), fit, interpolation)

    @property
    def frame(self) -> tuple[int, int]:
        """Height and width of the frame."""
        least = min(self.aspect)
        return round(self.shorter * self.aspect[0] / least), round(self.shorter * self.aspect[1] / least)

    def holds(self, size: Size) -> bool:
        """Whether this is the first stage for crops of this size."""
        return min(sides(size)) <= self.shorter and Stored.of(size, 1, self.fit).aspect == self.aspect

    def __call__(self, image: Tensor) -> Tensor:
        """One image as a cache holds it, or a batch, uint8 (..., C, H, W) -> (..., C, H', W')."""
        made = {"crop": covered, "pad": padded, "squash": squashed}[self.fit]
        return made(image, *self.frame, self.interpolation)


def resize_shorter(image: Tensor, shorter: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """The image with its shorter side at `shorter`, antialiased, uint8 (C, H, W) -> (C, H', W')."""
    if min(image.shape[-2:]) == shorter:
        return image
    return _resized(image, [shorter], interpolation)


def covered(image: Tensor, height: int, width: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """The image as small as it covers a frame, antialiased."""
    if height == width:
        return resize_shorter(image, height, interpolation)
    return squashed(image, *covering(image.shape[-2], image.shape[-1], height, width), interpolation)


def covering(given: int, wide: int, height: int, width: int) -> tuple[int, int]:
    """Height and width of an image, given x wide, once it covers a frame."""
    return max(height, given * width // wide), max(width, wide * height // given)


def padded(image: Tensor, height: int, width: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """The whole image in the middle of a gray frame, antialiased, (..., C, H, W) -> (..., C, height, width)."""
    if tuple(image.shape[-2:]) == (height, width):
        return image
    inner = squashed(image, *contained(image.shape[-2], image.shape[-1], height, width), interpolation)
    gray = torch.tensor(GRAY[: image.shape[-3]], dtype=image.dtype, device=image.device)[:, None, None]
    frame = gray.repeat(*image.shape[:-3], 1, height, width)
    top, left = (height - inner.shape[-2]) // 2, (width - inner.shape[-1]) // 2
    frame[..., top : top + inner.shape[-2], left : left + inner.shape[-1]] = inner
    return frame


def contained(given: int, wide: int, height: int, width: int) -> tuple[int, int]:
    """Height and width of an image, given x wide, once it fits into a frame, rounded."""
    tall, broad = (2 * given * width + wide) // (2 * wide), (2 * wide * height + given) // (2 * given)
    return max(1, min(height, tall)), max(1, min(width, broad))


def squashed(image: Tensor, height: int, width: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """The image at this height and width, whatever its shape, antialiased."""
    if tuple(image.shape[-2:]) == (height, width):
        return image
    return _resized(image, [height, width], interpolation)


def _resized(image: Tensor, size: list[int], interpolation: Interpolation) -> Tensor:
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    return functional.resize(image, size, InterpolationMode(interpolation), antialias=True)
