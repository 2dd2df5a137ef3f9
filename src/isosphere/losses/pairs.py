"""Losses over the pairs of a batch: triplet, semi-hard triplet, N-pair, multi-similarity and contrastive.

Each is a function of a block of cosines (R, N) and the masks of its positive and negative pairs, which returns the
sum of the loss, its slopes dL/dS (phi of Eq. 4) and the number of terms. Raw embeddings go in; any number a class.
Labels are class numbers (N,), or multi-hot (N, C), where two samples are positive if they share one. `anchors` is a
slice of the rows that are compared with all, by default every row; the others are only compared with.
"""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from isosphere.errors import BadArgument

from .checks import check_numbers, check_positive
from .slopes import log1p_sum_exp, log_sum_exp, over_pairs


def _triplet(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """A triplet is active where S_an > S_ap - margin / 2: sort both sides of this together and count.

    A negative pushes once for each positive sorted before it, a positive pulls once for each negative after it; pairs
    that are neither come first and count nothing. No triplet is ever formed.
    """
    keys = torch.where(positive, cosines - margin / 2, cosines)
    keys = torch.where(positive | negative, keys, torch.finfo(keys.dtype).min)
    keys, order = keys.sort(dim=1)
    is_positive = positive.gather(1, order)
    before = is_positive.cumsum(1, dtype=torch.int32)  # int: float sums along a row are not deterministic on CUDA
    positives = before[:, -1:]
    after = torch.arange(keys.shape[1] - 1, -1, -1, dtype=torch.int32, device=keys.device)
    counts = torch.where(is_positive, (positives - before) - after, before).to(keys.dtype)
    slopes = torch.empty_like(counts).scatter_(1, order, 2 * counts)
    return 2 * (counts * keys).sum(), slopes, (positives * negative.sum(1, keepdim=True)).sum()


def _semihard(cosines: Tensor, positive: Tensor, negative: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each positive pair the nearest negative farther than the positive, else the farthest; one hinge a pair."""
    ordered, order = torch.where(negative, cosines, torch.finfo(cosines.dtype).max).sort(dim=1)
    chosen = (torch.searchsorted(ordered, cosines) - 1).clamp(min=0)  # the largest S_an < S_ap, else the smallest
    violations = margin + 2 * (ordered.gather(1, chosen) - cosines)
    active = positive & negative.any(1, keepdim=True) & (violations > 0)
    pulls = 2 * active.to(cosines.dtype)
    slopes = (-pulls).scatter_add_(1, order.gather(1, chosen), pulls)
    return torch.where(active, violations, 0).sum(), slopes, positive.sum()


def _npair(cosines: Tensor, positive: Tensor, negative: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 3 for each positive pair: log(1 + sum over negatives of exp(scale (S_an - S_ap)))."""
    logits = scale * cosines
    total, shares = log_sum_exp(logits, negative)
    gaps = total - logits
    pulls = scale * torch.where(positive, torch.sigmoid(gaps), 0)
    slopes = shares * pulls.sum(1, keepdim=True) - pulls
    return -torch.where(positive, F.logsigmoid(-gaps), 0).sum(), slopes, positive.sum()


def _multi_similarity(
    cosines: Tensor, positive: Tensor, negative: Tensor, alpha: float, beta: float, base: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs harder than the hardest of the other kind less epsilon, weighed by two soft sums around base."""
    limits = torch.finfo(cosines.dtype)
    positives = torch.where(positive, cosines, limits.max)
    negatives = torch.where(negative, cosines, limits.min)
    hard_positive = positives < negatives.amax(1, keepdim=True) + epsilon
    hard_negative = negatives > positives.amin(1, keepdim=True) - epsilon
    pull, pulls = log1p_sum_exp(-alpha * cosines, hard_positive, alpha * base)
    push, pushes = log1p_sum_exp(beta * cosines, hard_negative, -beta * base)
    return (pull / alpha + push / beta).sum(), pushes - pulls, cosines.new_full((), len(cosines))


def _contrastive(
    cosines: Tensor, positive: Tensor, negative: Tensor, positive_margin: float, negative_margin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Hinges of the single pairs: positive_margin - S_ap and S_an - negative_margin."""
    pulls = (positive & (cosines < positive_margin)).to(cosines.dtype)  # a float times a sum of bools were float32
    pushes = (negative & (cosines > negative_margin)).to(cosines.dtype)
    slopes = pushes - pulls
    value = (slopes * cosines).sum() + positive_margin * pulls.sum() - negative_margin * pushes.sum()
    return value, slopes, cosines.new_full((), len(cosines))


def triplet(embeddings: Tensor, labels: Tensor, margin: float = 1.0, anchors: slice | None = None) -> Tensor:
    """Mean of `max(d_ap - d_an + margin, 0)` over all triplets, d squared chords; (N, D), (N,) -> scalar."""
    check_numbers(0, margin=margin)
    return over_pairs(embeddings, labels, partial(_triplet, margin=margin), anchors=anchors)


def semihard_triplet(embeddings: Tensor, labels: Tensor, margin: float = 0.2, anchors: slice | None = None) -> Tensor:
    """Mean of `max(d_ap - d_an + margin, 0)` over positive pairs; d_an is the least above d_ap, else the largest."""
    check_numbers(0, margin=margin)
    return over_pairs(embeddings, labels, partial(_semihard, margin=margin), anchors=anchors)


def npair(
    embeddings: Tensor,
    labels: Tensor,
    scale: float = 25.0,
    negatives: Literal["positives", "all"] = "positives",
    anchors: slice | None = None,
) -> Tensor:
    """Normalized N-pair loss (Eq. 3), mean over its positive pairs; (N, D), (N,) -> scalar.

    "positives": the first two samples of a class are anchor and positive, negatives are the other classes' positives;
    "all": every positive pair against all negatives of its anchor.
    """
    _check_npair(scale, negatives)
    rows = partial(_npair, scale=scale)
    return over_pairs(embeddings, labels, rows, None if negatives == "all" else _first_two, anchors=anchors)


def _check_npair(scale: float, negatives: str) -> None:
    if negatives not in ("positives", "all"):
        raise BadArgument("negatives", negatives, '"positives" or "all"')
    check_positive(scale=scale)


def _first_two(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Which labels (N,) are the first of their class, and which the second, two masks (N,)."""
    if labels.ndim == 2:
        raise BadArgument("negatives", "positives", '"all" where labels are multi-hot (N, C)')
    ordered, order = labels.sort(stable=True)
    place = torch.arange(len(labels), device=labels.device) - torch.searchsorted(ordered, ordered)
    place = torch.empty_like(place).scatter_(0, order, place)  # how many of its class come before a sample
    return place == 0, place == 1


def multi_similarity(
    embeddings: Tensor,
    labels: Tensor,
    alpha: float = 2.0,
    beta: float = 40.0,
    base: float = 0.5,
    epsilon: float = 0.1,
    anchors: slice | None = None,
) -> Tensor:
    """Multi-similarity loss with its mining, divided by the batch size, skipped anchors counted; -> scalar."""
    check_positive(alpha=alpha, beta=beta)
    check_numbers(base=base, epsilon=epsilon)
    rows = partial(_multi_similarity, alpha=alpha, beta=beta, base=base, epsilon=epsilon)
    return over_pairs(embeddings, labels, rows, anchors=anchors)


def contrastive(
    embeddings: Tensor,
    labels: Tensor,
    positive_margin: float = 1.0,
    negative_margin: float = 0.5,
    anchors: slice | None = None,
) -> Tensor:
    """Sum of `max(positive_margin - S_ap, 0)` and `max(S_an - negative_margin, 0)` over all pairs, over the batch size.

    The one loss that compares single pairs: a batch of positives alone, or of negatives alone, has a loss too.
    """
    check_numbers(positive_margin=positive_margin, negative_margin=negative_margin)
    rows = partial(_contrastive, positive_margin=positive_margin, negative_margin=negative_margin)
    return over_pairs(embeddings, labels, rows, both=False, anchors=anchors)


class TripletLoss(nn.Module):
    """`triplet` as a criterion."""

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        check_numbers(0, margin=margin)
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return triplet(embeddings, labels, self.margin, anchors)

    def extra_repr(self) -> str:
        return f"margin={self.margin}"


class SemiHardTripletLoss(nn.Module):
    """`semihard_triplet` as a criterion."""

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        check_numbers(0, margin=margin)
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return semihard_triplet(embeddings, labels, self.margin, anchors)

    def extra_repr(self) -> str:
        return f"margin={self.margin}"


class NPairLoss(nn.Module):
    """`npair` as a criterion."""

    def __init__(self, scale: float = 25.0, negatives: Literal["positives", "all"] = "positives") -> None:
        super().__init__()
        _check_npair(scale, negatives)
        self.scale, self.negatives = scale, negatives

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return npair(embeddings, labels, self.scale, self.negatives, anchors)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, negatives={self.negatives!r}"


class MultiSimilarityLoss(nn.Module):
    """`multi_similarity` as a criterion."""

    def __init__(self, alpha: float = 2.0, beta: float = 40.0, base: float = 0.5, epsilon: float = 0.1) -> None:
        super().__init__()
        check_positive(alpha=alpha, beta=beta)
        check_numbers(base=base, epsilon=epsilon)
        self.alpha, self.beta, self.base, self.epsilon = alpha, beta, base, epsilon

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return multi_similarity(embeddings, labels, self.alpha, self.beta, self.base, self.epsilon, anchors)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, beta={self.beta}, base={self.base}, epsilon={self.epsilon}"


class ContrastiveLoss(nn.Module):
    """`contrastive` as a criterion: it compares single pairs, so that one kind of pair is enough for a loss."""

    def __init__(self, positive_margin: float = 1.0, negative_margin: float = 0.5) -> None:
        super().__init__()
        check_numbers(positive_margin=positive_margin, negative_margin=negative_margin)
        self.positive_margin, self.negative_margin = positive_margin, negative_margin

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return contrastive(embeddings, labels, self.positive_margin, self.negative_margin, anchors)

    def extra_repr(self) -> str:
        return f"positive_margin={self.positive_margin}, negative_margin={self.negative_margin}"
