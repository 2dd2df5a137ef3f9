"""All pixels of a set of one size, wherever they are."""

import torch
from torch import Tensor

from isosphere.data import Images


def pixels_of(images: Images) -> Tensor:
    """Image by image, uint8 (N, C, H, W)."""
    return torch.stack([images[index].cpu() for index in range(len(images))])
