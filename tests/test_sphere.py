"""The algebra, and the paper's propositions about how far a step turns an embedding."""

import math

import pytest
import torch

from isosphere import functional, sphere
from references import pair_masks


def unit(degrees: float) -> list[float]:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]


def test_cosines_and_chords_at_readable_angles():
    embeddings = torch.tensor([unit(0), unit(60), unit(180)]) * torch.tensor([[3.0], [0.5], [7.0]])
    wanted = torch.tensor([[1, 0.5, -1], [0.5, 1, -0.5], [-1, -0.5, 1]])
    torch.testing.assert_close(sphere.cosines(embeddings), wanted)
    torch.testing.assert_close(sphere.norms(embeddings), torch.tensor([3, 0.5, 7.0]))
    distances = torch.cdist(sphere.directions(embeddings), sphere.directions(embeddings)).square()
    torch.testing.assert_close(2 - 2 * sphere.cosines(embeddings), distances, atol=1e-5, rtol=0)


def test_a_zero_vector_has_direction_zero_and_gradient_zero():
    embeddings = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    directions = sphere.directions(embeddings)
    (directions.sum() + sphere.norms(embeddings).sum()).backward()
    assert directions[0].tolist() == [0, 0]
    assert embeddings.grad[0].tolist() == [0, 0] and embeddings.grad.isfinite().all()


def test_a_norm_that_overflows_shows():
    assert sphere.directions(torch.full((1, 4), 1e30)).isnan().all()
    assert sphere.directions(torch.full((1, 4), 1e30, dtype=torch.float64))[0].tolist() == pytest.approx([0.5] * 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_raised_and_autocast_is_kept_out(dtype):
    embeddings = torch.randn(6, 64).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        cosines = sphere.cosines(embeddings)
        lengths = sphere.norms(embeddings)
    assert cosines.dtype == lengths.dtype == torch.float32
    torch.testing.assert_close(cosines.double(), sphere.cosines(embeddings.double()), atol=1e-5, rtol=0)
    assert sphere.norms(embeddings.double()).dtype == torch.float64


def test_of_two_types_the_wider_is_taken():
    wide, narrow = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4)
    for function in (sphere.products, sphere.cosines):
        exact = function(wide, narrow.double())
        torch.testing.assert_close(function(wide, narrow), exact, rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(function(narrow, wide), exact.T, rtol=1e-14, atol=1e-14)
    assert sphere.products(wide.bfloat16(), narrow).dtype == torch.float32


def some_batch(spread: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(12, 8, dtype=torch.float64, generator=generator)
    scale = torch.exp(spread * torch.randn(12, 1, dtype=torch.float64, generator=generator))
    return embeddings * scale, torch.arange(4).repeat_interleave(3)


LOSSES = {
    "triplet": lambda f, y: functional.triplet(f, y, 1.0),
    "semihard": lambda f, y: functional.semihard_triplet(f, y, 0.2),
    "npair": lambda f, y: functional.npair(f, y, 25.0),
    "multi-similarity": functional.multi_similarity,
}


def gradient(loss, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    leaf = embeddings.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, labels), leaf)[0]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_proposition_1_the_gradient_is_orthogonal_to_its_embedding(loss):
    embeddings, labels = some_batch()
    slopes = gradient(loss, embeddings, labels)
    assert slopes.abs().max() > 1e-3
    assert ((embeddings * slopes).sum(1).abs() <= 1e-12 * embeddings.norm(dim=1) * slopes.norm(dim=1) + 1e-14).all()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_proposition_2_the_change_of_direction_falls_with_the_square_of_the_norm(loss):
    embeddings, labels = some_batch(spread=0.0)
    longer = embeddings.clone()
    longer[4] *= 3
    before = sphere.tan_direction_change(embeddings, gradient(loss, embeddings, labels))
    after = sphere.tan_direction_change(longer, gradient(loss, longer, labels))
    wanted = before.clone()
    wanted[4] /= 9
    torch.testing.assert_close(after, wanted)


def test_tan_is_the_angle_that_a_step_turns():
    embeddings, labels = some_batch()
    slopes = gradient(LOSSES["triplet"], embeddings, labels) + 0.1 * embeddings  # with a radial part, as SEC adds
    moved = embeddings - 0.3 * slopes
    cosine = torch.nn.functional.cosine_similarity(embeddings, moved)
    wanted = torch.tan(torch.arccos(cosine.clamp(max=1)))
    torch.testing.assert_close(sphere.tan_direction_change(embeddings, slopes, lr=0.3), wanted, atol=1e-6, rtol=1e-4)


def tangent_projection(direction: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return vector - direction * (direction * vector).sum(-1, keepdim=True)


def second_order(error) -> None:
    """error(alpha) must fall by about 100 when alpha falls by 10."""
    large, small = error(1e-3), error(1e-4)
    assert large > 1e-12, "the step must be large enough to show an error at all"
    assert small < large / 50


def setting():
    embeddings, labels = some_batch(spread=0.5)
    direction = sphere.directions(embeddings)
    length = embeddings.norm(dim=1, keepdim=True)
    by_direction = gradient(lambda d, y: _of_directions(d, y), direction, labels)
    return embeddings, labels, direction, length, by_direction


def _of_directions(directions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A smooth angular loss as a function of the unit vectors themselves: dL / d f-hat of the propositions."""
    cosines = directions @ directions.T
    positive, negative = pair_masks(labels)
    return (torch.where(negative, (3 * cosines).exp(), 0) - torch.where(positive, 2 * cosines, 0)).sum()


def of_embeddings(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _of_directions(sphere.directions(embeddings), labels)


def test_proposition_3_sgd():
    embeddings, labels, direction, length, by_direction = setting()
    slopes = gradient(of_embeddings, embeddings, labels)

    def error(alpha: float) -> float:
        moved = sphere.directions(embeddings - alpha * slopes)
        predicted = direction - alpha / length**2 * tangent_projection(direction, by_direction)
        return float((moved - predicted).norm())

    second_order(error)


def test_proposition_4_momentum():
    embeddings, labels, direction, length, by_direction = setting()
    slopes, beta = gradient(of_embeddings, embeddings, labels), 0.9
    velocity = torch.randn(embeddings.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def error(alpha: float) -> float:
        moved = sphere.directions(embeddings - alpha * (beta * velocity + slopes))
        inner = length * beta * velocity + tangent_projection(direction, by_direction)
        predicted = direction - alpha / length**2 * tangent_projection(direction, inner)
        return float((moved - predicted).norm())

    second_order(error)


def test_proposition_5_adam_with_a_scalar_second_moment():
    embeddings, labels, direction, length, by_direction = setting()
    slopes, first, second, step = gradient(of_embeddings, embeddings, labels), 0.9, 0.999, 7
    generator = torch.Generator().manual_seed(1)
    velocity = torch.randn(embeddings.shape, dtype=torch.float64, generator=generator)
    square = torch.rand(len(embeddings), 1, dtype=torch.float64, generator=generator)
    bias = math.sqrt(1 - second**step) / (1 - first**step)

    def error(alpha: float) -> float:
        new_velocity = first * velocity + (1 - first) * slopes
        new_square = second * square + (1 - second) * slopes.square().sum(1, keepdim=True)
        moved = sphere.directions(embeddings - alpha * bias * new_velocity / new_square.sqrt())
        tangential = tangent_projection(direction, by_direction)
        above = length * first * velocity + (1 - first) * tangential
        below = (length**2 * second * square + (1 - second) * (by_direction * tangential).sum(1, keepdim=True)).sqrt()
        predicted = direction - alpha / length * tangent_projection(direction, bias * above / below)
        return float((moved - predicted).norm())

    second_order(error)
