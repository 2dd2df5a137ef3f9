"""Losses on the rank of every positive: smooth average precision, and the surrogate of Recall@k.

A rank is 1 plus the number of more similar items, where a sigmoid stands for each comparison. That compares a positive
with every item: N x P x N comparisons, for P positives of an anchor. They are in memory block by block.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from isosphere.errors import BadArgument

from .checks import check_positive, reads_values
from .slopes import BLOCK, over_pairs

Scored = tuple[Tensor, Tensor, Tensor]  # of a positive: its score, and the score's slopes by both ranks
AMONG = "at least the images of the largest class in the batch"


def _precision(among_positives: Tensor, among_all: Tensor) -> Scored:
    """How many of the items up to this rank are positives."""
    return among_positives / among_all, 1 / among_all, -among_positives / among_all.square()


def _within(among_positives: Tensor, among_all: Tensor, ks: tuple[int, ...], temperature: float) -> Scored:
    """Whether the rank is at most k, smoothly, mean over the ks."""
    inside = torch.stack([torch.sigmoid((k - among_all) / temperature) for k in ks])
    slope = -(inside * (1 - inside)).mean(0) / temperature
    return inside.mean(0), torch.zeros_like(slope), slope


def _rows(
    cosines: Tensor,
    positive: Tensor,
    negative: Tensor,
    score: Callable[[Tensor, Tensor], Scored],
    temperature: float,
    per_class: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """1 less the mean score over an anchor's positives, for anchors with both kinds of pairs."""
    counts = positive.sum(1, keepdim=True)
    counted = (counts > 0) & negative.any(1, keepdim=True)
    most = counts.amax() if len(counts) else counts.sum()
    if per_class is None:
        if torch.compiler.is_compiling():
            raise BadArgument("per_class", None, f"{AMONG}, as a compiler needs a fixed shape")
        slots = int(most)  # on a GPU this waits for the device
    else:
        slots = min(per_class - 1, cosines.shape[1])
        if reads_values(cosines) and int(most) > slots:
            raise BadArgument("per_class", per_class, AMONG)
    value, slopes = cosines.new_zeros(()), torch.zeros_like(cosines)
    step = max(1, BLOCK // max(1, slots * cosines.shape[1]))
    for start in range(0, len(cosines) if slots else 0, step):
        part = slice(start, start + step)
        share = counted[part].to(cosines.dtype) / counts[part].clamp(min=1)  # (r, 1)
        given = cosines[part], positive[part], negative[part], share
        scores, by_cosines = _scores(*given, score, temperature, slots)
        value += counted[part].sum() - scores
        slopes[part] = -by_cosines
    if per_class is not None:  # elsewhere positives would be left out without a word
        value = torch.where(most > slots, torch.nan, value)
    return value, slopes, counted.sum()


def _scores(
    cosines: Tensor,
    positive: Tensor,
    negative: Tensor,
    share: Tensor,
    score: Callable[[Tensor, Tensor], Scored],
    temperature: float,
    slots: int,
) -> tuple[Tensor, Tensor]:
    """The sum of share (r, 1) times each positive's score, and its slopes (r, N), for `slots` positives a row."""
    found, places = positive.to(cosines.dtype).topk(slots, dim=1)  # (r, P); a row with fewer has others, which count 0
    pivots = cosines.gather(1, places)[:, :, None]
    above = torch.sigmoid((cosines[:, None, :] - pivots) / temperature)  # (r, P, N)
    above = torch.where((positive | negative)[:, None, :], above, 0).scatter_(2, places[:, :, None], 0.0)
    alike = positive[:, None, :].to(cosines.dtype)
    value, by_positives, by_all = score(1 + (above * alike).sum(2), 1 + above.sum(2))
    weights = found * share
    steep = above * (1 - above) / temperature  # 0 where an item does not count
    pulls = steep * (weights * by_positives)[:, :, None] * alike + steep * (weights * by_all)[:, :, None]
    slopes = pulls.sum(1).scatter_add_(1, places, -pulls.sum(2))
    return (weights * value).sum(), slopes


def smooth_ap(
    embeddings: Tensor,
    labels: Tensor,
    temperature: float = 0.01,
    per_class: int | None = None,
    anchors: slice | None = None,
) -> Tensor:
    """1 less the smoothed average precision (Brown et al., ECCV 2020), mean over anchors; (N, D), (N,) -> scalar.

    The anchor itself is not among the items that are ranked, as in MAP. `per_class` bounds the images of a class in a
    batch. Without it the loss reads that number, which waits for a GPU, and it cannot be compiled.
    """
    check_positive(temperature=temperature)
    _check_bound(per_class)
    rows = partial(_rows, score=_precision, temperature=temperature, per_class=per_class)
    return over_pairs(embeddings, labels, rows, anchors=anchors)


def recall_surrogate(
    embeddings: Tensor,
    labels: Tensor,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    rank_temperature: float = 1.0,
    per_class: int | None = None,
    anchors: slice | None = None,
) -> Tensor:
    """1 less the share of positives among the k nearest, smoothed (Patel et al., CVPR 2022), mean over ks and anchors.

    `temperature` smooths comparisons of cosines, `rank_temperature` that of a rank with k. The rest is as in
    `smooth_ap`.
    """
    check_positive(temperature=temperature, rank_temperature=rank_temperature)
    _check_bound(per_class)
    score = partial(_within, ks=_checked_ks(ks), temperature=rank_temperature)
    rows = partial(_rows, score=score, temperature=temperature, per_class=per_class)
    return over_pairs(embeddings, labels, rows, anchors=anchors)


def _check_bound(per_class: int | None) -> None:
    if per_class is not None and (not isinstance(per_class, int) or per_class < 2):
        raise BadArgument("per_class", per_class, "a whole number of at least 2, or None")


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    if not ks or any(not isinstance(k, int) or k < 1 for k in ks):
        raise BadArgument("ks", ks, "whole numbers of at least 1")
    return tuple(ks)


class SmoothAPLoss(nn.Module):
    """`smooth_ap` as a criterion."""

    def __init__(self, temperature: float = 0.01, per_class: int | None = None) -> None:
        super().__init__()
        check_positive(temperature=temperature)
        _check_bound(per_class)
        self.temperature, self.per_class = temperature, per_class

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return smooth_ap(embeddings, labels, self.temperature, self.per_class, anchors)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, per_class={self.per_class}"


class RecallSurrogateLoss(nn.Module):
    """`recall_surrogate` as a criterion."""

    def __init__(
        self,
        ks: Sequence[int] = (1, 2, 4, 8, 16),
        temperature: float = 0.01,
        rank_temperature: float = 1.0,
        per_class: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(temperature=temperature, rank_temperature=rank_temperature)
        _check_bound(per_class)
        self.ks, self.per_class = _checked_ks(ks), per_class
        self.temperature, self.rank_temperature = temperature, rank_temperature

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        settings = self.ks, self.temperature, self.rank_temperature, self.per_class
        return recall_surrogate(embeddings, labels, *settings, anchors)

    def extra_repr(self) -> str:
        temperatures = f"temperature={self.temperature}, rank_temperature={self.rank_temperature}"
        return f"ks={self.ks}, {temperatures}, per_class={self.per_class}"
