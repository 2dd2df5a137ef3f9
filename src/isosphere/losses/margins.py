"""Losses against class weights: plain softmax, softmax of cosines with a margin (Eq. 19), proxy anchor.

A margin maps the cosine of the true class to a smaller one. The classifier owns the class weights and is given the
margin. A margin may have a method `slopes`, its derivative, which is quicker than autograd. Embeddings and weights may
differ in type, float32 and float64. Then the loss is float64, and each gradient has its tensor's type.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument

from .checks import check, check_dim, check_numbers, check_positive
from .classes import class_softmax
from .slopes import log1p_sum_exp, rows_to_slopes
from .transforms import Computed, scalar


@dataclass(frozen=True)
class NormFace:
    """No margin, for `CosineClassifier(dim, classes, NormFace())`: cos."""

    def __call__(self, cosines: Tensor) -> Tensor:
        return cosines


@dataclass(frozen=True)
class CosFace:
    """A margin for `CosineClassifier(dim, classes, CosFace())`: cos - margin (Eq. 19)."""

    margin: float = 0.35

    def __post_init__(self) -> None:
        check_numbers(0, 1, margin=self.margin)

    def __call__(self, cosines: Tensor) -> Tensor:
        return cosines - self.margin


@dataclass(frozen=True)
class ArcFace:
    """A margin for `CosineClassifier(dim, classes, ArcFace())`: cos(angle + margin).

    Beyond the angle pi - margin it is cos - margin sin(margin), which goes on falling.
    """

    margin: float = 0.45

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= math.pi / 2:
            raise BadArgument("margin", self.margin, "an angle in radians from 0 to pi / 2")

    def __call__(self, cosines: Tensor) -> Tensor:
        # at cos = +-1 the root's slope is infinite: clamped it is zero, and 1e-18 is lost next to 1
        sines = (1 - cosines * cosines).clamp(min=1e-36).sqrt()
        turned = cosines * math.cos(self.margin) - sines * math.sin(self.margin)
        return torch.where(cosines >= -math.cos(self.margin), turned, cosines - self.margin * math.sin(self.margin))

    def slopes(self, cosines: Tensor) -> Tensor:
        """d target / d cosine, (N,) -> (N,), in half the kernels that autograd takes."""
        cosecants = (1 - cosines * cosines).rsqrt().nan_to_num(0, 0)  # at cos = +-1 set to zero, as the root above
        turned = math.cos(self.margin) + math.sin(self.margin) * cosines * cosecants
        return turned.masked_fill(cosines < -math.cos(self.margin), 1)


@dataclass(frozen=True)
class SphereFace:
    """A margin for `CosineClassifier(dim, classes, SphereFace())`: (-1)^k cos(margin * angle) - 2k.

    With k = floor(margin * angle / pi) it falls from 1 to 1 - 2 margin.
    """

    margin: int = 3

    def __post_init__(self) -> None:
        if self.margin not in range(1, 11):
            raise BadArgument("margin", self.margin, "a whole number from 1 to 10, by which angles are multiplied")

    def __call__(self, cosines: Tensor) -> Tensor:
        previous, multiple = torch.ones_like(cosines), cosines
        for _ in range(int(self.margin) - 1):  # Chebyshev: cos(m angle) as a polynomial, with slopes finite everywhere
            previous, multiple = multiple, 2 * cosines * multiple - previous
        turns = sum((cosines < math.cos(k * math.pi / self.margin)).to(cosines) for k in range(1, int(self.margin)))
        return (1 - 2 * (turns % 2)) * multiple - 2 * turns


def cosine_softmax(
    embeddings: Tensor,
    labels: Tensor,
    weights: Tensor,
    margin: Callable[[Tensor], Tensor] = NormFace(),  # noqa: B008, it is frozen
    scale: float = 64.0,
    products: torch.dtype | None = None,
) -> Tensor:
    """Mean cross-entropy of scaled cosines, the true class's with a margin; (N, D), (N,), weights (C, D) -> scalar.

    The logits are never whole, so a million classes are welcome. `products` of torch.bfloat16 rounds the directions
    that are multiplied, for speed on a GPU. The softmax and the true class's cosine stay in float32.
    """
    check_positive(scale=scale)
    check_margin(margin)
    check(embeddings, labels, weights)
    queries, raw = sphere.promoted(embeddings, weights)
    sources = {"embeddings": embeddings, "weights": weights}
    return class_softmax(queries, raw, labels, margin, scale, products=products, sources=sources)


def proxy_anchor(
    embeddings: Tensor, labels: Tensor, proxies: Tensor, margin: float = 0.1, scale: float = 32.0
) -> Tensor:
    """Proxy anchor loss: soft sums over the batch for each proxy; (N, D), (N,), proxies (C, D) -> scalar."""
    check_positive(scale=scale)
    check_numbers(margin=margin)
    check(embeddings, labels, proxies)
    raw, centers = sphere.promoted(embeddings, proxies)
    unit, centers = sphere.directions(raw), sphere.directions(centers)

    def compute(gradients: bool, unit: Tensor, centers: Tensor, labels: Tensor) -> Computed:
        check(unit, labels, centers)
        classes = torch.arange(len(centers), device=labels.device)
        present = torch.zeros_like(classes).scatter_(0, labels.long(), 1).sum().clamp(min=1)

        def block_rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            positive = classes[block, None] == labels
            pull, pulls = log1p_sum_exp(-scale * cosines, positive, scale * margin)
            push, pushes = log1p_sum_exp(scale * cosines, ~positive, scale * margin)
            slopes = scale * (pushes / len(centers) - pulls / present)
            return pull.sum() / present + push.sum() / len(centers), slopes

        value, center_gradient, gradient = rows_to_slopes(centers, unit, block_rows, gradients)
        return value, torch.ones_like(value), (gradient, center_gradient)

    return scalar(compute, (unit, centers), (labels,), embeddings=embeddings, proxies=proxies)


def check_margin(margin: Callable[[Tensor], Tensor]) -> None:
    """Refuse what is not a margin, a function of cosines."""
    if not callable(margin) or isinstance(margin, type):
        raise BadArgument("margin", margin, "a function of cosines such as CosFace(0.35)")


def class_weights(dim: int, classes: int, part: slice = slice(None)) -> nn.Parameter:
    """Class weights (classes, dim), or a part of these rows, drawn with standard deviation 0.01 from one sequence."""
    begin, end, _ = part.indices(classes)
    weights = torch.empty(end - begin, dim)
    for start in range(0, classes, 2**16):  # a rank draws all blocks and keeps its own rows
        block = torch.randn(min(2**16, classes - start), dim)
        low, high = max(begin, start), max(begin, start, min(end, start + len(block)))
        weights[low - begin : high - begin] = block[low - start : high - start] * 0.01
    return nn.Parameter(weights)


def keep_float32(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """`_apply` of a head that keeps its weights under `.half()`: small steps round away there, and norms overflow."""
    before = {name: weights.data for name, weights in self.named_parameters(recurse=False)}
    nn.Module._apply(self, fn, recurse)
    for name, weights in self.named_parameters(recurse=False):
        if weights.dtype in (torch.float16, torch.bfloat16):
            weights.data = before[name].to(weights.device)
    return self


class LinearClassifier(nn.Module):
    """Plain softmax over class weights (classes, dim), without bias and without normalization.

    With a `length` all embeddings get that norm first: L2-constrained softmax (Ranjan et al., 2017).
    """

    def __init__(self, dim: int, classes: int, length: float | None = None) -> None:
        super().__init__()
        if length is not None:
            check_positive(length=length)
        self.weights, self.length = class_weights(dim, classes), length

    def logits(self, embeddings: Tensor) -> Tensor:
        """Scores of all classes, (N, D) -> (N, C)."""
        check_dim(embeddings, self.weights)
        raw, weights = sphere.promoted(embeddings, self.weights)
        return sphere.products(self._scaled(raw), weights)

    def _scaled(self, embeddings: Tensor) -> Tensor:
        return embeddings if self.length is None else self.length * sphere.directions(embeddings)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check(embeddings, labels, self.weights)
        raw, weights = sphere.promoted(embeddings, self.weights)
        sources = {"embeddings": embeddings, "weights": self.weights}
        return class_softmax(self._scaled(raw), weights, labels, normalized=False, sources=sources)

    _apply = keep_float32

    def extra_repr(self) -> str:
        shape = f"dim={self.weights.shape[1]}, classes={len(self.weights)}"
        return shape if self.length is None else f"{shape}, length={self.length}"


class CosineClassifier(nn.Module):
    """`cosine_softmax` as a criterion that owns the class weights (classes, dim), in float32 even after `.half()`."""

    def __init__(
        self,
        dim: int,
        classes: int,
        margin: Callable[[Tensor], Tensor] = NormFace(),  # noqa: B008
        scale: float = 64.0,
        products: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(scale=scale)
        check_margin(margin)
        self.weights = class_weights(dim, classes)
        self.margin, self.scale, self.products = margin, scale, products

    def logits(self, embeddings: Tensor) -> Tensor:
        """Scaled cosines with all classes, without margin, (N, D) -> (N, C)."""
        check_dim(embeddings, self.weights)
        return self.scale * sphere.cosines(embeddings, self.weights)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return cosine_softmax(embeddings, labels, self.weights, self.margin, self.scale, self.products)

    _apply = keep_float32

    def extra_repr(self) -> str:
        return f"dim={self.weights.shape[1]}, classes={len(self.weights)}, margin={self.margin}, scale={self.scale}"


class ProxyAnchorLoss(nn.Module):
    """`proxy_anchor` as a criterion that owns the proxies (classes, dim)."""

    def __init__(self, dim: int, classes: int, margin: float = 0.1, scale: float = 32.0) -> None:
        super().__init__()
        check_positive(scale=scale)
        check_numbers(margin=margin)
        self.proxies = class_weights(dim, classes)
        self.margin, self.scale = margin, scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return proxy_anchor(embeddings, labels, self.proxies, self.margin, self.scale)

    _apply = keep_float32

    def extra_repr(self) -> str:
        shape = f"dim={self.proxies.shape[1]}, classes={len(self.proxies)}"
        return f"{shape}, margin={self.margin}, scale={self.scale}"
