"""Losses that set one positive pair against all negatives of its anchor: tuplet margin, decoupled contrastive."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .checks import check_numbers, check_positive
from .slopes import log_sum_exp, over_pairs


def _tuplet_margin(
    cosines: Tensor, positive: Tensor, negative: Tensor, margin: float, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """log(1 + sum over negatives of exp(scale (S_an - cos(angle_ap - margin)))) for each positive pair."""
    sines = (1 - cosines.square()).clamp(min=0).sqrt()
    turned = cosines * math.cos(margin) + sines * math.sin(margin)
    steep = sines > 4 * torch.finfo(cosines.dtype).eps ** 0.5  # at cosine 1 the root's slope is infinite: taken as 0
    by_cosine = math.cos(margin) - math.sin(margin) * torch.where(steep, cosines / torch.where(steep, sines, 1.0), 0)
    total, shares = log_sum_exp(scale * cosines, negative)
    gaps = total - scale * turned
    counted = positive & negative.any(1, keepdim=True)
    pulls = scale * torch.where(counted, torch.sigmoid(gaps), 0)
    slopes = shares * pulls.sum(1, keepdim=True) - pulls * by_cosine
    return torch.where(counted, F.softplus(gaps), 0).sum(), slopes, counted.sum()


def _decoupled(
    cosines: Tensor, positive: Tensor, negative: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """log(sum over negatives of exp(S_an / temperature)) - S_ap / temperature for each positive pair."""
    logits = cosines / temperature
    total, shares = log_sum_exp(logits, negative)
    counted = positive & negative.any(1, keepdim=True)
    pairs = counted.to(cosines.dtype)
    slopes = (shares * pairs.sum(1, keepdim=True) - pairs) / temperature
    return torch.where(counted, total - logits, 0).sum(), slopes, counted.sum()


def tuplet_margin(
    embeddings: Tensor, labels: Tensor, margin: float = 0.1, scale: float = 64.0, anchors: slice | None = None
) -> Tensor:
    """Tuplet margin loss (Yu and Tao, ICCV 2019), mean over positive pairs; the margin is an angle in radians."""
    check_positive(scale=scale)
    check_numbers(0, math.pi / 2, margin=margin)
    return over_pairs(embeddings, labels, partial(_tuplet_margin, margin=margin, scale=scale), anchors=anchors)


def decoupled_contrastive(
    embeddings: Tensor, labels: Tensor, temperature: float = 0.1, anchors: slice | None = None
) -> Tensor:
    """Decoupled contrastive loss (Yeh et al., ECCV 2022): the positive is not in the denominator; -> scalar.

    It has no lower bound at 0. The mean is over positive pairs whose anchor has a negative.
    """
    check_positive(temperature=temperature)
    return over_pairs(embeddings, labels, partial(_decoupled, temperature=temperature), anchors=anchors)


class TupletMarginLoss(nn.Module):
    """`tuplet_margin` as a criterion."""

    def __init__(self, margin: float = 0.1, scale: float = 64.0) -> None:
        super().__init__()
        check_positive(scale=scale)
        check_numbers(0, math.pi / 2, margin=margin)
        self.margin, self.scale = margin, scale

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return tuplet_margin(embeddings, labels, self.margin, self.scale, anchors)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, scale={self.scale}"


class DecoupledContrastiveLoss(nn.Module):
    """`decoupled_contrastive` as a criterion."""

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        check_positive(temperature=temperature)
        self.temperature = temperature

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return decoupled_contrastive(embeddings, labels, self.temperature, anchors)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"
