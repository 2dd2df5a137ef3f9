"""What the losses share: checks of the input, and cosines turned into a loss and its gradient, block of rows by block.

A loss over cosines S needs dL/dS alone (phi of Eq. 4); we call it its slopes and write it in closed form. One block of
rows is in memory at a time, the gradient costs two matrix products, and autograd never keeps an N x N matrix.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

import math
import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from .. import sphere

BLOCK = 2**22  # cosines in memory at a time: all pairs of 2,048 embeddings
PASSED = ("isosphere", "torch", "lightning", "pytorch_lightning")  # packages whose lines a warning does not name


class NotFinite(ValueError):
    """A loss that is NaN or infinite; the message names the culprit."""


def reads_values(values: Tensor) -> bool:
    """Whether the code may look at values: on CPU and not compiling; elsewhere it would synchronize."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def check_embeddings(embeddings: Tensor) -> None:
    """Refuse anything but a tensor (N, D) of floats."""
    if not isinstance(embeddings, Tensor):
        raise TypeError(f"embeddings must be a torch tensor, not {type(embeddings).__name__}")
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(f"embeddings must be (N, D) floats, not {tuple(embeddings.shape)} {embeddings.dtype}")


def check_finite(**sources: Tensor) -> None:
    """Raise NotFinite for the first row (N, D) that is not finite, by name; only where values may be read."""
    for name, source in sources.items():
        broken = ~torch.isfinite(source).all(-1)
        if broken.any():
            raise NotFinite(f"{name} row {int(broken.int().argmax())} of {len(source)} is not finite")


def warn(message: str) -> None:
    """A warning at the line that called us, outside of isosphere, torch and Lightning; Python shows it there once."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in PASSED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def check_positive(**settings: float) -> None:
    """Refuse settings that are not positive finite numbers, by name."""
    for name, value in settings.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number, not {value}")


def check_dim(embeddings: Tensor, weights: Tensor) -> None:
    """Refuse embeddings (N, D) for weights (C, D) of another D."""
    if embeddings.shape[-1] != weights.shape[1]:
        dims = f"dimension {embeddings.shape[-1]}, the class weights {weights.shape[1]}"
        raise ValueError(f"the embeddings have {dims}: they must be equal")


def check(embeddings: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
    """Refuse anything but embeddings (N, D) of floats and labels (N,) of integers; for heads with weights (C, D)."""
    check_embeddings(embeddings)
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a torch tensor, not {type(labels).__name__}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers, not {labels.dtype}: pass labels.long()")
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(f"{len(embeddings)} embeddings need labels ({len(embeddings)},), not {tuple(labels.shape)}")
    if labels.device != embeddings.device:
        raise ValueError(f"labels are on {labels.device}, embeddings on {embeddings.device}: move one of them")
    if weights is None:
        return
    check_dim(embeddings, weights)
    if reads_values(labels) and len(labels):
        low, high = labels.aminmax()
        if low < 0 or high >= len(weights):
            raise ValueError(f"labels must be in [0, {len(weights)}), found {int(low if low < 0 else high)}")


def softmax(logits: Tensor) -> Tensor:
    """Of each row (R, M); on CPU with zero below 1e-30, since products with numbers that underflow crawl there."""
    shares = torch.softmax(logits, dim=1)
    return shares if shares.is_cuda else torch.nn.functional.threshold_(shares, 1e-30, 0.0)


def log_sum_exp(exponents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """log(sum over the mask of exp(x)) of each row, (R, M) -> (R, 1), and its slopes (R, M), the softmax.

    A row without any has a hugely negative sum. Softmax alone does it: exp itself crawls where it underflows on CPU.
    """
    lowest = torch.finfo(exponents.dtype).min
    if not exponents.shape[1]:
        return exponents.new_full((len(exponents), 1), lowest), exponents
    masked = torch.where(mask, exponents, lowest)
    shares = softmax(masked)
    return masked.amax(1, keepdim=True) - shares.amax(1, keepdim=True).log(), shares


def log1p_sum_exp(exponents: Tensor, mask: Tensor, shift: float) -> tuple[Tensor, Tensor]:
    """log(1 + sum over the mask of exp(x + shift)) of each row, (R, M) -> (R, 1), and its slopes (R, M)."""
    total, shares = log_sum_exp(exponents, mask)
    total = total + shift
    return torch.logaddexp(total, torch.zeros_like(total)), shares * torch.sigmoid(total)


def rows_to_slopes(
    left: Tensor, right: Tensor | None, rows: Callable[[slice, Tensor], tuple[Tensor, Tensor]], gradients: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of a loss over the products left @ right.T and its gradients by left (N, D) and right (M, D).

    `rows(block, products (R, M))` returns the block's sum of the loss and its slopes (R, M). Without right it is left
    itself, and the two gradients are one. Runs without autograd.
    """
    columns = left if right is None else right
    # D rows are never too many: their products take the memory of the gradient by right.
    step = max(BLOCK // max(1, len(columns)), columns.shape[1], 1)
    total, left_gradient = left.new_zeros(()), torch.zeros_like(left)
    right_gradient = left_gradient if right is None else torch.zeros_like(right)
    with torch.autocast(left.device.type, enabled=False):
        for start in range(0, len(left), step):
            block = slice(start, min(start + step, len(left)))
            value, slopes = rows(block, left[block] @ columns.T)
            total += value
            if gradients and right is None and len(slopes) == len(left):
                left_gradient.addmm_(slopes + slopes.T, left)  # one product instead of two
            elif gradients:
                left_gradient[block] += slopes @ columns
                right_gradient.addmm_(slopes.T, left[block])
    return total, left_gradient, right_gradient


class _Attached(torch.autograd.Function):
    """A scalar whose gradients by some tensors are already known: forward(value, *inputs, *gradients)."""

    @staticmethod
    def forward(ctx, value: Tensor, *inputs_and_gradients: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs_and_gradients[len(inputs_and_gradients) // 2 :])
        return value.clone()

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("the losses have no second derivatives: call backward without create_graph")
        gradients = ctx.saved_tensors
        return None, *(outer * gradient for gradient in gradients), *(None for _ in gradients)


def wanted(*inputs: Tensor) -> bool:
    """Whether a backward pass may ask for the gradients by these."""
    return torch.is_grad_enabled() and any(values.requires_grad for values in inputs)


def attached(value: Tensor, inputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...], **sources: Tensor) -> Tensor:
    """The scalar value with its gradients by inputs; on CPU a non-finite value raises and names the row of a source."""
    if reads_values(value) and not torch.isfinite(value):
        check_finite(**sources)
        raise NotFinite(f"the loss is {value.item()} although its inputs are finite: they or the scale are too large")
    return _Attached.apply(value, *inputs, *gradients) if wanted(*inputs) else value


def through_directions(raw: Tensor, unit: Tensor, gradient: Tensor) -> Tensor:
    """The gradient by raw embeddings from that by directions, all (N, D): its tangential part over the norm (Eq. 4)."""
    lengths = sphere.norms(raw).unsqueeze(1)
    radial = (gradient * unit).sum(1, keepdim=True)
    return torch.addcmul(gradient, unit, radial, value=-1).mul_(torch.where(lengths > 0, 1 / lengths, 0))


def pair_loss(
    embeddings: Tensor,
    labels: Tensor,
    rows: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
    anchors: Tensor | None = None,
    others: Tensor | None = None,
    both: bool = True,
) -> Tensor:
    """A loss over the cosines of all pairs (i, j), i != j, of embeddings (N, D) with labels (N,), a scalar.

    `rows(cosines, positive, negative)`, each (R, N), returns the sum of its terms, the slopes (R, N) and the number of
    terms that the sum is divided by. Masks anchors and others (N,) restrict i and j. `both`: a term needs a positive
    and a negative pair, so that a batch with one kind alone has no loss, which is told.
    """
    check(embeddings, labels)
    raw, gradients = sphere.raised(embeddings), wanted(embeddings)
    with torch.no_grad():
        unit = sphere.directions(raw)
        index = torch.arange(len(labels), device=labels.device)
        terms = []

        def block_rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            same = labels[block, None] == labels
            positive, negative = same & (index[block, None] != index), ~same
            if anchors is not None and others is not None:
                allowed = anchors[block, None] & others
                positive, negative = positive & allowed, negative & allowed
            value, slopes, number = rows(cosines, positive, negative)
            terms.append(number)
            return value, slopes

        total, gradient, _ = rows_to_slopes(unit, None, block_rows, gradients)
        # Mining compares, and comparisons with NaN are false: 0 * sum lets a NaN show.
        total += 0 * unit.sum()
        divisor = sum(terms).clamp(min=1) if terms else 1
        gradient = through_directions(raw, unit, gradient)
        # Looked for where the loss is zero, which is rarely, and never where it would synchronize.
        if both and reads_values(total) and len(labels) > 1 and total == 0:
            if len(labels.unique()) == len(labels):
                warn("all labels of the batch are different, so this loss is 0: it needs several embeddings of a class")
            elif len(labels.unique()) == 1:
                warn("all labels of the batch are the same, so this loss is 0: it needs several classes")
    return attached(total, (raw,), (gradient,), embeddings=embeddings) / divisor
