"""Random erasing: a box of each image is filled, as torchvision's RandomErasing does it, a batch at once."""

import math

import torch
from torch import Tensor

ATTEMPTS = 10
DRAWS = 2 * ATTEMPTS + 3
AREA, ASPECT = (0.02, 0.33), (0.3, 3.3)


def erase_boxes(numbers: Tensor, height: int, width: int) -> Tensor:
    """Boxes (top, left, height, width), long (N, 4), by numbers (N, DRAWS - 1); empty where ten attempts fail."""
    numbers = numbers.double()
    area = (AREA[0] + (AREA[1] - AREA[0]) * numbers[:, :ATTEMPTS]) * height * width
    low, high = math.log(ASPECT[0]), math.log(ASPECT[1])
    aspect = (low + (high - low) * numbers[:, ATTEMPTS : 2 * ATTEMPTS]).exp()
    sides = torch.stack([(area * aspect).sqrt().round(), (area / aspect).sqrt().round()], 2)  # (N, ATTEMPTS, 2)
    fits = (sides[..., 0] < height) & (sides[..., 1] < width)
    chosen = fits.to(torch.uint8).argmax(1)[:, None, None].expand(-1, 1, 2)
    sides = torch.where(fits.any(1, keepdim=True), sides.gather(1, chosen)[:, 0], 0)
    spare = torch.stack([height - sides[:, 0], width - sides[:, 1]], 1)
    return torch.cat([(numbers[:, -2:] * (spare + 1)).floor(), sides], 1).long()


def erase(images: Tensor, numbers: Tensor, share: float, fill: tuple[int, ...]) -> Tensor:
    """This share of the images with a box of the color `fill`, uint8 (N, C, H, W) with numbers (N, DRAWS)."""
    height, width = images.shape[2:]
    top, left, rows, columns = erase_boxes(numbers[:, 1:], height, width).T[:, :, None]  # (N, 1) each
    down, right = (torch.arange(side, device=images.device) for side in (height, width))
    in_rows, in_columns = (down >= top) & (down < top + rows), (right >= left) & (right < left + columns)
    inside = in_rows[:, :, None] & in_columns[:, None, :] & (numbers[:, :1] < share)[..., None]  # (N, H, W)
    color = torch.cat([images.new_full((1, 1, 1, 1), level) for level in fill], 1)  # which waits for no GPU
    return torch.where(inside[:, None], color, images)
