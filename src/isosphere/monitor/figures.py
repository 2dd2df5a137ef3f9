"""What is computed of embeddings, gradients and turned angles, without reading a value from the device."""

import math

import torch
from torch import Tensor

from isosphere import sphere

FIGURES = (
    "norm_mean", "norm_variance", "norm_cv", "norm_min", "norm_max",
    "not_finite",  # how many embeddings have no finite norm; the other figures are of those that have
    "lr_proxy_mean", "lr_proxy_cv",  # alpha / |f|^power, the learning rate of a direction if embeddings moved freely
    "radial_share",  # of the squared gradient by the embeddings, over the batch; tangential_share is the rest
)  # fmt: skip
PADDING = -1.0  # in place of a norm, in the rows of batches smaller than others


@torch.no_grad()
def norm_record(embeddings: Tensor, gradients: Tensor | None = None) -> Tensor:
    """What figures are made of, (N, D), and perhaps the gradients (N, D) -> (3, N). It is pure: a CUDA graph may hold
    it.
    """
    lengths = sphere.norms(embeddings)
    if gradients is None:
        unseen = torch.full_like(lengths, torch.nan)
        return torch.stack([lengths, unseen, unseen])
    return torch.stack([lengths, *pull(embeddings, gradients)])


def pull(embeddings: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Products of embeddings and gradients, and the gradients' norms, (N, D) twice -> (N,) twice."""
    gradients = sphere.raised(gradients)
    return (embeddings * gradients).sum(-1), sphere.norms(gradients)


@torch.no_grad()
def norm_figures(records: Tensor, lr: Tensor | float = 1.0, power: int | None = 1) -> Tensor:
    """The FIGURES of R records, (R, 3, N) and their learning rates (R,) -> (R, 9), without reading a value.

    `power` is 2 for SGD with and without momentum (Propositions 3 and 4), 1 for Adam (Proposition 5). Without it the
    learning rate of directions is NaN.
    """
    lengths, along, sizes = records.unbind(1)  # (R, N) each
    finite, there = (lengths >= 0) & (lengths < torch.inf), lengths != PADDING
    mean, spread = _moments(lengths, finite)
    rates = torch.full_like(lengths, torch.nan) if power is None else lengths**-power
    rate, rate_spread = _moments(rates, finite & (lengths > 0))  # a zero vector has no direction to turn
    low, high = (torch.where(finite, lengths, edge) for edge in (torch.inf, -torch.inf))
    radial = torch.where(lengths > 0, along / lengths, 0)
    share = radial.square().sum(1) / torch.where(there, sizes, 0).square().sum(1)
    lost = (there & ~finite).sum(1).to(mean.dtype)
    found = mean, spread.square(), spread / mean, low.amin(1), high.amax(1), lost, lr * rate, rate_spread / rate, share
    return torch.stack(found, 1)


def recorded(figures: dict[str, float]) -> dict[str, float]:
    """Figures as records have them: only finite ones, and the tangential share next to the radial."""
    found = {name: value for name, value in figures.items() if math.isfinite(value)}
    if "not_finite" in found:
        found["not_finite"] = int(found["not_finite"])
    if "radial_share" in found:
        found["tangential_share"] = 1 - found["radial_share"]
    return found


def _moments(values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the values that count, (R, N) twice -> (R,) twice; NaN where none does."""
    count = counted.sum(1)
    mean = torch.where(counted, values, 0).sum(1) / count
    variance = torch.where(counted, values - mean.unsqueeze(1), 0).square().sum(1) / count
    return mean, variance.sqrt()


@torch.no_grad()
def turned(before: Tensor, after: Tensor) -> Tensor:
    """Angle in radians between two moments of each embedding, (N, D) twice -> (N,). NaN where one has no direction."""
    old, new = sphere.directions(before), sphere.directions(after)
    angles = 2 * torch.atan2(sphere.norms(old - new), sphere.norms(old + new))  # exact also where arccos is blind
    return torch.where((sphere.norms(before) > 0) & (sphere.norms(after) > 0), angles, torch.nan)


def turn_figures(lengths: Tensor, angles: Tensor) -> dict[str, float]:
    """Mean and variance of angles (N,), and the least-squares slope of log angle by log norm (N,), with its error."""
    lengths, angles = lengths.cpu().double(), angles.cpu().double()  # not every device has float64
    known = angles[angles.isfinite()]
    able = (angles > 0) & (lengths > 0) & lengths.isfinite()
    x, y = lengths[able].log(), angles[able].log()
    x, y = x - x.mean(), y - y.mean()
    slope = (x * y).sum() / x.square().sum()
    error = ((y - slope * x).square().sum() / (len(x) - 2) / x.square().sum()).sqrt() if len(x) > 2 else math.nan
    found = known.mean(), known.var(correction=0), slope, error
    names = ("turn_mean", "turn_variance", "turn_slope", "turn_slope_error")
    return {name: float(value) for name, value in zip(names, found, strict=True)}
