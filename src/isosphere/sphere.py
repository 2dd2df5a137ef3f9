"""The algebra of embeddings on a sphere: norms, directions, cosines and how far a step turns a direction.

Half-precision inputs are raised to float32, and autocast is switched off for the products. Losses with a scale of 40 or
64 cannot stand bfloat16 cosines. Float64 stays float64, and of two types the wider is taken.
"""

import torch
from torch import Tensor

UNIT = 4e-3
"""Distance from 1 within which norms are those of a normalized output, by mean and coefficient of variation: bfloat16
rounds to 2e-3 at most, in practice with a spread of 1.5e-3 to 1.8e-3. Training does not get there by itself."""
SPREADING = 0.2
"""Coefficient of variation from which norms spread: an embedding one standard deviation below the mean turns 1.5 times
(Adam) or 2.25 times (SGD) as far as one above it. Our training runs without a constraint lie at 0.2 to 0.45, those with
SEC below; on test images (`results/retrieval_*.json`) it is 0.15 to 0.52 and 0.07 to 0.14."""


def raised(values: Tensor) -> Tensor:
    """Half precision becomes float32; float32 and float64 are returned as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def promoted(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their two types, at least float32. Each gradient comes back in its tensor's own."""
    left, right = raised(left), raised(right)
    dtype = torch.promote_types(left.dtype, right.dtype)
    return left.to(dtype), right.to(dtype)


def norms(embeddings: Tensor) -> Tensor:
    """The length of each embedding, (..., D) -> (...), at least float32; its gradient at a zero vector is zero."""
    return torch.linalg.vector_norm(raised(embeddings), dim=-1)


def is_normalized(mean: float, spread: float) -> bool:
    """Whether norms of this mean and coefficient of variation are those of a model that normalizes its output."""
    return abs(mean - 1) < UNIT and spread < UNIT


def directions(embeddings: Tensor) -> Tensor:
    """Unit vectors f / |f|, (..., D) -> (..., D); a zero vector has direction zero and gradient zero."""
    embeddings = raised(embeddings)  # once, so that a half-precision gradient is not summed up in halves
    lengths = norms(embeddings)
    # The inner `where` keeps 1 / 0 out of the backward pass, the outer one makes value and gradient zero.
    inverse = torch.where(lengths > 0, 1 / torch.where(lengths > 0, lengths, 1), 0)
    # 0 * inf is NaN: a norm that overflows must show, and not pass for a zero vector.
    return embeddings * (inverse + 0 * lengths).unsqueeze(-1)


def products(left: Tensor, right: Tensor) -> Tensor:
    """All inner products (N, D), (M, D) -> (N, M), never in half precision, whatever autocast says."""
    with torch.autocast(left.device.type, enabled=False):
        left, right = promoted(left, right)
        return left @ right.T


def cosines(embeddings: Tensor, references: Tensor | None = None) -> Tensor:
    """Cosines of all pairs, (N, D), (M, D) -> (N, M); without references, of the embeddings among themselves."""
    if references is None:
        unit = directions(embeddings)
        return products(unit, unit)
    left, right = promoted(embeddings, references)
    return products(directions(left), directions(right))


def tan_direction_change(embeddings: Tensor, gradients: Tensor, lr: float = 1.0) -> Tensor:
    """Tangent of the angle by which f - lr * g turns away from f, (N, D) twice -> (N,). Eq. 6 where g is orthogonal."""
    unit, gradients = directions(embeddings), raised(gradients)
    radial = (unit * gradients).sum(-1)
    tangential = norms(gradients - radial.unsqueeze(-1) * unit)
    return lr * tangential / (norms(embeddings) - lr * radial)
