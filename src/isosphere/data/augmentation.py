"""What is done to a batch of crops before it is trained on, on the device: RandAugment, color jitter, erasing."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from . import erasing as boxes
from . import randaugment as policy
from .colors import Limits, jitter_colors, jitter_factors

AFTER_VIEWS = 1024  # draw of a step's random numbers at which these begin: views use the ones before
DRAWS = policy.DRAWS, 8, boxes.DRAWS  # of RandAugment, jitter and erasing


@dataclass(frozen=True)
class Augmentation:
    """Uint8 images (N, 3, H, W) -> the same, each by numbers of its own from (seed, step, position in the batch).

    `fill` is the color that stands for nothing: the mean that the network subtracts.
    """

    randaugment: int = 0
    jitter: Limits = (0.0, 0.0, 0.0, 0.0)
    erasing: float = 0.0
    fill: tuple[int, int, int] = (124, 116, 104)
    draws: ClassVar[int] = sum(DRAWS)

    @property
    def active(self) -> bool:
        """Whether anything is done at all."""
        return bool(self.randaugment or any(self.jitter) or self.erasing)

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """A batch with its numbers (N, draws)."""
        of_augment, of_jitter, of_erasing = numbers.split(DRAWS, dim=1)
        if self.randaugment:
            images = policy.rand_augment(images, of_augment, self.randaugment)
        if any(self.jitter):
            factors, keys = jitter_factors(of_jitter[:, :4], self.jitter), of_jitter[:, 4:]
            pixels = images.to(torch.float32, memory_format=torch.contiguous_format)
            images = jitter_colors(pixels, keys, factors).round().to(torch.uint8)
        if self.erasing:
            images = boxes.erase(images, of_erasing, self.erasing, self.fill)
        return images
