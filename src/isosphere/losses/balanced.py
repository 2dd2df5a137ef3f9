"""Even updates with norms left alone: the gradient is divided by the mean norm, not by each own norm."""

import torch
from torch import Tensor

from isosphere import sphere

from .constraint import Constraint
from .transforms import once


class _BalancedDirections(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(embeddings: Tensor) -> tuple[Tensor, Tensor]:
        return sphere.directions(embeddings), sphere.norms(embeddings).mean()

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)
        ctx.save_for_forward(*inputs, *output)

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> Tensor | None:
        embeddings, unit, mean_norm = ctx.saved_tensors
        found = _turned(gradient, unit.detach(), mean_norm).to(embeddings.dtype)
        return once([found], gradient, (embeddings,))[0]

    @staticmethod
    def jvp(ctx, tangent: Tensor) -> tuple[Tensor | None, None]:
        embeddings, unit, mean_norm = ctx.saved_tensors
        return once([_turned(sphere.raised(tangent), unit, mean_norm)], tangent, (embeddings,))[0], None


def _turned(vectors: Tensor, unit: Tensor, mean_norm: Tensor) -> Tensor:
    """The parts of vectors (N, D) across the unit vectors, over the mean norm."""
    tangential = vectors - (vectors * unit).sum(-1, keepdim=True) * unit
    # A zero vector has no direction to turn, a batch of zeros no mean to divide by: both get zero.
    turnable = (unit != 0).any(-1, keepdim=True)
    return torch.where(turnable, tangential / torch.where(mean_norm > 0, mean_norm, 1), 0)


def balanced_directions(embeddings: Tensor) -> Tensor:
    """The directions f / |f|, (N, D) -> (N, D). The backward pass divides by the mean norm, not by each own.

    It is the other way to equal direction updates. Nothing pulls at the norms, and they no longer scale the gradient of
    Eq. 4. It is GradScale (Draganov et al., ICML 2025, arXiv 2502.09252) with p = 1, divided by the mean norm.
    """
    return _BalancedDirections.apply(embeddings)[0]


class BalancedDirections(Constraint):
    """`balanced_directions` as a constraint: the criterion's gradient is divided by the mean norm."""

    def inputs(self, embeddings: Tensor) -> Tensor:
        return balanced_directions(embeddings)
