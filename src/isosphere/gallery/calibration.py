"""From which cosine on two images show the same: thresholds, and how often they are wrong on classes not used for them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from isosphere.errors import TooFewClasses
from isosphere.metrics.nearest import block_shape, products

from .gallery import Gallery

BINS = 4000  # of cosines, from -1 to 1
MOST = 10_000  # images of a half, whole classes drawn at random
RATES = (0.1, 0.01, 0.001, 0.0001)
FEWEST = 10  # false accepts that a rate is measured by; with fewer it is noise
EDGES = np.linspace(-1, 1, BINS + 1)


@dataclass(frozen=True)
class Pairs:
    """How many pairs of the same class and of two classes have a cosine in each bin, (BINS,) each."""

    same: np.ndarray
    different: np.ndarray

    def __add__(self, other: "Pairs") -> "Pairs":
        return Pairs(self.same + other.same, self.different + other.different)

    def rates(self, threshold: float) -> tuple[float, float]:
        """Shares of false accepts (of two classes, at or above the threshold) and false rejects (of one, below)."""
        place = int(np.searchsorted(EDGES[:-1], threshold - 1e-12))
        return (
            float(self.different[place:].sum() / self.different.sum()),
            float(self.same[:place].sum() / self.same.sum()),
        )

    def threshold(self, rate: float) -> float:
        """The lowest threshold with at most this share of false accepts."""
        above = self.different[::-1].cumsum()[::-1] / self.different.sum()
        return float(EDGES[:-1][np.argmax(above <= rate)]) if (above <= rate).any() else 1.0

    def equal(self) -> float:
        """The threshold at which both kinds of errors are most nearly equally frequent."""
        accepts = self.different[::-1].cumsum()[::-1] / self.different.sum()
        rejects = (self.same.cumsum() - self.same) / self.same.sum()
        return float(EDGES[:-1][np.abs(accepts - rejects).argmin()])


@dataclass(frozen=True)
class Operating:
    """A threshold of all pairs, and its errors as means of two halves, each judged by the other half's threshold.

    `wanted` is the share of false accepts that it was chosen for, None for equal errors. `spread` has the false accepts
    and false rejects of both halves.
    """

    wanted: float | None
    threshold: float
    accepts: float
    rejects: float
    spread: tuple[tuple[float, float], tuple[float, float]]


def calibrate(
    gallery: Gallery, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> tuple[list[Operating], Pairs]:
    """Thresholds for equal errors and for some shares of false accepts, and the counts of all pairs.

    Classes are split in two halves. A threshold is chosen on each half and judged on the other one.
    """
    sizes = np.bincount(gallery.codes, minlength=len(gallery.classes))
    pairs = np.flatnonzero(sizes > 1)
    if len(pairs) < 4:
        raise TooFewClasses(str(gallery.folder), "calibrate", len(pairs), 4)
    order = np.random.default_rng(seed).permutation(len(sizes))
    # Classes of two images or more are dealt out first, so that both halves have pairs of both kinds.
    order = order[np.argsort(sizes[order] < 2, kind="stable")]
    halves = [_counted(gallery, order[half::2], progress, half) for half in (0, 1)]
    total = halves[0] + halves[1]
    found = [_operating(None, total, halves)]
    for rate in RATES:
        if all(rate * one.different.sum() >= FEWEST for one in halves):
            found.append(_operating(rate, total, halves))
    return found, total


def _operating(rate: float | None, total: Pairs, halves: list[Pairs]) -> Operating:
    def chosen(pairs: Pairs) -> float:
        return pairs.equal() if rate is None else pairs.threshold(rate)

    one, other = (halves[half].rates(chosen(halves[1 - half])) for half in (0, 1))
    accepts, rejects = (float(np.mean(its)) for its in zip(one, other, strict=True))
    spread = (one[0], other[0]), (one[1], other[1])
    return Operating(rate, chosen(total), accepts, rejects, spread)


def _counted(
    gallery: Gallery, classes: np.ndarray, progress: Callable[[int, int], None] | None, half: int
) -> Pairs:
    """All pairs of the images of these classes, or of the first of them that are enough."""
    sizes = np.bincount(gallery.codes, minlength=len(gallery.classes))[classes]
    kept = classes[: max(2, int(np.searchsorted(sizes.cumsum(), MOST)) + 1)]
    rows = torch.from_numpy(np.flatnonzero(np.isin(gallery.codes, kept)))
    device = gallery.torch_device
    unit = gallery.vectors[rows].to(device)
    codes = torch.from_numpy(gallery.codes)[rows].to(device)
    step = min(block_shape(device))
    counts = torch.zeros(2, BINS, dtype=torch.int64)
    for start in range(0, len(rows), step):
        for other in range(start, len(rows), step):
            one, two = slice(start, start + step), slice(other, other + step)
            bins = ((products(unit[one], unit[two]) + 1) * (BINS / 2)).long().clamp_(0, BINS - 1)
            bins += BINS * (codes[one, None] != codes[None, two])
            bins = bins[torch.ones_like(bins, dtype=torch.bool).triu(1)] if other == start else bins.flatten()
            counts += bins.bincount(minlength=2 * BINS).view(2, BINS).cpu()
        if progress is not None:
            progress(half * len(rows) + min(start + step, len(rows)), 2 * len(rows))
    same, different = counts.numpy()
    return Pairs(same, different)
