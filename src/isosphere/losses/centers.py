"""Softmax heads with several centers a class: sub-center ArcFace takes the nearest, SoftTriple a soft choice.

Cosines with all centers are computed for a block of rows at a time, so that (N, C K) is never whole.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable

import torch
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument

from .checks import check, check_numbers, check_positive
from .margins import ArcFace, check_margin, class_weights, keep_float32
from .slopes import rows_to_slopes, softmax
from .transforms import Computed, scalar, with_slopes

Pool = Callable[[Tensor], tuple[Tensor, Tensor]]  # cosines (R, C, K) -> those of classes (R, C), and slopes (R, C, K)


def nearest_center(cosines: Tensor) -> tuple[Tensor, Tensor]:
    """The largest cosine of each class."""
    best, place = cosines.max(2, keepdim=True)
    return best.squeeze(2), torch.zeros_like(cosines).scatter_(2, place, 1.0)


def soft_center(cosines: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The mean cosine of each class, weighed by a softmax of itself."""
    shares = torch.softmax(cosines / temperature, dim=2)
    mean = (shares * cosines).sum(2, keepdim=True)
    return mean.squeeze(2), shares * (1 + (cosines - mean) / temperature)


def several_centers(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    pool: Pool,
    margin: Callable[[Tensor], Tensor],
    scale: float,
) -> Tensor:
    """Mean cross-entropy of scaled, pooled cosines, the true one with a margin; (N, D), (N,), (C, K, D) -> scalar."""
    if centers.ndim != 3:
        raise BadArgument("centers", tuple(centers.shape), "of shape (C, K, D)")
    check(embeddings, labels, centers[:, 0])
    raw, promoted = sphere.promoted(embeddings, centers)
    unit, flat = sphere.directions(raw), sphere.directions(promoted).flatten(0, 1)
    classes, each = centers.shape[:2]

    def compute(gradients: bool, unit: Tensor, flat: Tensor, labels: Tensor) -> Computed:
        check(unit, labels, flat[::each])

        def rows(block: slice, cosines: Tensor) -> tuple[Tensor, Tensor]:
            pooled, by_center = pool(cosines.view(-1, classes, each))
            own = labels[block, None].long()
            targets, slopes = with_slopes(margin, pooled.gather(1, own))
            logits = scale * pooled.scatter(1, own, targets)
            logs = torch.log_softmax(logits, dim=1).gather(1, own)
            steps = scale * softmax(logits).scatter_(1, own, logs.expm1() * slopes)  # share - 1 of the true class
            return -logs.sum(), (steps[:, :, None] * by_center).flatten(1)

        value, by_unit, by_flat = rows_to_slopes(unit, flat, rows, gradients)
        return value, value.new_full((), max(1, len(unit))), (by_unit, by_flat)

    return scalar(compute, (unit, flat), (labels,), embeddings=embeddings, centers=centers.flatten(1))


def center_spread(centers: Tensor) -> Tensor:
    """Mean distance between the centers of a class, (C, K, D) -> scalar; 0 for one center."""
    classes, each = centers.shape[:2]
    upper = torch.ones(each, each, device=centers.device, dtype=torch.bool).triu(1)

    def compute(gradients: bool, unit: Tensor) -> Computed:
        with torch.autocast(unit.device.type, enabled=False):
            squares = (2 - 2 * unit @ unit.transpose(1, 2)).clamp(min=0)
            distances = (squares + 1e-5).sqrt()  # as its authors, so that the root has a slope
            slopes = torch.where(upper, -1 / distances, 0)
            by_unit = (slopes + slopes.transpose(1, 2)) @ unit
        return (distances * upper).sum(), distances.new_full((), max(1, classes * each * (each - 1))), (by_unit,)

    return scalar(compute, (sphere.directions(centers),), centers=centers.flatten(1))


class _Centers(nn.Module):
    """What both heads have: centers (classes, each, dim), in float32 even after `.half()`."""

    def __init__(self, dim: int, classes: int, each: int) -> None:
        super().__init__()
        if not isinstance(each, int) or isinstance(each, bool) or each < 1:
            raise BadArgument("centers", each, "a whole number of at least 1")
        self.centers = nn.Parameter(class_weights(dim, classes * each).data.view(classes, each, dim))

    _apply = keep_float32

    def extra_repr(self) -> str:
        classes, each, dim = self.centers.shape
        return f"dim={dim}, classes={classes}, centers={each}"


class SubCenterArcFace(_Centers):
    """Sub-center ArcFace (Deng et al., ECCV 2020): the margin is on the nearest of a class's centers.

    It is for labels with noise: a class's images may gather around several centers.
    """

    def __init__(self, dim: int, classes: int, margin: float = 0.5, scale: float = 64.0, centers: int = 3) -> None:
        super().__init__(dim, classes, centers)
        check_positive(scale=scale)
        self.margin, self.scale = ArcFace(margin), scale
        check_margin(self.margin)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return several_centers(embeddings, labels, self.centers, nearest_center, self.margin, self.scale)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin.margin}, scale={self.scale}"


class SoftTripleLoss(_Centers):
    """SoftTriple (Qian et al., ICCV 2019): softmax over soft choices among centers, which `spread` pulls together."""

    def __init__(
        self,
        dim: int,
        classes: int,
        margin: float = 0.01,
        scale: float = 20.0,
        centers: int = 10,
        temperature: float = 0.1,
        spread: float = 0.2,
    ) -> None:
        super().__init__(dim, classes, centers)
        check_positive(scale=scale, temperature=temperature)
        check_numbers(0, margin=margin, spread=spread)
        self.margin, self.scale, self.temperature, self.spread = margin, scale, temperature, spread

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        def pool(cosines: Tensor) -> tuple[Tensor, Tensor]:
            return soft_center(cosines, self.temperature)

        def margin(cosines: Tensor) -> Tensor:
            return cosines - self.margin

        value = several_centers(embeddings, labels, self.centers, pool, margin, self.scale)
        _, centers = sphere.promoted(embeddings, self.centers)
        return value + self.spread * center_spread(centers) * bool(len(labels))

    def extra_repr(self) -> str:
        settings = f"margin={self.margin}, scale={self.scale}, temperature={self.temperature}, spread={self.spread}"
        return f"{super().extra_repr()}, {settings}"
