"""Class weights: margins by their angles, classifiers and proxies against PML and torch's own cross-entropy."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as pml

import references
from isosphere.losses import margins
from isosphere.losses.margins import (
    ArcFace,
    CosFace,
    CosineClassifier,
    LinearClassifier,
    NormFace,
    ProxyAnchorLoss,
    SphereFace,
)

LABELS = torch.tensor([3, 0, 3, 4, 0, 1, 4, 4])
MARGINS = {"normface": NormFace(), "cosface": CosFace(0.35), "arcface": ArcFace(0.45), "sphereface": SphereFace(3)}
HEADS = {
    **{name: lambda dim, classes, m=m: CosineClassifier(dim, classes, m) for name, m in MARGINS.items()},
    "linear": LinearClassifier,
    "proxies": ProxyAnchorLoss,
}


def batch(dim: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(8, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def head(name: str, dim: int = 6, classes: int = 5) -> tuple[torch.nn.Module, torch.nn.Parameter]:
    torch.manual_seed(1)
    module = HEADS[name](dim, classes).double()
    (weights,) = module.parameters()
    return module, weights


@pytest.fixture(params=HEADS)
def name(request) -> str:
    return request.param


@pytest.mark.parametrize(
    ("name", "oracle", "weight"),
    [
        ("arcface", lambda: pml.ArcFaceLoss(5, 6, margin=math.degrees(0.45), scale=64), "W"),
        ("cosface", lambda: pml.CosFaceLoss(5, 6, margin=0.35, scale=64), "W"),
        ("sphereface", lambda: pml.SphereFaceLoss(5, 6, margin=3, scale=64), "W"),
        ("normface", lambda: pml.NormalizedSoftmaxLoss(5, 6, temperature=1 / 64), "W"),
        ("proxies", lambda: pml.ProxyAnchorLoss(5, 6, margin=0.1, alpha=32), "proxies"),
    ],
)
def test_equals_pml(name: str, oracle, weight: str) -> None:
    f, (module, weights), oracle = torch.nn.functional.normalize(batch()), head(name), oracle().double()
    copy = weights.detach() if weight == "proxies" else weights.detach().T
    getattr(oracle, weight).data = copy.clone()
    torch.testing.assert_close(module(f, LABELS), oracle(f, LABELS), rtol=1e-9, atol=1e-9)


def test_linear_equals_cross_entropy() -> None:
    f, (module, weights) = batch(), head("linear")
    ours, theirs = module(f, LABELS), torch.nn.functional.cross_entropy(f @ weights.T, LABELS)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, (f, weights)), torch.autograd.grad(theirs, (f, weights)))


def test_margins_at_readable_angles() -> None:
    degrees = torch.tensor([0.0, 30, 60, 90, 120, 150, 180], dtype=torch.float64)
    cosines = torch.cos(torch.deg2rad(degrees))
    root = 3**0.5 / 2
    exact = {
        NormFace(): cosines,
        CosFace(0.35): cosines - 0.35,
        ArcFace(math.radians(30)): [root, 0.5, 0, -0.5, -root, -1, -1 - math.radians(30) / 2],
        SphereFace(1): cosines,
        SphereFace(2): [1, 0.5, -0.5, -1, -1.5, -2.5, -3],  # falls all the way, by hand from -cos(2 angle) - 2
        SphereFace(3): [1, 0, -1, -2, -3, -4, -5],
    }
    for margin, expected in exact.items():
        torch.testing.assert_close(margin(cosines), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("margin", [*MARGINS.values(), SphereFace(4), ArcFace(0.5)], ids=str)
def test_margins_fall_with_the_angle_and_have_finite_slopes(margin) -> None:
    angles = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
    values = margin(torch.cos(angles))
    assert (values.diff() < 1e-9).all() and (values <= torch.cos(angles) + 1e-12).all()
    for dtype in (torch.float32, torch.float64):
        poles = torch.tensor([-1 - 1e-7, -1, 1, 1 + 1e-7], dtype=dtype, requires_grad=True)
        (slopes_,) = torch.autograd.grad(margin(poles).sum(), poles)
        assert slopes_.isfinite().all() and margin(poles).isfinite().all()


@pytest.mark.parametrize("angle", [0.0, 0.45, 1.5])
def test_arcface_knows_its_slopes(angle: float) -> None:
    cosines = torch.tensor([-1 - 1e-7, -1, -0.99, -0.9, -0.3, 0, 0.5, 0.9999, 1, 1 + 1e-7], dtype=torch.float64)
    (slopes_,) = torch.autograd.grad(ArcFace(angle)(cosines.requires_grad_()).sum(), cosines)
    torch.testing.assert_close(ArcFace(angle).slopes(cosines.detach()), slopes_, rtol=1e-12, atol=1e-12)


def test_embeddings_on_their_class_weight_have_finite_gradients(name: str) -> None:
    module, weights = head(name)
    for sign in (1, -1):
        f = (sign * weights.detach()[LABELS]).requires_grad_()
        for values in (*torch.autograd.grad(module(f, LABELS), (f, weights)), module(f, LABELS)):
            assert values.isfinite().all()


def test_a_wide_gap_does_not_underflow() -> None:
    # scale 64: exp(-64 - 64) is zero in float32, the loss is 128 all the same
    module = CosineClassifier(2, 2, NormFace())
    module.weights.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    f = torch.tensor([[3.0, 0.0]], requires_grad=True)
    assert module(f, torch.tensor([1])).item() == pytest.approx(128)


def test_logits() -> None:
    f, (module, weights) = batch(), head("arcface")
    expected = torch.stack([64 * references.cosine(a, w) for a in f for w in weights]).view(8, 5)
    torch.testing.assert_close(module.logits(f), expected)
    module, weights = head("linear")
    torch.testing.assert_close(module.logits(f), f @ weights.T)


def test_weights_have_one_owner_a_small_spread_and_a_readable_repr() -> None:
    torch.manual_seed(0)
    module = CosineClassifier(256, 400, ArcFace(0.45))
    assert list(module.state_dict()) == ["weights"] and module.weights.shape == (400, 256)
    assert module.weights.std().item() == pytest.approx(0.01, rel=0.02)
    assert repr(module) == "CosineClassifier(dim=256, classes=400, margin=ArcFace(margin=0.45), scale=64.0)"
    assert repr(LinearClassifier(4, 9)) == "LinearClassifier(dim=4, classes=9)"
    assert repr(ProxyAnchorLoss(4, 9)) == "ProxyAnchorLoss(dim=4, classes=9, margin=0.1, scale=32.0)"


def test_a_part_of_many_weights_is_that_part_of_all() -> None:
    rows = 2**16 + 500  # drawn in two blocks
    torch.manual_seed(0)
    whole = margins.class_weights(2, rows)
    assert whole.shape == (rows, 2) and whole.std().item() == pytest.approx(0.01, rel=0.02)
    for part in (slice(0, 100), slice(300, 2**16 + 7), slice(2**16 + 1, rows)):
        torch.manual_seed(0)
        assert torch.equal(margins.class_weights(2, rows, part), whole[part])
    torch.manual_seed(0)
    few = margins.class_weights(3, 50)
    torch.manual_seed(0)
    assert torch.equal(few, torch.randn(50, 3) * 0.01)


def test_functional_takes_weights_of_anybody() -> None:
    f, (module, weights) = batch(), head("cosface")
    assert margins.cosine_softmax(f, LABELS, weights, CosFace(0.35), 64.0) == module(f, LABELS)
    module, weights = head("proxies")
    assert margins.proxy_anchor(f, LABELS, weights, 0.1, 32.0) == module(f, LABELS)
