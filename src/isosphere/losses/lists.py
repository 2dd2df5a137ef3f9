"""Losses that set all positives of an anchor against all its negatives: circle, lifted structure and ranked list.

Each is a function of a block of cosines (R, N) with masks, as in `pairs.py`. An anchor counts if it has both kinds.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .checks import check_numbers, check_positive
from .slopes import log_sum_exp, over_pairs


def chords(cosines: Tensor) -> tuple[Tensor, Tensor]:
    """Distances sqrt(2 - 2 S) and their slopes -1 / distance, 0 where two directions are one."""
    squares = (2 - 2 * cosines).clamp(min=0)
    least = 4 * torch.finfo(cosines.dtype).eps  # what rounding makes of equal directions
    apart = squares > least
    distances = torch.where(apart, squares, 1.0).sqrt()
    return torch.where(apart, distances, 0.0), torch.where(apart, -1 / distances, 0.0)


def _both(positive: Tensor, negative: Tensor) -> Tensor:
    """Which anchors have both kinds of pairs, (R, 1)."""
    return positive.any(1, keepdim=True) & negative.any(1, keepdim=True)


def _circle(
    cosines: Tensor, positive: Tensor, negative: Tensor, margin: float, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """softplus of two log-sums; a pair's weight is its distance from the optimum, taken as a constant."""
    counted = _both(positive, negative)
    pull = scale * (1 + margin - cosines).clamp(min=0)
    push = scale * (cosines + margin).clamp(min=0)
    near, pulls = log_sum_exp(-pull * (cosines - (1 - margin)), positive)
    far, pushes = log_sum_exp(push * (cosines - margin), negative)
    gap = near + far
    slopes = torch.where(counted, torch.sigmoid(gap), 0) * (pushes * push - pulls * pull)
    return torch.where(counted, F.softplus(gap), 0).sum(), slopes, counted.sum()


def _lifted(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """A hinge over log-sums: the farthest positives plus margin, less the nearest negatives."""
    counted = _both(positive, negative)
    distances, by_cosine = chords(cosines)
    far, pulls = log_sum_exp(distances, positive)
    near, pushes = log_sum_exp(margin - distances, negative)
    gap = far + near
    active = counted & (gap > 0)
    slopes = torch.where(active, (pulls - pushes) * by_cosine, 0)
    return torch.where(active, gap, 0).sum(), slopes, counted.sum()


def _ranked_list(
    cosines: Tensor, positive: Tensor, negative: Tensor, margin: float, boundary: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Positives are pulled within boundary - margin, negatives pushed beyond the boundary, the nearest most."""
    counted = _both(positive, negative)
    distances, by_cosine = chords(cosines)
    outside = torch.where(positive & counted, (distances - (boundary - margin)).clamp(min=0), 0)
    far = (outside > 0).to(cosines.dtype)
    share = far / far.sum(1, keepdim=True).clamp(min=1)
    inside = torch.where(negative & counted, (boundary - distances).clamp(min=0), 0)
    _, weights = log_sum_exp(temperature * inside, inside > 0)
    weights = torch.where(inside > 0, weights, 0)
    slopes = (share - weights) * by_cosine
    return (share * outside + weights * inside).sum(), slopes, counted.sum()


def circle(
    embeddings: Tensor, labels: Tensor, margin: float = 0.4, scale: float = 80.0, anchors: slice | None = None
) -> Tensor:
    """Circle loss (Sun et al., CVPR 2020), mean over anchors with both kinds of pairs; (N, D), (N,) -> scalar."""
    check_positive(scale=scale)
    check_numbers(0, 1, margin=margin)
    return over_pairs(embeddings, labels, partial(_circle, margin=margin, scale=scale), anchors=anchors)


def lifted_structure(embeddings: Tensor, labels: Tensor, margin: float = 1.0, anchors: slice | None = None) -> Tensor:
    """Lifted structure loss, generalized by Hermans et al. (2017), on distances of directions; -> scalar."""
    check_numbers(0, margin=margin)
    return over_pairs(embeddings, labels, partial(_lifted, margin=margin), anchors=anchors)


def ranked_list(
    embeddings: Tensor,
    labels: Tensor,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    anchors: slice | None = None,
) -> Tensor:
    """Ranked list loss (Wang et al., CVPR 2019), mean over anchors with both kinds of pairs; -> scalar.

    Weights of negatives, exp(temperature * violation), are constants for the gradient.
    """
    check_numbers(0, margin=margin)
    check_positive(boundary=boundary, temperature=temperature)
    rows = partial(_ranked_list, margin=margin, boundary=boundary, temperature=temperature)
    return over_pairs(embeddings, labels, rows, anchors=anchors)


class CircleLoss(nn.Module):
    """`circle` as a criterion."""

    def __init__(self, margin: float = 0.4, scale: float = 80.0) -> None:
        super().__init__()
        check_positive(scale=scale)
        check_numbers(0, 1, margin=margin)
        self.margin, self.scale = margin, scale

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return circle(embeddings, labels, self.margin, self.scale, anchors)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, scale={self.scale}"


class LiftedStructureLoss(nn.Module):
    """`lifted_structure` as a criterion."""

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        check_numbers(0, margin=margin)
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return lifted_structure(embeddings, labels, self.margin, anchors)

    def extra_repr(self) -> str:
        return f"margin={self.margin}"


class RankedListLoss(nn.Module):
    """`ranked_list` as a criterion."""

    def __init__(self, margin: float = 0.4, boundary: float = 1.2, temperature: float = 10.0) -> None:
        super().__init__()
        check_numbers(0, margin=margin)
        check_positive(boundary=boundary, temperature=temperature)
        self.margin, self.boundary, self.temperature = margin, boundary, temperature

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return ranked_list(embeddings, labels, self.margin, self.boundary, self.temperature, anchors)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, boundary={self.boundary}, temperature={self.temperature}"
