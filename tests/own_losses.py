"""Pair losses as a user writes them: importable, so that they can be pickled and found by their path."""

import torch
from torch import Tensor
from torch.nn import functional as F

import isosphere


@isosphere.pair_loss
def multi_similarity(
    cosines: Tensor,
    positive: Tensor,
    negative: Tensor,
    alpha: float = 2.0,
    beta: float = 40.0,
    base: float = 0.5,
    epsilon: float = 0.1,
) -> Tensor:
    """The built-in loss by its formula."""
    nearest = torch.where(negative, cosines, -9).amax(1, keepdim=True)
    farthest = torch.where(positive, cosines, 9).amin(1, keepdim=True)
    pulls = torch.where(positive & (cosines < nearest + epsilon), torch.exp(-alpha * (cosines - base)), 0)
    pushes = torch.where(negative & (cosines > farthest - epsilon), torch.exp(beta * (cosines - base)), 0)
    return torch.log1p(pulls.sum(1)) / alpha + torch.log1p(pushes.sum(1)) / beta


def contrastive_by_autograd(
    cosines: Tensor, positive: Tensor, negative: Tensor, positive_margin: float = 1.0, negative_margin: float = 0.5
) -> Tensor:
    """The built-in loss by its formula, as a function that is not decorated."""
    pulls = torch.where(positive, F.relu(positive_margin - cosines), 0)
    return (pulls + torch.where(negative, F.relu(cosines - negative_margin), 0)).sum(1)


@isosphere.pair_loss(slopes=True)
def contrastive(
    cosines: Tensor, positive: Tensor, negative: Tensor, positive_margin: float = 1.0, negative_margin: float = 0.5
) -> tuple[Tensor, Tensor]:
    """The same, with its slopes in closed form."""
    losses = contrastive_by_autograd(cosines, positive, negative, positive_margin, negative_margin)
    pulls, pushes = positive & (cosines < positive_margin), negative & (cosines > negative_margin)
    return losses, pushes.to(cosines) - pulls.to(cosines)
