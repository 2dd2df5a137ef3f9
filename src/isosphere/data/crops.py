"""Crops of many images at once, out of one flat buffer of pixels, on any device."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .fits import Size, sides

CHUNK = 128  # images cropped at once, which bounds the memory of the gather's indices


def sample_crops(buffer: Tensor, starts: Tensor, widths: Tensor, boxes: Tensor, flipped: Tensor, size: Size) -> Tensor:
    """Boxes (N, 4) of images at these starts in the buffer (P, 3), bilinear, no antialiasing -> (N, 3, S, S)."""
    top, left, height, width = boxes.T[:, :, None]  # (N, 1) each
    high, wide = sides(size)
    lines, columns = (torch.arange(side, device=buffer.device).expand(len(boxes), side) for side in (high, wide))
    columns = torch.where(flipped[:, None], wide - 1 - columns, columns)
    above, below, down = _taps(lines, height, high)  # (N, S) each
    before, after, right = _taps(columns, width, wide)
    rows = [(starts[:, None] + (top + row) * widths[:, None])[:, :, None] for row in (above, below)]
    across = [(left + column)[:, None, :] for column in (before, after)]
    right, down = right[:, None, :, None], down[:, :, None, None]
    upper, lower = (
        torch.lerp(buffer[row + across[0]].float(), buffer[row + across[1]].float(), right) for row in rows
    )  # (N, S, S, 3)
    return torch.lerp(upper, lower, down).round().to(torch.uint8).permute(0, 3, 1, 2)


@cache
def compiled_crops() -> Callable[..., Tensor]:
    """`sample_crops` in one compiled kernel."""
    return torch.compile(sample_crops)


def _taps(places: Tensor, lengths: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For output places (N, S) over these lengths (N, 1): two input places, and the weight of the second."""
    exact = ((places + 0.5) * (lengths / size) - 0.5).clamp(min=0)
    first = torch.minimum(exact.long(), lengths - 1)
    return first, torch.minimum(first + 1, lengths - 1), exact - first
