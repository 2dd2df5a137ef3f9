"""Heads with several centers, binary heads, and heads whose margin depends on norms: what only they promise."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as pml

import isosphere
from isosphere.errors import Unsupported
from isosphere.losses.binary import _first_bias

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])


def rows(seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(8, 6, dtype=torch.float64, generator=generator)).requires_grad_()


def test_one_center_is_arcface():
    one = isosphere.SubCenterArcFace(6, 4, 0.3, 16.0, centers=1).double()
    plain = isosphere.CosineClassifier(6, 4, isosphere.ArcFace(0.3), 16.0).double()
    plain.weights.data.copy_(one.centers.data[:, 0])
    torch.testing.assert_close(one(rows(), LABELS), plain(rows(), LABELS))


def test_sub_centers_and_soft_triple_are_those_of_pml():
    ours = isosphere.SubCenterArcFace(6, 4, math.radians(28.6), 16.0, centers=3).double()
    theirs = pml.SubCenterArcFaceLoss(num_classes=4, embedding_size=6, margin=28.6, scale=16.0, sub_centers=3).double()
    theirs.W.data.copy_(ours.centers.data.flatten(0, 1).T)
    soft = isosphere.SoftTripleLoss(6, 4, centers=3, spread=0.0).double()
    other = pml.SoftTripleLoss(4, 6, centers_per_class=3, la=20, gamma=0.1, margin=0.01).double()
    other.fc.data.copy_(soft.centers.data.flatten(0, 1).T)
    for our, their in ((ours, theirs), (soft, other)):
        f = rows()
        values = our(f, LABELS), their(f, LABELS)
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*(torch.autograd.grad(value, f)[0] for value in values))


def test_the_first_bias_of_sphereface2_has_no_gradient_where_all_cosines_are_0():
    made = isosphere.SphereFace2(6, 50).double()
    f, labels = torch.zeros(4, 6, dtype=torch.float64), torch.arange(4)
    value = made(f, labels)
    (gradient,) = torch.autograd.grad(value, made.bias)
    assert abs(float(gradient)) < 1e-8 < 1e-3 < abs(_first_bias(50, 0.4, 40.0, 0.7, 3.0))


def test_magface_gives_long_embeddings_a_larger_margin_and_makes_short_ones_longer():
    made = isosphere.MagFace(6, 4, weight=0.0).double()
    values = [float(made(rows(scale=scale), LABELS).detach()) for scale in (1, 10, 40)]
    assert values[0] < values[1] < values[2]
    f, pulls = rows(scale=6.0), []
    for made.weight in (0.0, 35.0):
        pulls.append(torch.autograd.grad(made(f, LABELS), f)[0])
    lengths = f.detach().norm(dim=1)
    outward = ((pulls[0] - pulls[1]) * f.detach()).sum(1) / lengths
    inside = lengths > 10
    torch.testing.assert_close(outward, torch.where(inside, 35 / 8 * (lengths**-2 - 110**-2), 0))
    assert inside.any()


def test_adafaces_running_means_move_in_training_alone_and_stay_float32():
    made = isosphere.AdaFace(6, 4, rho=0.5)
    f = rows().float()
    lengths = f.detach().norm(dim=1)
    made(f, LABELS)
    assert float(made.mean) == pytest.approx((20 + float(lengths.mean())) / 2)
    assert float(made.deviation) == pytest.approx((100 + float(lengths.std())) / 2)
    before = float(made.mean)
    made.eval()(f, LABELS)
    assert float(made.mean) == before
    with pytest.raises(Unsupported):
        torch.func.grad(lambda f: made.train()(f, LABELS))(f.detach())
    assert "mean" in made.state_dict()


def test_adaface_takes_short_embeddings_for_hard_ones():
    made = isosphere.AdaFace(6, 4).double().eval()
    made.mean.fill_(3.0)
    made.deviation.fill_(1.0)
    cosines, short, long = (torch.tensor([[one]], dtype=torch.float64) for one in (0.5, -1.0, 1.0))
    low, high = (made._target(cosines, place)[0].item() for place in (short, long))
    assert low == pytest.approx(math.cos(math.acos(0.5) + 0.4))  # the margin is on the angle
    assert high == pytest.approx(math.cos(math.acos(0.5) - 0.4) - 0.8)  # and here on the cosine
