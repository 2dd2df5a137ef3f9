"""What images look like in 128 bits, and which of two sets look nearly the same.

A look says for a grid of 9 x 9 cells whether each is brighter than its neighbor, to the right and below (a difference
hash in both directions). Images that were saved again, resized or brightened keep nearly all bits, cropped ones do not.
Among 12,936 persons, 3,695 pets and 2,730 flowers no two images of different classes were within 10 bits, but for one
flower that is there twice.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

SIDE = 9  # cells
FINE = 8 * SIDE  # of the shorter side: more pixels change no bit, and take time
BITS, WORDS = 2 * (SIDE - 1) ** 2, 2
NEAR = 7  # bits in which two looks may differ
SHARE = 5  # one in so many of an image's rarer bits may, so that plain backgrounds do not look alike
PAIRS = 1 << 21  # that are compared at once
ONES = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def look(image: Tensor) -> Tensor:
    """The look of an image, uint8 (C, H, W) -> int64 (2,)."""
    from torchvision.transforms.v2 import functional

    step = max(1, min(image.shape[-2:]) // FINE)
    cells = functional.resize(image[:, ::step, ::step].contiguous(), [SIDE, SIDE], antialias=True).float().mean(0)
    right, down = cells[:-1, 1:] > cells[:-1, :-1], cells[1:, :-1] > cells[:-1, :-1]
    packed = np.packbits(torch.cat([right.flatten(), down.flatten()]).numpy())
    return torch.from_numpy(packed.view("<i8").copy())


def alike(looks: Tensor, others: Tensor) -> dict[int, int]:
    """Which looks (N, 2) are near one of the others (M, 2), and which one is nearest: {row: other row}.

    Looks with few bits of a kind say little, so they must be nearer; a plain image is like none. Two looks that differ
    in less than 8 bits share one of their 8 words of 16 bits, so only pairs that share one are compared.
    """
    ours, theirs = _Words.of(looks), _Words.of(others)
    best: dict[int, tuple[int, int]] = {}
    for word in range(ours.words.shape[1]):
        for rows, columns in _sharing(ours.words[:, word], theirs.words[:, word]):
            turned = ours.words[rows] ^ theirs.words[columns]
            differ = ONES[turned.view(np.uint8)].sum(1)
            near = np.flatnonzero(differ <= np.minimum(ours.limits[rows], theirs.limits[columns]))
            found = np.stack([ours.rows[rows[near]], differ[near].astype(np.int64), theirs.rows[columns[near]]], 1)
            for row, distance, other in found.tolist():
                best[row] = min(best.get(row, (distance, other)), (distance, other))
    return {row: best[row][1] for row in sorted(best)}


class _Words(NamedTuple):
    """Looks that are not plain: their rows, 8 words each, and how many bits of each may differ."""

    rows: np.ndarray
    words: np.ndarray
    limits: np.ndarray

    @classmethod
    def of(cls, looks: Tensor) -> "_Words":
        words = np.ascontiguousarray(looks.cpu().numpy()).view(np.uint16)
        ones = ONES[words.view(np.uint8)].sum(1, dtype=np.int64)
        rare = np.minimum(ones, BITS - ones)
        rows = np.flatnonzero(rare > NEAR)
        return cls(rows, words[rows], np.minimum(rare[rows] // SHARE, NEAR))


def _sharing(ours: np.ndarray, theirs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places of all pairs of equal words of (N,) and (M,), some millions at a time."""
    order = theirs.argsort(kind="stable")
    first = np.searchsorted(theirs[order], ours)
    counts = np.searchsorted(theirs[order], ours, side="right") - first
    ends = counts.cumsum()
    begin = 0
    while begin < len(ours):
        end = max(begin + 1, int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + PAIRS, side="right")))
        its = counts[begin:end]
        rows = np.repeat(np.arange(begin, end), its)
        within = np.arange(len(rows)) - np.repeat(its.cumsum() - its, its)
        yield rows, order[np.repeat(first[begin:end], its) + within]
        begin = end
