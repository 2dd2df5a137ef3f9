"""SimCLR's view of an image: crop, flip, color jitter, gray; no blur. Batched, with numbers for each image.

A sampler with `views=2` repeats each image. A number depends on the position in the global batch. So the two copies are
seen differently. Only tensors decide what is done. So a batch on a GPU is one graph that never waits for the host.
Pixels are uint8 before and after, as in the paper's code on PIL images. The crop is rounded. Colors are computed in
float32 on 0..255 and rounded once. A value is within half a gray level of torchvision's float operators on the same
crop. Where two devices round a crop differently, it is a level or two.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isosphere.errors import BadArgument

from .colors import jitter_colors, jitter_factors, to_gray
from .crops import sample_crops
from .fits import Fit, Interpolation, Size, Stored
from .transforms import TrainView, random_boxes


@dataclass(frozen=True)
class ContrastiveView:
    """A random crop to `size`, a flip, color jitter and gray: uint8 (C, H, W) -> (C, size, size).

    The image is first brought to the frame of `fits.py`. `jitter` limits the changes of brightness, contrast,
    saturation and hue. `jitter_p` and `gray_p` are how often colors are jittered and taken away. With 0 and 0 it crops
    only.
    """

    size: Size = 32
    shorter: int = 32
    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_p: float = 0.8
    gray_p: float = 0.2
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"
    draws: ClassVar[int] = TrainView.draws + 10

    def __post_init__(self) -> None:
        if not all(0 <= by <= limit for by, limit in zip(self.jitter, (1, 1, 1, 0.5), strict=True)):
            raise BadArgument("jitter", self.jitter, "three numbers from 0 to 1, and 0 to 0.5 for the hue")

    @property
    def stored(self) -> Stored:
        """The first stage."""
        return Stored.of(self.size, self.shorter, self.fit, self.interpolation)

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """One image with its numbers (draws,), or a batch (N, C, H, W) with numbers (N, draws)."""
        return self.rest(self.stored(images), numbers)

    def rest(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The same of stored images."""
        if images.ndim == 3:
            return self.rest(images[None], numbers[None])[0]
        return self.finish(self.cropped(images, numbers), numbers)

    def boxes(self, numbers: Tensor, heights: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        """Random boxes (N, 4) of stored images of these sizes, and which to mirror (N,), by numbers as in TrainView."""
        return random_boxes(self, numbers, heights, widths)

    def cropped(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Crops and flips alone, uint8 (N, C, H, W) -> (N, C, size, size)."""
        count, channels, height, width = images.shape
        first = torch.arange(count, device=images.device)
        heights, widths = torch.full_like(first, height), torch.full_like(first, width)
        boxes, flipped = self.boxes(numbers, heights, widths)
        buffer = images.permute(0, 2, 3, 1).reshape(-1, channels)  # (N H W, C)
        return sample_crops(buffer, first * (height * width), widths, boxes, flipped, self.size)

    def finish(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The colors alone, uint8 (N, C, H, W) -> the same, from the numbers that TrainView leaves over."""
        if self.jitter_p == 0 and self.gray_p == 0:
            return images
        jittered, factors, keys, grayed = numbers[:, TrainView.draws :].split((1, 4, 4, 1), dim=1)
        pixels = images.to(torch.float32, memory_format=torch.contiguous_format)
        if self.jitter_p > 0:
            changed = jitter_colors(pixels, keys, jitter_factors(factors, self.jitter))
            pixels = torch.where((jittered < self.jitter_p)[..., None, None], changed, pixels)
        if self.gray_p > 0:
            pixels = torch.where((grayed < self.gray_p)[..., None, None], to_gray(pixels), pixels)
        return pixels.round().to(torch.uint8)
