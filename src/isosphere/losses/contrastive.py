"""Softmax losses over the views of a batch: SupCon (many rows a label) and NT-Xent of SimCLR (two views an image)."""

from functools import partial

import torch
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument

from .checks import check, check_positive, reads_values
from .slopes import log_sum_exp, over_pairs, rows_to_slopes, softmax, through_directions
from .transforms import Computed, scalar


def _supcon(cosines: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean over an anchor's positives of -log softmax(S / temperature), self left out; anchors with both kinds."""
    logits = cosines / temperature
    total, shares = log_sum_exp(logits, positive | negative)
    counted = positive.any(1, keepdim=True) & negative.any(1, keepdim=True)
    wanted = (positive & counted).to(cosines.dtype) / positive.sum(1, keepdim=True).clamp(min=1)
    slopes = (shares * counted - wanted) / temperature
    return (wanted * (total - logits)).sum(), slopes, counted.sum()


def supcon(
    embeddings: Tensor, labels: Tensor, temperature: float = 0.1, anchors: slice | None = None
) -> Tensor:
    """Supervised contrastive loss (the mean outside the logarithm), mean over anchors; (N, D), (N,) -> scalar."""
    check_positive(temperature=temperature)
    return over_pairs(embeddings, labels, partial(_supcon, temperature=temperature), anchors=anchors)


TWO_ROWS = "two rows of each label (for any other number use SupCon)"


def nt_xent(embeddings: Tensor, labels: Tensor, temperature: float = 0.5) -> Tensor:
    """SimCLR's loss, the two views of an image sharing a label: exactly two rows a label; (N, D), (N,) -> scalar.

    Other labels raise on CPU; where values must not be read (CUDA, compiling) they make the loss NaN.
    """
    check_positive(temperature=temperature)
    check(embeddings, labels)
    if len(labels) % 2:
        raise BadArgument("labels", tuple(labels.shape), TWO_ROWS)

    def compute(gradients: bool, raw: Tensor, labels: Tensor) -> Computed:
        ordered, order = labels.sort()
        paired = (ordered[::2] == ordered[1::2]).all() & (ordered[1:-1:2] != ordered[2::2]).all()
        if reads_values(labels) and not paired:
            raise BadArgument("labels", labels.unique(return_counts=True)[1].tolist(), TWO_ROWS)
        twins = torch.empty_like(order).scatter_(0, order, order.view(-1, 2).flip(1).flatten())[:, None]

        def rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            logits = cosines.div_(temperature)
            logits.diagonal(block.start).fill_(torch.finfo(logits.dtype).min)  # self
            found = torch.log_softmax(logits, dim=1).gather(1, twins[block])
            return -found.sum(), softmax(logits).scatter_(1, twins[block], found.expm1())  # share - 1

        unit = sphere.directions(raw)
        total, gradient, _ = rows_to_slopes(unit, None, rows, gradients)
        gradient = through_directions(raw, unit, gradient / temperature)
        return total, torch.where(paired, torch.ones_like(total), torch.nan), (gradient,)

    return scalar(compute, (sphere.raised(embeddings),), (labels,), embeddings=embeddings) / max(1, len(labels))


class SupConLoss(nn.Module):
    """`supcon` as a criterion."""

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        check_positive(temperature=temperature)
        self.temperature = temperature

    def forward(self, embeddings: Tensor, labels: Tensor, anchors: slice | None = None) -> Tensor:
        return supcon(embeddings, labels, self.temperature, anchors)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class NTXentLoss(nn.Module):
    """`nt_xent` as a criterion, times a weight."""

    def __init__(self, temperature: float = 0.5, weight: float = 1.0) -> None:
        super().__init__()
        check_positive(temperature=temperature, weight=weight)
        self.temperature, self.weight = temperature, weight

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.weight * nt_xent(embeddings, labels, self.temperature)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, weight={self.weight}"
