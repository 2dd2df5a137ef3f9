"""Softmax heads whose margin depends on the norm of an embedding: AdaFace and MagFace.

They are SEC's counter-position: a norm tells them how good an image is. SEC takes that from it.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument, Unsupported

from .checks import check, check_dim, check_numbers, check_positive, number
from .margins import class_weights, keep_float32
from .slopes import rows_to_slopes, softmax
from .transforms import Computed, scalar, transformed

Target = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""(cosines, margins), both (R, 1) -> the target, its slopes by cosines and by margins."""


def _sines(cosines: Tensor) -> tuple[Tensor, Tensor]:
    """sin of angles from their cosines, and the slopes by the cosines; at +-1, where these are infinite, 0."""
    sines = (1 - cosines.square()).clamp(min=1e-36).sqrt()
    return sines, torch.where(sines > 1e-9, -cosines / sines, 0)


def _turned(cosines: Tensor, margins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """cos(angle + margin); past pi - margin the cosine itself, as MagFace's authors have it."""
    sines, by_cosine = _sines(cosines)
    cos, sin = margins.cos(), margins.sin()
    within = cosines > -cos
    target = torch.where(within, cosines * cos - sines * sin, cosines)
    by_margin = torch.where(within, -(sines * cos + cosines * sin), 0)
    return target, torch.where(within, cos - sin * by_cosine, 1.0), by_margin


def _softmax(
    embeddings: Tensor, labels: Tensor, weights: Tensor, margins: Tensor, target: Target, scale: float
) -> Tensor:
    """Mean cross-entropy of scaled cosines, the true one under each sample's own margin (N,), -> scalar."""
    raw, promoted = sphere.promoted(embeddings, weights)
    unit, centers = sphere.directions(raw), sphere.directions(promoted)

    def compute(gradients: bool, unit: Tensor, centers: Tensor, margins: Tensor, labels: Tensor) -> Computed:
        check(unit, labels, centers)
        by_margin = torch.zeros_like(margins)

        def rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            own = labels[block, None].long()
            targets, by_cosine, by = target(cosines.gather(1, own), margins[block, None])
            logits = scale * cosines.scatter(1, own, targets)
            logs = torch.log_softmax(logits, dim=1).gather(1, own)
            pull = scale * logs.expm1()  # share - 1
            by_margin[block] = (pull * by).squeeze(1)
            return -logs.sum(), (scale * softmax(logits)).scatter_(1, own, pull * by_cosine)

        value, by_unit, by_centers = rows_to_slopes(unit, centers, rows, gradients)
        return value, value.new_full((), max(1, len(unit))), (by_unit, by_centers, by_margin)

    return scalar(compute, (unit, centers, margins), (labels,), embeddings=embeddings, weights=weights)


class _Head(nn.Module):
    """What both heads have: class weights (classes, dim), in float32 even after `.half()`."""

    def __init__(self, dim: int, classes: int, scale: float) -> None:
        super().__init__()
        check_positive(scale=scale)
        self.weights, self.scale = class_weights(dim, classes), scale

    def logits(self, embeddings: Tensor) -> Tensor:
        """Scaled cosines with all classes, without margin, (N, D) -> (N, C)."""
        check_dim(embeddings, self.weights)
        return self.scale * sphere.cosines(embeddings, self.weights)

    _apply = keep_float32


class MagFace(_Head):
    """MagFace (Meng et al., CVPR 2021): long embeddings get a larger margin, and a term makes all of them longer.

    Norms from `norms[0]` to `norms[1]` get margins from `margins[0]` to `margins[1]`. `weight` is that of the term.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        margins: tuple[float, float] = (0.45, 0.8),
        norms: tuple[float, float] = (10.0, 110.0),
        scale: float = 64.0,
        weight: float = 35.0,
    ) -> None:
        super().__init__(dim, classes, scale)
        check_numbers(0, weight=weight)
        for name, pair in (("margins", margins), ("norms", norms)):
            low, high = (number(name, value, 0) for value in pair)
            if not low < high or (name == "norms" and not low) or (name == "margins" and high > math.pi / 2):
                raise BadArgument(name, pair, "(least, most), in radians for margins and above 0 for norms")
        self.margins, self.norms, self.weight = tuple(margins), tuple(norms), weight

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check(embeddings, labels, self.weights)
        raw, _ = sphere.promoted(embeddings, self.weights)
        (least, most), (low, high) = self.norms, self.margins
        lengths = sphere.norms(raw).clamp(least, most)
        margins = low + (high - low) * (lengths - least) / (most - least)
        value = _softmax(embeddings, labels, self.weights, margins, _turned, self.scale)
        longer = (lengths / most**2 + 1 / lengths).sum() / max(1, len(lengths))
        return value + self.weight * longer

    def extra_repr(self) -> str:
        shape = f"dim={self.weights.shape[1]}, classes={len(self.weights)}"
        return f"{shape}, margins={self.margins}, norms={self.norms}, scale={self.scale}, weight={self.weight}"


class AdaFace(_Head):
    """AdaFace (Kim et al., CVPR 2022): long embeddings get a margin on the cosine, short ones on the angle.

    Norms are compared with running means of their mean and deviation, and are constants for the gradient. In
    evaluation the running means stay as they are.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        dim: int,
        classes: int,
        margin: float = 0.4,
        sharpness: float = 0.333,
        scale: float = 64.0,
        rho: float = 0.01,
    ) -> None:
        super().__init__(dim, classes, scale)
        check_numbers(0, math.pi / 2, margin=margin)
        check_positive(sharpness=sharpness)
        self.margin, self.sharpness, self.rho = margin, sharpness, number("rho", rho, 0, 1)
        self.register_buffer("mean", torch.tensor(20.0))  # the authors' start
        self.register_buffer("deviation", torch.tensor(100.0))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check(embeddings, labels, self.weights)
        if self.training and transformed(embeddings, labels, self.weights):
            raise Unsupported("AdaFace", "torch.func while training", "call eval() first")
        raw, _ = sphere.promoted(embeddings, self.weights)
        with torch.no_grad():
            lengths = sphere.norms(raw.detach()).clamp(1e-3, 100)
            if self.training and len(lengths) > 1:
                for running, value in ((self.mean, lengths.mean()), (self.deviation, lengths.std())):
                    moved = torch.lerp(running, value.to(running.dtype), self.rho)
                    running.copy_(torch.where(moved.isfinite(), moved, running))
            places = (lengths - self.mean.to(lengths)) / (self.deviation.to(lengths) + 1e-3)
            places = (places * self.sharpness).clamp(-1, 1)
        return _softmax(embeddings, labels, self.weights, places, self._target, self.scale)

    def _target(self, cosines: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """cos(angle - margin place) - margin (1 + place), the angle kept within 0 and pi."""
        sines, by_cosine = _sines(cosines)
        angles = torch.atan2(sines, cosines) - self.margin * places
        within = (angles > 1e-3) & (angles < math.pi - 1e-3)
        cos, sin = (self.margin * places).cos(), (self.margin * places).sin()
        turned = torch.where(within, cosines * cos + sines * sin, angles.clamp(1e-3, math.pi - 1e-3).cos())
        slopes = torch.where(within, cos + sin * by_cosine, 0)
        return turned - self.margin * (1 + places), slopes, torch.zeros_like(slopes)

    def extra_repr(self) -> str:
        shape = f"dim={self.weights.shape[1]}, classes={len(self.weights)}"
        return f"{shape}, margin={self.margin}, sharpness={self.sharpness}, scale={self.scale}, rho={self.rho}"
