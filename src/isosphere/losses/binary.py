"""A head of binary classifiers, one a class: SphereFace2."""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from isosphere import sphere

from .checks import check, check_dim, check_numbers, check_positive, number
from .margins import class_weights, keep_float32
from .slopes import rows_to_slopes
from .transforms import Computed, scalar


def binary_softplus(
    embeddings: Tensor,
    labels: Tensor,
    weights: Tensor,
    bias: Tensor,
    margin: float = 0.4,
    scale: float = 40.0,
    balance: float = 0.7,
    power: float = 3.0,
) -> Tensor:
    """SphereFace2 with an additive margin, mean over samples; (N, D), (N,), weights (C, D), bias () -> scalar.

    Each class alone decides whether a sample is its own. `balance` is the share of the true class in the loss. A cosine
    c counts as 2 ((c + 1) / 2)^power - 1.
    """
    check(embeddings, labels, weights)
    raw, promoted = sphere.promoted(embeddings, weights)
    unit, centers = sphere.directions(raw), sphere.directions(promoted)

    def compute(gradients: bool, unit: Tensor, centers: Tensor, bias: Tensor, labels: Tensor) -> Computed:
        check(unit, labels, centers)
        by_bias = unit.new_zeros(())

        def rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            own = labels[block, None].long()
            half = ((cosines + 1) / 2).clamp(min=0)
            warped, by_cosine = 2 * half.pow(power) - 1, power * half.pow(power - 1)
            signs = torch.full_like(cosines, -1.0).scatter_(1, own, 1.0)
            shares = torch.full_like(cosines, (1 - balance) / scale).scatter_(1, own, balance / scale)
            logits = signs * (scale * (warped - signs * margin) + bias)
            steps = -shares * signs * torch.sigmoid(-logits)
            by_bias.add_(steps.sum())
            return -(shares * F.logsigmoid(logits)).sum(), scale * steps * by_cosine

        value, by_unit, by_centers = rows_to_slopes(unit, centers, rows, gradients)
        return value, value.new_full((), max(1, len(unit))), (by_unit, by_centers, by_bias)

    return scalar(compute, (unit, centers, bias.to(unit)), (labels,), embeddings=embeddings, weights=weights)


class SphereFace2(nn.Module):
    """SphereFace2 (Wen et al., ICLR 2022) as a criterion that owns class weights (classes, dim) and a bias.

    The bias starts where the first loss is least, as its authors have it.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        margin: float = 0.4,
        scale: float = 40.0,
        balance: float = 0.7,
        power: float = 3.0,
    ) -> None:
        super().__init__()
        check_positive(scale=scale, power=power)
        check_numbers(0, margin=margin)
        number("balance", balance, 1e-6, 1 - 1e-6)
        self.margin, self.scale, self.balance, self.power = margin, scale, balance, power
        self.weights = class_weights(dim, classes)
        self.bias = nn.Parameter(torch.tensor(_first_bias(classes, margin, scale, balance, power)))

    def logits(self, embeddings: Tensor) -> Tensor:
        """Scaled cosines with all classes, without margin, (N, D) -> (N, C)."""
        check_dim(embeddings, self.weights)
        return self.scale * sphere.cosines(embeddings, self.weights)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        settings = self.margin, self.scale, self.balance, self.power
        return binary_softplus(embeddings, labels, self.weights, self.bias, *settings)

    _apply = keep_float32

    def extra_repr(self) -> str:
        shape = f"dim={self.weights.shape[1]}, classes={len(self.weights)}, margin={self.margin}"
        return f"{shape}, scale={self.scale}, balance={self.balance}, power={self.power}"


def _first_bias(classes: int, margin: float, scale: float, balance: float, power: float) -> float:
    """The bias at which the gradient by it is zero where all cosines are 0."""
    odds = balance / ((1 - balance) * max(1, classes - 1))
    at_zero = 2 * 0.5**power - 1
    own, other = scale * (at_zero - margin), scale * (at_zero + margin)
    # odds * sigmoid(-(own + b)) = sigmoid(other + b), a quadratic equation for exp(b)
    root = (1 - odds) ** 2 + 4 * odds * math.exp(own - other)
    return math.log(2 * odds) - other - math.log(1 - odds + math.sqrt(root))
