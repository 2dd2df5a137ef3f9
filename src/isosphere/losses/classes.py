"""Cross-entropy over class weights (C, D), ten or ten million, in chunks of classes: the logits are never whole.

With o the log-sum-exp over the wrong classes and t the logit of the true one the loss is log(1 + exp(o - t)), exact
however small it is. The forward pass finds o chunk by chunk; the backward pass computes each chunk again, unless there
is only one, and writes the weights' gradient by hand into one buffer, through their normalisation. The true class's
row is gathered by itself, so a margin sees (N,) cosines. With `first` the weights are one rank's share of the classes.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import sphere
from .slopes import attached, wanted

BLOCK = 2**24  # logits in memory at a time: 256 samples by 65,536 classes
RAISES = "dtype" in torch.ops.aten.mm.overloads()  # torch 2.8 and later multiply halves into float32


class Case(NamedTuple):
    """What both passes need beside queries (N, D) and weights (C, D)."""

    inverse: Tensor | None  # (C,), 1 / |w|, or None where the weights are taken as they are
    places: Tensor  # (N,), where the true class is among these weights; outside of them if another rank has it
    rows: Tensor  # (N, D), direction of the true class, zero if another rank has it
    cosines: Tensor  # (N,), of the true class
    targets: Tensor  # (N,), its logit with the margin
    slopes: Tensor  # (N,), d target / d cosine
    scale: float
    products: torch.dtype
    shared: bool  # whether other ranks hold other classes


def class_softmax(
    queries: Tensor,
    weights: Tensor,
    labels: Tensor,
    margin: Callable[[Tensor], Tensor] | None = None,
    scale: float = 1.0,
    normalised: bool = True,
    products: torch.dtype | None = None,
    first: int | None = None,
    sources: dict[str, Tensor] | None = None,
) -> Tensor:
    """Mean cross-entropy of scale * queries @ weights.T, (N, D), (C, D), the true class's product under a margin.

    `normalised`: weights are divided by their norms. `products`: torch.bfloat16 rounds what is multiplied, sums and
    softmax stay in float32. `first`: these are the classes from there on, other ranks hold the others; queries and
    labels are those of all ranks, the same on each, and so are the loss and the gradient by queries. `sources` are
    looked through by name if the loss is not finite.
    """
    if products not in (None, torch.bfloat16):
        raise ValueError(f"products is None (as exact as the weights) or torch.bfloat16, not {products}")
    learning = wanted(queries, weights)
    with torch.no_grad(), torch.autocast(queries.device.type, enabled=False):
        case = _case(queries, weights, labels, margin, scale, normalised, products, first, learning)
    if torch.compiler.is_compiling():  # one graph: gradients in the forward pass, as the other losses do
        with torch.no_grad():
            others, kept = _forward(queries, weights, case)
            value = _value(others, case)
            gradients = _gradients(torch.ones_like(value), queries, weights, others, case, kept) if learning else ()
        return attached(value, (queries, weights) if learning else (), gradients)
    value = _ClassSoftmax.apply(queries, weights, case)
    attached(value.detach(), (), (), **(sources or {}))  # on CPU a value that is not finite is refused
    return value


class _ClassSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries: Tensor, weights: Tensor, case: Case) -> Tensor:
        others, kept = _forward(queries, weights, case)
        ctx.case, ctx.kept = case, kept if any(ctx.needs_input_grad) else None
        ctx.save_for_backward(queries, weights, others)
        return _value(others, case)

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the losses have no second derivatives: call backward without create_graph")
        gradients = _gradients(outer, *ctx.saved_tensors, ctx.case, ctx.kept, *ctx.needs_input_grad[:2])
        return *gradients, None


def _case(
    queries: Tensor,
    weights: Tensor,
    labels: Tensor,
    margin: Callable[[Tensor], Tensor] | None,
    scale: float,
    normalised: bool,
    products: torch.dtype | None,
    first: int | None,
    learning: bool,
) -> Case:
    inverse = None
    if normalised:
        lengths = sphere.norms(weights)
        # 0 for a zero vector, NaN for a norm that overflows, as in sphere.directions
        inverse = torch.where(lengths > 0, 1 / torch.where(lengths > 0, lengths, 1), 0) + 0 * lengths
    places = labels.long() - (first or 0)
    here = places if first is None else places.clamp(0, len(weights) - 1)
    rows = weights.index_select(0, here)
    rows = rows if inverse is None else rows * inverse[here, None]
    rows = torch.where((places == here)[:, None], rows, 0)
    cosines = (queries * rows).sum(-1)
    if first is not None:
        sums = torch.stack([cosines, (places == here).to(cosines)])
        _sum_over_ranks(sums)
        cosines = torch.where(sums[1] == 1, sums[0], torch.nan)  # a class that no rank has must show
    targets, slopes = _with_slopes(margin, cosines, learning)
    dtype = products or queries.dtype
    return Case(inverse, places, rows, cosines, scale * targets, slopes, scale, dtype, first is not None)


def _with_slopes(
    margin: Callable[[Tensor], Tensor] | None, cosines: Tensor, learning: bool
) -> tuple[Tensor, Tensor]:
    """Cosines under the margin and, if learning, its slopes there, both (N,)."""
    if margin is None or not learning:
        return cosines if margin is None else margin(cosines), torch.ones_like(cosines)
    if torch.compiler.is_compiling():
        return margin(cosines), torch.func.grad(lambda values: margin(values).sum())(cosines)
    with torch.enable_grad():  # quicker than torch.func, which a compiler needs
        inputs = cosines.detach().requires_grad_()
        targets = margin(inputs)
        return targets.detach(), torch.autograd.grad(targets.sum(), inputs)[0]


def _forward(queries: Tensor, weights: Tensor, case: Case) -> tuple[Tensor, list | None]:
    """Log-sum-exp over the wrong classes, (N,), and the only chunk if there is only one."""
    sums, kept = [], None
    for part, unit, logits, column in _chunks(queries, weights, case):
        # x_j - log_softmax(x)_j is the log-sum-exp for any j but the hidden one: one kernel, no pass for a maximum
        column = (column + 1) % logits.shape[1]
        sums.append(logits.gather(1, column) - torch.log_softmax(logits, dim=1).gather(1, column))
        kept = [(part, unit, logits, column)] if logits.shape[1] == len(weights) else None
    others = torch.cat(sums, dim=1).logsumexp(dim=1)
    if case.shared and _ranks() > 1:
        parts = [torch.empty_like(others) for _ in range(_ranks())]
        dist.all_gather(parts, others)
        others = torch.stack(parts, dim=1).logsumexp(dim=1)
    return others, kept


def _value(others: Tensor, case: Case) -> Tensor:
    gaps = others - case.targets
    return torch.logaddexp(gaps, torch.zeros_like(gaps)).sum() / max(1, len(gaps))


def _gradients(
    outer: Tensor,
    queries: Tensor,
    weights: Tensor,
    others: Tensor,
    case: Case,
    kept: list | None,
    by_queries: bool = True,
    by_weights: bool = True,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of outer * loss by queries (N, D), summed over ranks, and by weights (C, D), those held here."""
    with torch.autocast(queries.device.type, enabled=False):
        share = outer / max(1, len(queries))
        total = torch.logaddexp(others, case.targets)[:, None]
        gradient = torch.zeros_like(queries) if by_queries else None
        weight_gradient = torch.empty_like(weights) if by_weights else None
        steps = share if case.inverse is None else (share * case.inverse)[:, None]
        scaled = (case.scale * queries).to(case.products)
        for part, unit, logits, _ in kept or _chunks(queries, weights, case):
            logits = logits - total
            shares = torch.exp(logits, out=torch.empty_like(logits, dtype=case.products))
            if by_queries:
                gradient += _raised_product(shares, unit)
            if by_weights:
                pulled = _product(shares.T, scaled)
                if case.inverse is not None:  # what is tangential to the sphere
                    radial = (pulled * unit).sum(1, keepdim=True, dtype=queries.dtype)
                    pulled.addcmul_(unit, radial, value=-1)
                torch.mul(pulled, steps if case.inverse is None else steps[part], out=weight_gradient[part])
        # the true class, in full precision
        slopes = -share * case.scale * (case.slopes * torch.sigmoid(others - case.targets))[:, None]
        if by_queries:
            gradient = (share * case.scale) * gradient + slopes * case.rows
            if case.shared:
                _sum_over_ranks(gradient)
        if by_weights:
            here = case.places.clamp(0, len(weights) - 1)
            slopes = torch.where((case.places == here)[:, None], slopes, 0)
            if case.inverse is not None:
                queries = queries - case.cosines[:, None] * case.rows
                slopes = slopes * case.inverse[here, None]
            weight_gradient.index_add_(0, here, slopes * queries)
    return gradient, weight_gradient


def _chunks(queries: Tensor, weights: Tensor, case: Case) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """For each chunk of c classes: its slice, directions (c, D) and logits (N, c), hugely negative in the true class's
    column, which comes last (N, 1), or is any other where the true class is in another chunk."""
    # D classes are never too many: their logits take the memory of the queries.
    count, step = len(weights), max(BLOCK // max(1, len(queries)), queries.shape[1], 1)
    with torch.autocast(queries.device.type, enabled=False):
        scaled = (case.scale * queries).to(case.products)
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            rows = weights[part]
            if case.inverse is None:
                unit = rows.to(case.products)
            else:  # normalised and rounded in one kernel
                unit = torch.mul(rows, case.inverse[part, None], out=torch.empty_like(rows, dtype=case.products))
            logits = _raised_product(scaled, unit.T)
            places = (case.places - start)[:, None]
            column = places.clamp(0, logits.shape[1] - 1)
            hidden = torch.where(places == column, torch.finfo(logits.dtype).min, logits.gather(1, column))
            yield part, unit, logits.scatter_(1, column, hidden), column


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right; on CPU, where products of halves are slow or missing, by way of float32."""
    if left.dtype != torch.bfloat16 or left.is_cuda:
        return left @ right
    return (left.float() @ right.float()).to(left.dtype)


def _raised_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in float32 at least; before torch 2.8 a GPU rounds the result of halves first."""
    if left.dtype == torch.bfloat16 and left.is_cuda and RAISES:
        return torch.mm(left, right, out_dtype=torch.float32)
    return sphere.raised(left @ right) if left.is_cuda else sphere.raised(left) @ sphere.raised(right)


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _sum_over_ranks(values: Tensor) -> None:
    if _ranks() > 1:
        dist.all_reduce(values)
