"""Losses between two sets whose rows belong together, such as images and captions: InfoNCE and SigLIP.

Row i of the queries belongs to row i of the keys. A block of rows is in memory at a time, never the whole N x M.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from isosphere import sphere
from isosphere.errors import BadArgument

from .checks import check_embeddings, check_positive, number
from .slopes import rows_to_slopes, softmax, through_directions
from .transforms import Computed, scalar


def info_nce(
    queries: Tensor,
    keys: Tensor,
    temperature: Tensor | float = 0.07,
    labels: Tensor | None = None,
    negatives: Tensor | None = None,
    mask: Tensor | None = None,
    symmetric: bool = True,
) -> Tensor:
    """Cross-entropy of each query with its own key among all keys, (N, D), (N, D) -> scalar.

    It is CLIP's loss, and with `symmetric=False` that of multiple negatives. `negatives` (K, D) are more keys that
    belong to no query. Pairs that share one of the `labels` (N,) are left out, and so are those where `mask` (N, N + K)
    is true. A pair that belongs together always stays. The temperature may be a tensor that learns.
    """
    _check_sets(queries, keys, labels, negatives)
    every = keys if negatives is None else torch.cat([keys, negatives])
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(queries), len(every))):
        raise BadArgument("mask", f"{mask.dtype} {tuple(mask.shape)}", f"bool ({len(queries)}, {len(every)})")
    scale = 1 / _temperature(temperature, queries)
    left, right = sphere.promoted(queries, every)
    others = [one for one in (labels, mask) if one is not None]

    def compute(gradients: bool, left: Tensor, right: Tensor, scale: Tensor, *others: Tensor) -> Computed:
        given = [name for name, one in (("labels", labels), ("mask", mask)) if one is not None]
        named = dict(zip(given, others, strict=True))
        rows, columns = sphere.directions(left), sphere.directions(right)
        ways = [(rows, columns, named.get("mask"))]
        if symmetric:  # every own key among the queries
            flipped = None if mask is None else named["mask"][:, : len(left)].T
            ways.append((columns[: len(left)], rows, flipped))
        total, by_scale = rows.new_zeros(()), rows.new_zeros(())
        found = [torch.zeros_like(rows), torch.zeros_like(columns)]
        for way, (one, other, hidden) in enumerate(ways):
            value, by_one, by_other, by_its = _softmax(one, other, scale, named.get("labels"), hidden, gradients)
            total, by_scale = total + value, by_scale + by_its
            found[way][: len(one)] += by_one
            found[1 - way][: len(other)] += by_other
        raw = (left, rows), (right, columns)
        slopes = [through_directions(its, unit, gradient) for (its, unit), gradient in zip(raw, found, strict=True)]
        return total, total.new_full((), max(1, len(left)) * len(ways)), (*slopes, by_scale)

    return scalar(compute, (left, right, scale), tuple(others), queries=queries, keys=every)


def _softmax(
    left: Tensor, right: Tensor, scale: Tensor, labels: Tensor | None, mask: Tensor | None, gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum over rows of -log softmax at the row's own column, and its gradients by left, right and scale."""
    by_scale = left.new_zeros(())
    lowest = torch.finfo(left.dtype).min

    def rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
        own = torch.arange(len(left), device=left.device)[block, None]
        hidden = torch.zeros_like(cosines, dtype=torch.bool) if mask is None else mask[block].clone()
        if labels is not None:
            hidden[:, : len(labels)] |= labels[block, None] == labels
        logits = (cosines * scale).masked_fill(hidden.scatter_(1, own, False), lowest)
        value = torch.log_softmax(logits, dim=1).gather(1, own)
        slopes = softmax(logits).scatter_(1, own, value.expm1())  # share - 1
        by_scale.add_((slopes * cosines).sum())
        return -value.sum(), slopes * scale

    value, by_left, by_right = rows_to_slopes(left, right, rows, gradients)
    return value, by_left, by_right, by_scale


def siglip(queries: Tensor, keys: Tensor, scale: Tensor | float = 10.0, bias: Tensor | float = -10.0) -> Tensor:
    """Sigmoid loss of all pairs (Zhai et al., ICCV 2023): each alone belongs together or not, (N, D), (N, D) -> scalar.

    The sum over pairs is divided by N. `scale` and `bias` may be tensors that learn.
    """
    _check_sets(queries, keys, None, None)
    left, right = sphere.promoted(queries, keys)
    factors = [_number(name, value, left) for name, value in (("scale", scale), ("bias", bias))]

    def compute(gradients: bool, left: Tensor, right: Tensor, scale: Tensor, bias: Tensor) -> Computed:
        one, other = sphere.directions(left), sphere.directions(right)
        by_scale, by_bias = one.new_zeros(()), one.new_zeros(())

        def rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            own = torch.arange(len(one), device=one.device)[block, None]
            signs = torch.full_like(cosines, -1.0).scatter_(1, own, 1.0)
            logits = signs * (scale * cosines + bias)
            slopes = -signs * torch.sigmoid(-logits)
            by_scale.add_((slopes * cosines).sum())
            by_bias.add_(slopes.sum())
            return -F.logsigmoid(logits).sum(), slopes * scale

        value, by_left, by_right = rows_to_slopes(one, other, rows, gradients)
        slopes = through_directions(left, one, by_left), through_directions(right, other, by_right)
        return value, value.new_full((), max(1, len(left))), (*slopes, by_scale, by_bias)

    return scalar(compute, (left, right, *factors), queries=queries, keys=keys)


def _check_sets(queries: Tensor, keys: Tensor, labels: Tensor | None, negatives: Tensor | None) -> None:
    check_embeddings(queries)
    for name, rows in (("keys", keys), ("negatives", negatives)):
        if rows is not None and (rows.ndim != 2 or rows.shape[1] != queries.shape[1] or not rows.is_floating_point()):
            raise BadArgument(name, f"{rows.dtype} {tuple(rows.shape)}", f"floats (N, {queries.shape[1]}), as queries")
    if len(keys) != len(queries):
        raise BadArgument("keys", tuple(keys.shape), f"one for each of the {len(queries)} queries")
    if labels is not None and labels.shape != queries.shape[:1]:
        raise BadArgument("labels", tuple(labels.shape), f"of shape ({len(queries)},), one for each query")


def _number(name: str, value: Tensor | float, like: Tensor) -> Tensor:
    """A setting as a tensor without dimensions, of the embeddings' type."""
    if isinstance(value, Tensor) and value.ndim == 0:
        return value.to(like.device, like.dtype)
    return like.new_tensor(number(name, value))


def _temperature(value: Tensor | float, like: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        check_positive(temperature=value)
    return _number("temperature", value, sphere.raised(like))


class InfoNCELoss(nn.Module):
    """`info_nce` as a criterion of two sets: `criterion(queries, keys)`.

    With `learned` the logarithm of 1 / temperature is a parameter, as in CLIP, and 1 / temperature is at most `most`.
    """

    def __init__(
        self, temperature: float = 0.07, symmetric: bool = True, learned: bool = False, most: float = 100.0
    ) -> None:
        super().__init__()
        check_positive(temperature=temperature, most=most)
        self.temperature, self.symmetric, self.learned, self.most = temperature, symmetric, learned, most
        if learned:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        labels: Tensor | None = None,
        negatives: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        learned = (-self.log_scale.clamp(max=math.log(self.most))).exp() if self.learned else self.temperature
        return info_nce(queries, keys, learned, labels, negatives, mask, self.symmetric)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, symmetric={self.symmetric}, learned={self.learned}, most={self.most}"


class SigLIPLoss(nn.Module):
    """`siglip` as a criterion of two sets, `criterion(queries, keys)`, with a learned scale and bias."""

    def __init__(self, scale: float = 10.0, bias: float = -10.0, learned: bool = True) -> None:
        super().__init__()
        check_positive(scale=scale)
        self.learned = learned
        log_scale, start = torch.tensor(math.log(scale)), torch.tensor(number("bias", bias))
        self.log_scale = nn.Parameter(log_scale, requires_grad=learned)
        self.bias = nn.Parameter(start, requires_grad=learned)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return siglip(queries, keys, self.log_scale.exp(), self.bias)

    def extra_repr(self) -> str:
        scale, bias = float(self.log_scale.detach().exp()), float(self.bias.detach())
        return f"scale={scale:g}, bias={bias:g}, learned={self.learned}"
