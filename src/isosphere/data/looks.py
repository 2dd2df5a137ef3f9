"""What images look like in 128 bits, and which of two sets look nearly the same.

A look says for a grid of 9 x 9 cells whether each is brighter than its neighbor, to the right and below (a difference
hash in both directions). Images that were saved again, resized or brightened keep nearly all bits, cropped ones do not.
Among 12,936 persons, 3,695 pets and 2,730 flowers no two images of different classes were within 10 bits, but for one
flower that is there twice.
"""

import numpy as np
import torch
from torch import Tensor

SIDE = 9  # cells
FINE = 8 * SIDE  # of the shorter side: more pixels change no bit, and take time
BITS, WORDS = 2 * (SIDE - 1) ** 2, 2
NEAR = 8  # bits in which two looks may differ
SHARE = 5  # one in so many of an image's rarer bits may, so that plain backgrounds do not look alike
BLOCK = 2048  # looks that are compared with all others at once


def look(image: Tensor) -> Tensor:
    """The look of an image, uint8 (C, H, W) -> int64 (2,)."""
    from torchvision.transforms.v2 import functional

    step = max(1, min(image.shape[-2:]) // FINE)
    cells = functional.resize(image[:, ::step, ::step].contiguous(), [SIDE, SIDE], antialias=True).float().mean(0)
    right, down = cells[:-1, 1:] > cells[:-1, :-1], cells[1:, :-1] > cells[:-1, :-1]
    packed = np.packbits(torch.cat([right.flatten(), down.flatten()]).numpy())
    return torch.from_numpy(packed.view("<i8").copy())


def alike(looks: Tensor, others: Tensor, device: torch.device | str = "cpu") -> dict[int, int]:
    """Which looks (N, 2) are near one of the others (M, 2), and which one is nearest: {row: other row}.

    Looks with few bits of a kind say little, so they must be nearer; a plain image is like none.
    """
    found: dict[int, int] = {}
    if not len(looks) or not len(others):
        return found
    signs, theirs = _signs(looks).to(device), _signs(others).to(device)
    limits, their_limits = _limits(signs), _limits(theirs)
    for start in range(0, len(signs), BLOCK):
        rows = signs[start : start + BLOCK]
        differ = (BITS - rows @ theirs.T) / 2  # exact: whole numbers, far below 2^24
        near = differ <= torch.minimum(limits[start : start + BLOCK, None], their_limits)
        for row in near.any(1).nonzero().flatten().tolist():
            found[start + row] = int(torch.where(near[row], differ[row], BITS).argmin())
    return found


def _signs(looks: Tensor) -> Tensor:
    """The bits of looks (N, 2) as 1 and -1, float32 (N, 128)."""
    bits = np.unpackbits(np.ascontiguousarray(looks.numpy()).view(np.uint8), axis=1)
    return torch.from_numpy(bits.astype(np.float32) * 2 - 1)


def _limits(signs: Tensor) -> Tensor:
    """In how many bits another look may differ, (N,); of a plain image not even in none."""
    ones = (signs > 0).sum(1)
    rare = torch.minimum(ones, BITS - ones)
    return torch.where(rare < NEAR, -1, (rare // SHARE).clamp(max=NEAR))
