"""Cosines of positive and negative pairs of test images and their difference over all triplets (Fig. 5b-d).

All pairs and all triplets count, none is sampled. Neither N x N cosines nor a triplet is ever held. The share of
violated triplets is exact. The difference is a convolution. Each anchor's positives and negatives are counted in cells
of 0.001. The Fourier transforms of these counts are multiplied and added up, so a difference is right to 0.001.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import Gallery
from isosphere.recipes import labels as words
from isosphere.report import style
from isosphere.report.records import embedded, read_folders

CELLS = 2000  # of 0.001 in [-1, 1]
JOINED = 20  # cells to a bin that is drawn
EDGES = np.linspace(-1, 1, CELLS // JOINED + 1)
DIFFERENCE_EDGES = np.linspace(-2, 2, 2 * CELLS // JOINED + 1)


@dataclass(frozen=True)
class PairCosines:
    """Counts of ordered pairs between `EDGES`, of triplets between `DIFFERENCE_EDGES`, and shares of triplets."""

    positives: np.ndarray  # (100,) of cos_ap
    negatives: np.ndarray  # (100,) of cos_an
    differences: np.ndarray  # (200,) of cos_ap - cos_an
    violated: float  # with cos_ap < cos_an
    tied: float  # with cos_ap = cos_an; a collapsed model violates none and ties all


def pair_cosines(embeddings: np.ndarray, labels: np.ndarray) -> PairCosines:
    """Distributions over all pairs and triplets of embeddings (N, D) with labels (N,)."""
    gallery = Gallery(torch.from_numpy(embeddings), torch.from_numpy(labels))
    total, negative_counts = len(labels), len(labels) - 1 - gallery.counts
    counts = torch.zeros(2, CELLS, dtype=torch.int64)
    spectrum = torch.zeros(CELLS + 1, dtype=torch.complex128)
    violated = tied = 0
    for rows, positives, negatives in gallery.blocks():
        for scores in (positives, negatives):
            scores.numpy().sort(axis=1)  # numpy's is several times as fast as torch's on a CPU; -inf comes first
        cells = _counts(positives, gallery.counts[rows]), _counts(negatives, negative_counts[rows])
        counts += torch.stack([its.sum(0) for its in cells])
        waves = [torch.fft.rfft(its.double(), 2 * CELLS) for its in cells]
        spectrum += (waves[0] * waves[1].conj()).sum(0)
        real = positives > -torch.inf
        above = total - torch.searchsorted(negatives, positives, right=True)
        not_below = total - torch.searchsorted(negatives, positives)
        violated += int((above * real).sum())
        tied += int(((not_below - above) * real).sum())
    triplets = int((gallery.counts * negative_counts).sum())
    if triplets == 0:
        raise BadArgument("labels", len(np.unique(labels)), "of two classes or more, one of them with two images")
    # Place k of the inverse is difference k, or k - 2 CELLS from the middle on; rolled, the smallest stands first.
    differences = torch.fft.irfft(spectrum, 2 * CELLS).round().long().roll(CELLS)
    joined = [its.numpy().reshape(-1, JOINED).sum(1) for its in (*counts, differences)]
    positives, negatives, differences = joined
    return PairCosines(positives, negatives, differences, violated / triplets, tied / triplets)


def _counts(ordered: Tensor, real: Tensor) -> Tensor:
    """How many cosines of each sorted row lie in each cell, (B, M) -> (B, CELLS). `real` (B,) of a row are not -inf."""
    inner = torch.linspace(-1, 1, CELLS + 1, dtype=torch.float64)[1:-1].to(ordered)
    below = torch.searchsorted(ordered, inner.expand(len(ordered), -1).contiguous())
    every = torch.full_like(real, ordered.shape[1])
    return torch.cat([(every - real)[:, None], below, every[:, None]], dim=1).diff(dim=1)


def cosines(runs: list[Path], out: Path) -> list[Path]:
    """Draw positive and negative pairs of every run, and the differences of all in the last panel."""
    folders = read_folders(runs)
    recipes = [run.values for run in folders]
    found = [pair_cosines(embedded(run).embeddings, embedded(run).labels) for run in folders]
    names = words.labels(recipes, [run.name for run in folders])
    styles = style.styles_of(names, recipes)
    title = f"Cosines of pairs of test images\n{words.about(recipes)}"
    rows, columns = style.rows_of(len(runs) + 1, 3)
    with style.sheet(out, title, rows, columns, size=(4.4, 3.4)) as (_, panels):
        for panel, name, its in zip(panels, names, found, strict=False):
            kinds = (
                (its.positives, style.GREEN, "-", "positive pairs"),
                (its.negatives, style.PURPLE, "--", "negative"),
            )
            for counts, color, line, kind in kinds:
                legend = f"{kind}: mean {_mean(counts, EDGES):.3f}"
                style.distribution(panel, _density(counts, EDGES), EDGES, color, line, legend)
            panel.set_xlabel("cosine of a pair")
            panel.set_ylabel("density")
            style.legend_above(panel, name)
        last = panels[len(runs)]
        for name, its in zip(names, found, strict=True):
            ties = f", {its.tied:.1%} tied" if its.tied > 5e-4 else ""
            legend = f"{name}: {its.violated:.2%} violated{ties}"
            density = _density(its.differences, DIFFERENCE_EDGES)
            style.distribution(last, density, DIFFERENCE_EDGES, *styles[name], legend)
        last.axvline(0, color=style.GRAY, linewidth=1)
        last.set_xlabel("cos θ(a, p) − cos θ(a, n) of a triplet")
        last.set_ylabel("density")
        style.legend_above(last, "difference; violated: below 0")
        top = max(panel.get_ylim()[1] for panel in panels[: len(runs)])
        for panel in panels[: len(runs)]:  # one scale, so that spreads compare by eye
            panel.set_ylim(0, top)
        style.narrow(panels[: len(runs)], [counts for its in found for counts in (its.positives, its.negatives)], EDGES)
        style.narrow([last], [its.differences for its in found], DIFFERENCE_EDGES)
        for panel in panels[len(runs) + 1 :]:
            panel.set_axis_off()
    return style.files(out)


def _density(counts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return counts / (counts.sum() * np.diff(edges))


def _mean(counts: np.ndarray, edges: np.ndarray) -> float:
    return float((counts * (edges[:-1] + edges[1:]) / 2).sum() / counts.sum())
