"""Balanced directions against GradScale in plain loops."""

import math

import torch

import isosphere


def test_balanced_directions_are_gradscale_with_p_1_over_the_mean_norm():
    """GradScale (Draganov et al., ICML 2025) multiplies each embedding's gradient by |f|^p, transcribed in loops."""
    generator = torch.Generator().manual_seed(3)
    embeddings = (3 * torch.randn(10, 6, dtype=torch.float64, generator=generator)).requires_grad_()
    assert torch.equal(isosphere.balanced_directions(embeddings), isosphere.sphere.directions(embeddings))
    weights = torch.randn(10, 6, dtype=torch.float64, generator=generator)
    for loss in (
        lambda unit: (unit * weights).sum(),
        lambda unit: isosphere.functional.triplet(unit, torch.arange(10) % 3),
    ):
        found = torch.autograd.grad(loss(isosphere.balanced_directions(embeddings)), embeddings)[0]
        plain = torch.autograd.grad(loss(isosphere.sphere.directions(embeddings)), embeddings)[0]
        lengths = [math.sqrt(sum(x * x for x in row)) for row in embeddings.tolist()]
        scaled = [[length**1 * g for g in row] for length, row in zip(lengths, plain.tolist(), strict=True)]
        wanted = torch.tensor(scaled, dtype=torch.float64) / (sum(lengths) / len(lengths))
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_balanced_directions_of_zero_vectors():
    embeddings = torch.zeros(3, 4, requires_grad=True)
    isosphere.balanced_directions(embeddings).sum().backward()
    assert embeddings.grad.abs().sum() == 0
