"""Cross-entropy over class weights (C, D), ten or ten million, in chunks: the logits are never whole.

Let o be the log-sum-exp over the wrong classes, and t the logit of the true one. The loss is log(1 + exp(o - t)), exact
however small it is. The forward pass finds o chunk by chunk. The backward pass computes each chunk again, unless they
are few. It writes the gradients by hand, through the normalization. A chunk's probabilities are those among its wrong
classes. What they lack is a factor for each sample, which multiplies (N, D) instead of (N, C). The true class's row is
gathered by itself, so a margin sees (N,) cosines. With `first` the weights are one rank's share of the classes.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from isosphere import sphere
from isosphere.errors import BadArgument

from .checks import check, check_loss
from .transforms import Computed, once, scalar, transformed, wanted, with_slopes

BLOCK = 2**24  # logits in memory at a time: 256 samples by 65,536 classes
FEW = 4  # so many blocks are kept for the backward pass: 4,096 samples by 16,384 classes
RAISES = "dtype" in torch.ops.aten.mm.overloads()  # torch 2.8 and later multiply halves into float32


class Case(NamedTuple):
    """What both passes need in addition to the weights (C, D)."""

    queries: Tensor  # (N, D), directions if normalized
    scaled: Tensor  # (N, D), scale * queries, rounded as products are
    inverses: tuple[Tensor, Tensor] | None  # 1 / |f| (N, 1) and 1 / |w| (C, 1), or None if taken as they are
    places: Tensor  # (N,), where the true class is among these weights; outside of them if another rank has it
    here: Tensor  # (N,), the same, or any place of these weights if another rank has it
    rows: Tensor  # (N, D), direction of the true class, zero if another rank has it
    lever: Tensor | float  # (N, 1), d row / d weight across the sphere: 1 / |w|, zero if another rank has it
    cosines: Tensor  # (N, 1), of the true class
    targets: Tensor  # (N, 1), its logit with the margin
    slopes: Tensor  # (N, 1), d target / d cosine
    scale: float
    shared: bool  # whether other ranks hold other classes


def class_softmax(
    queries: Tensor,
    weights: Tensor,
    labels: Tensor,
    margin: Callable[[Tensor], Tensor] | None = None,
    scale: float = 1.0,
    normalized: bool = True,
    products: torch.dtype | None = None,
    first: int | None = None,
    sources: dict[str, Tensor] | None = None,
) -> Tensor:
    """Mean cross-entropy of scale * queries @ weights.T, (N, D), (C, D), the true class's product under a margin.

    `normalized`: queries and weights are divided by their norms. `products`: torch.bfloat16 rounds what is multiplied.
    Sums and softmax stay in float32. `first`: these are the classes from there on, and other ranks hold the others.
    Queries, labels, the loss and the gradient by queries are then those of all ranks, the same on each. `sources` are
    checked by name if the loss is not finite.
    """
    if products not in (None, torch.bfloat16):
        raise BadArgument("products", products, "None (as exact as the weights) or torch.bfloat16")

    def compute(gradients: bool, queries: Tensor, weights: Tensor, labels: Tensor) -> Computed:
        if first is None:
            check(queries, labels, weights)
        case = _case(queries, weights, labels, margin, scale, normalized, products, first, gradients)
        value, sums, kept = _forward(weights, case, gradients)
        unit = torch.ones_like(value)
        found = _gradients(unit, weights, case, sums, kept) if gradients else ()
        return value, unit, tuple([gradient for gradient in found if gradient is not None])

    with torch.autocast(queries.device.type, enabled=False):
        if torch.compiler.is_compiling() or transformed(queries, weights, labels):
            # gradients in the forward pass, as the other losses do: one graph
            return scalar(compute, (queries, weights), (labels,), **(sources or {}))
        learning = wanted(queries, weights)
        with torch.no_grad():
            case = _case(queries, weights, labels, margin, scale, normalized, products, first, learning)
        value = _ClassSoftmax.apply(queries, weights, case, learning)
        check_loss(value, **(sources or {}))
        return value


class _ClassSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries: Tensor, weights: Tensor, case: Case, learning: bool) -> Tensor:
        value, sums, kept = _forward(weights, case, learning)
        ctx.case, ctx.sums = case, sums
        ctx.save_for_backward(queries, weights, *kept)
        return value

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        queries, weights, *kept = ctx.saved_tensors
        with torch.no_grad():
            gradients = _gradients(outer, weights, ctx.case, ctx.sums, kept, *ctx.needs_input_grad[:2])
        return *once(list(gradients), outer, (queries, weights)), None, None


def _case(
    queries: Tensor,
    weights: Tensor,
    labels: Tensor,
    margin: Callable[[Tensor], Tensor] | None,
    scale: float,
    normalized: bool,
    products: torch.dtype | None,
    first: int | None,
    learning: bool,
) -> Case:
    inverses = (_inverse(queries), _inverse(weights)) if normalized else None
    queries = queries if inverses is None else queries * inverses[0]
    places = labels.long() if first is None else labels.long() - first
    here = places if first is None else places.clamp(0, len(weights) - 1)
    lever = 1.0 if inverses is None else inverses[1].index_select(0, here)
    if first is not None:
        held = (places == here).to(queries)
        lever = lever * held[:, None]
    rows = weights.index_select(0, here) * lever
    cosines = (queries * rows).sum(-1)
    if first is not None:
        sums = torch.stack([cosines, held])
        _sum_over_ranks(sums)
        cosines = torch.where(sums[1] == 1, sums[0], torch.nan)  # a class that no rank has must show
    targets, slopes = _with_slopes(margin, cosines, learning)
    scaled = (scale * queries).to(products or queries.dtype)
    columns = cosines[:, None], (scale * targets)[:, None], slopes[:, None]
    return Case(queries, scaled, inverses, places, here, rows, lever, *columns, scale, first is not None)


def _inverse(vectors: Tensor) -> Tensor:
    """1 / |v|, (N, D) -> (N, 1): 0 for a zero vector, NaN for a norm that overflows, as in sphere.directions."""
    lengths = sphere.norms(vectors)[:, None]
    return lengths.reciprocal().nan_to_num_(torch.nan, 0).add_(lengths, alpha=0)


def _with_slopes(margin: Callable[[Tensor], Tensor] | None, cosines: Tensor, learning: bool) -> tuple[Tensor, Tensor]:
    """Cosines under the margin and, if learning, its slopes there, both (N,)."""
    if margin is None or not learning:
        return cosines if margin is None else margin(cosines), torch.ones_like(cosines)
    if hasattr(margin, "slopes"):
        return margin(cosines), margin.slopes(cosines)
    return with_slopes(margin, cosines)


def _forward(weights: Tensor, case: Case, learning: bool) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The loss, log-sum-exps over all wrong classes and over each chunk's, (N, 1), and what the gradients need.

    That is directions (c, D) and probabilities (N, c), chunk after chunk, if they are few.
    """
    chunks, kept = [], []
    keep = learning and len(case.queries) * len(weights) <= FEW * BLOCK
    for part in _parts(weights, case):
        unit, logits, column = _logits(part, weights, case)
        log_shares = torch.log_softmax(logits, dim=1)
        # x_j - log_softmax(x)_j is the log-sum-exp for any j but the hidden one: one kernel, no pass for a maximum
        column = (column + 1) % logits.shape[1]
        chunks.append(logits.gather(1, column) - log_shares.gather(1, column))
        kept += [unit, log_shares.exp_().to(unit)] if keep else []
    others = chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1).logsumexp(1, keepdim=True)
    if case.shared and _ranks() > 1:
        parts = [torch.empty_like(others) for _ in range(_ranks())]
        dist.all_gather(parts, others)
        others = torch.cat(parts, dim=1).logsumexp(1, keepdim=True)
    losses = torch.nn.functional.softplus(others - case.targets, threshold=40)  # beyond, float64 knows no difference
    return losses.sum() / max(1, len(losses)), [others, *chunks], kept


def _gradients(
    outer: Tensor,
    weights: Tensor,
    case: Case,
    sums: list[Tensor],
    kept: list[Tensor],
    by_queries: bool = True,
    by_weights: bool = True,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of outer * loss: by queries (N, D), summed over ranks, and by the weights (C, D) held here."""
    with torch.autocast(weights.device.type, enabled=False):
        queries, (others, *chunks) = case.queries, sums
        steps = outer * (case.scale / max(1, len(queries))) * torch.sigmoid(others - case.targets)
        gradient = torch.zeros_like(queries) if by_queries else None
        weight_gradient = torch.empty_like(weights) if by_weights else None
        for number, (part, total) in enumerate(zip(_parts(weights, case), chunks, strict=True)):
            unit, shares = kept[2 * number : 2 * number + 2] or _shares(part, weights, case, total)
            factors = steps if total is others else steps * (total - others).exp()
            if gradient is not None:
                gradient.addcmul_(factors, _raised_product(shares, unit))
            if weight_gradient is not None:
                pulled = _product(shares.T, (factors * queries).to(unit))
                if case.inverses is None:
                    weight_gradient[part] = pulled
                else:
                    _tangential(pulled, unit, case.inverses[1][part], out=weight_gradient[part])
        # the true class, in full precision
        steps = steps * case.slopes
        if gradient is not None:
            gradient.addcmul_(steps, case.rows, value=-1)
            if case.shared:
                _sum_over_ranks(gradient)
            if case.inverses is not None:
                _tangential(gradient, queries, case.inverses[0], out=gradient)
        if weight_gradient is not None:
            if case.inverses is not None:
                queries = torch.addcmul(queries, case.cosines, case.rows, value=-1)
            weight_gradient.index_add_(0, case.here, steps * case.lever * queries, alpha=-1)
    return gradient, weight_gradient


def _tangential(gradient: Tensor, unit: Tensor, inverse: Tensor, out: Tensor) -> None:
    """The gradient by vectors from that by their directions (N, D), which is overwritten, and 1 / norms (N, 1)."""
    radial = (gradient * unit).sum(1, keepdim=True, dtype=inverse.dtype)
    torch.mul(gradient.addcmul_(unit, radial, value=-1), inverse, out=out)


def _parts(weights: Tensor, case: Case) -> list[slice]:
    """The chunks of classes, of D or more: their logits take the memory of the queries."""
    count, step = len(weights), max(BLOCK // max(1, len(case.queries)), case.queries.shape[1], 1)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _logits(part: slice, weights: Tensor, case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Directions (c, D), logits (N, c) of a chunk, hugely negative for the true class, and that class's column (N, 1).

    Where the true class is elsewhere, it is any column, and its logit stays.
    """
    rows = weights[part]
    if case.inverses is None:
        unit = rows.to(case.scaled)
    else:  # normalized and rounded in one kernel
        unit = torch.mul(rows, case.inverses[1][part], out=torch.empty_like(rows, dtype=case.scaled.dtype))
    logits = _raised_product(case.scaled, unit.T)
    column, hidden = case.places[:, None], torch.finfo(logits.dtype).min
    if case.shared or len(rows) < len(weights):  # it may be elsewhere
        column = column - part.start
        within = column.clamp(0, len(rows) - 1)
        column, hidden = within, torch.where(column == within, hidden, logits.gather(1, within))
    return unit, logits.scatter_(1, column, hidden), column


def _shares(part: slice, weights: Tensor, case: Case, total: Tensor) -> tuple[Tensor, Tensor]:
    """Directions (c, D) and probabilities (N, c) of a chunk whose log-sum-exp is known."""
    unit, logits, _ = _logits(part, weights, case)
    return unit, torch.exp(logits.sub_(total), out=torch.empty_like(logits, dtype=unit.dtype))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right. On CPU, where half-precision products are slow or missing, they are computed in float32."""
    if left.dtype != torch.bfloat16 or left.is_cuda:
        return left @ right
    return (left.float() @ right.float()).to(left.dtype)


def _raised_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in float32 at least. Before torch 2.8 a GPU first rounds the result of half precision."""
    if left.dtype == torch.bfloat16 and left.is_cuda and RAISES:
        return torch.mm(left, right, out_dtype=torch.float32)
    return sphere.raised(left @ right) if left.is_cuda else sphere.raised(left) @ sphere.raised(right)


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _sum_over_ranks(values: Tensor) -> None:
    if _ranks() > 1:
        dist.all_reduce(values)
