"""Cosines turned into a loss and its gradient, block of rows by block.

A loss over cosines S needs dL/dS alone (phi of Eq. 4); we call it its slopes and write it in closed form. One block of
rows is in memory at a time, the gradient costs two matrix products, and autograd never keeps an N x N matrix.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from isosphere import sphere

from .checks import check, check_anchors, check_loss, reads_values, warn
from .transforms import attached, transformed, untransformed, wanted

BLOCK = 2**22  # cosines in memory at a time: all pairs of 2,048 embeddings


def softmax(logits: Tensor) -> Tensor:
    """Of each row (R, M); on CPU with zero below 1e-30, since products with numbers that underflow crawl there."""
    shares = torch.softmax(logits, dim=1)
    return torch.threshold_(shares, 1e-30, 0.0) if shares.device.type == "cpu" else shares


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
    total, left_gradient = left.new_zeros(()), torch.zeros_like(left)
    right_gradient = left_gradient if right is None else torch.zeros_like(right)
    with torch.autocast(left.device.type, enabled=False):
        for block in _blocks(left, columns):
            value, slopes = rows(block, left[block] @ columns.T)
            total += value
            if gradients:
                _add_products(block, slopes, left, right, left_gradient, right_gradient)
    return total, left_gradient, right_gradient


def _blocks(left: Tensor, columns: Tensor, anchors: slice | None = None) -> list[slice]:
    """The rows of left (N, D), all or the anchors, whose products with columns (M, D) are in memory at a time."""
    # D rows are never too many: their products take the memory of the gradient by columns.
    step = max(BLOCK // max(1, len(columns)), columns.shape[1], 1)
    first, end, _ = (anchors or slice(None)).indices(len(left))
    return [slice(start, min(start + step, end)) for start in range(first, end, step)]


def _add_products(
    block: slice, slopes: Tensor, left: Tensor, right: Tensor | None, left_gradient: Tensor, right_gradient: Tensor
) -> None:
    """Add what the slopes (R, M) of a block's products give to the gradients, which without right are one."""
    if right is None and len(slopes) == len(left):
        left_gradient.addmm_(slopes + slopes.T, left)  # one product instead of two
    else:
        left_gradient[block] += slopes @ (left if right is None else right)
        right_gradient.addmm_(slopes.T, left[block])


def through_directions(raw: Tensor, unit: Tensor, gradient: Tensor) -> Tensor:
    """The gradient by raw embeddings from that by directions, all (N, D): its tangential part over the norm (Eq. 4)."""
    lengths = sphere.norms(raw).unsqueeze(1)
    radial = (gradient * unit).sum(1, keepdim=True)
    return torch.addcmul(gradient, unit, radial, value=-1).mul_(torch.where(lengths > 0, 1 / lengths, 0))


def pair_masks(block: slice, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative pairs of a block's rows with all, (R, N) twice; labels (N,), or floats 0 and 1 (N, C)."""
    index = torch.arange(len(labels), device=labels.device)
    other = index[block, None] != index
    if labels.ndim == 1:
        same = labels[block, None] == labels
    else:
        same = (labels[block] @ labels.T > 0) | ~other  # also a row without any label is no negative of itself
    return same & other, ~same


def over_pairs(
    embeddings: Tensor,
    labels: Tensor,
    rows: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
    chosen: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    both: bool = True,
    anchors: slice | None = None,
) -> Tensor:
    """A loss over the cosines of all pairs (i, j), i != j, of embeddings (N, D) with labels (N,) or (N, C), a scalar.

    `rows(cosines, positive, negative)`, each (R, N), returns the sum of its terms, the slopes (R, N) and the number of
    terms that the sum is divided by. `chosen(labels)` returns masks (N,) that restrict i and j. `both`: a term needs a
    positive and a negative pair. Then a batch with one kind alone has no loss, and a warning says so. `anchors` are the
    rows i, by default all.
    """
    check(embeddings, labels, several=True)
    check_anchors(anchors)
    raw = sphere.raised(embeddings)
    if transformed(raw, labels):
        again = partial(over_pairs, rows=rows, chosen=chosen, both=both, anchors=anchors)
        return untransformed(again, (raw,), (labels,))
    gradients = wanted(raw)
    with torch.no_grad():
        unit = sphere.directions(raw)
        labels = labels.float() if labels.ndim == 2 else labels
        firsts, others = (None, None) if chosen is None else chosen(labels)
        total, gradient = unit.new_zeros(()), torch.zeros_like(unit)
        terms: list[Tensor] = []
        with torch.autocast(unit.device.type, enabled=False):
            for block in _blocks(unit, unit, anchors):
                positive, negative = pair_masks(block, labels)
                if firsts is not None and others is not None:
                    allowed = firsts[block, None] & others
                    positive, negative = positive & allowed, negative & allowed
                value, slopes, number = rows(unit[block] @ unit.T, positive, negative)
                total += value
                terms.append(number)
                if gradients:
                    _add_products(block, slopes, unit, None, gradient, gradient)
        # Mining compares, and comparisons with NaN are false: 0 * sum lets a NaN show.
        total += 0 * unit.sum()
        divisor = sum(terms[1:], terms[0]).clamp(min=1) if terms else torch.ones_like(total)
        gradient = through_directions(raw, unit, gradient)
    # Looked for where the loss is zero, which is rarely, and never where it would synchronize.
    if both and reads_values(total) and len(labels) > 1 and total == 0:
        blocks = _blocks(unit, unit, anchors)
        if not any(pair_masks(block, labels)[0].any() for block in blocks):
            warn("all labels of the batch are different, and the loss is 0: most losses need two of a class")
        elif not any(pair_masks(block, labels)[1].any() for block in blocks):
            warn("all labels of the batch are the same, and the loss is 0: most losses need two classes")
    check_loss(total, embeddings=embeddings)
    return attached(total, (raw,), (gradient,)) / divisor
