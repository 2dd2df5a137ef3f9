"""Class weights: margins by their angles, classifiers and proxies against loops, PML and torch's own cross-entropy."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as pml

import references
from isosphere.losses import classes, margins, slopes
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
AMOUNTS = {"normface": 0.0, "cosface": 0.35, "arcface": 0.45, "sphereface": 3}
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


def reference(name: str, f: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    if name == "linear":
        return references.linear_softmax(f, y, weights)
    if name == "proxies":
        return references.proxy_anchor(f, y, weights)
    return references.cosine_softmax(f, y, weights, name, AMOUNTS[name])


@pytest.fixture(params=HEADS)
def name(request) -> str:
    return request.param


def test_equals_the_loops(name: str) -> None:
    f, (module, weights) = batch(), head(name)
    ours, theirs = module(f, LABELS), reference(name, f, LABELS, weights)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad(loss, (f, weights)) for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


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


def test_an_empty_batch_gives_a_zero_that_backpropagates(name: str) -> None:
    f, (module, weights) = batch()[:0], head(name)
    loss = module(f, LABELS[:0])
    gradients = torch.autograd.grad(loss, (f, weights))
    assert loss == 0 and gradients[0].shape == (0, 6) and not gradients[1].any()


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


@pytest.mark.parametrize(
    "kind, wrong, told",
    [
        (SphereFace, (1.5, 0, 11, math.nan), "a whole number from 1 to 10"),
        (CosFace, (-0.1, 1.1, 35, math.nan), r"a difference of cosines in \[0, 1\]"),
        (ArcFace, (-0.1, 1.6, 28.6, math.nan), r"an angle in radians in \[0, pi / 2\]"),
    ],
)
def test_amounts_that_are_no_margin_are_refused(kind: type, wrong: tuple[float, ...], told: str) -> None:
    for margin in wrong:
        with pytest.raises(ValueError, match=f"{kind.__name__}.* {told}, not {margin}"):
            kind(margin)
    for margin in (1, 10) if kind is SphereFace else (0, 1.0) if kind is CosFace else (0, math.pi / 2):
        assert kind(margin)(torch.zeros(1)).isfinite()


@pytest.mark.parametrize("bad", [0.35, CosFace, None])
def test_a_margin_that_cannot_be_called_is_refused(bad) -> None:
    f, weights = batch(), torch.ones(5, 6, dtype=torch.float64)
    for make in (lambda: CosineClassifier(8, 3, bad), lambda: margins.cosine_softmax(f, LABELS, weights, bad)):
        with pytest.raises(TypeError, match=r"margin must be callable such as CosFace\(0.35\), not"):
            make()


@pytest.mark.parametrize("bad", [0, -1.0])
def test_a_scale_that_is_not_positive_is_refused(bad: float) -> None:
    f, weights = batch(), torch.ones(5, 6, dtype=torch.float64)
    for make in (
        lambda: CosineClassifier(8, 3, scale=bad),
        lambda: ProxyAnchorLoss(8, 3, scale=bad),
        lambda: margins.cosine_softmax(f, LABELS, weights, scale=bad),
        lambda: margins.proxy_anchor(f, LABELS, weights, scale=bad),
    ):
        with pytest.raises(ValueError, match=f"scale must be a positive number, not {bad}"):
            make()


def test_gradcheck(name: str) -> None:
    module, weights = head(name, dim=3)

    def loss(f: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {next(iter(module.state_dict())): w}, (f, LABELS))

    assert torch.autograd.gradcheck(loss, (batch(3, seed=3), (30 * weights).detach().requires_grad_()))


@pytest.mark.parametrize("name", sorted(set(HEADS) - {"linear"}))
def test_proposition_1_for_embeddings_and_weights(name: str) -> None:
    f, (module, weights) = batch(), head(name)
    for values, gradient in zip((f, weights), torch.autograd.grad(module(f, LABELS), (f, weights)), strict=True):
        assert gradient.norm() > 1e-3 and (gradient * values).sum(1).abs().max() < 1e-10
    torch.testing.assert_close(module(f * torch.arange(1, 9)[:, None], LABELS), module(f, LABELS))


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


def test_order_and_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, (module, weights) = batch(2), head(name, dim=2)
    order = torch.tensor([5, 1, 7, 0, 2, 6, 4, 3])
    torch.testing.assert_close(module(f[order], LABELS[order]), module(f, LABELS))
    loss = module(f, LABELS)
    whole = (loss, *torch.autograd.grad(loss, (f, weights)))
    for module_ in (slopes, classes):
        monkeypatch.setattr(module_, "BLOCK", 1)
    loss = module(f, LABELS)
    torch.testing.assert_close((loss, *torch.autograd.grad(loss, (f, weights))), whole)


def test_float32_under_autocast(name: str) -> None:
    module, weights = head(name)
    module.float()
    f = batch().detach().bfloat16().requires_grad_()
    exact = module(f.float(), LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module(f, LABELS)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact)
    gradient, weight_gradient = torch.autograd.grad(loss, (f, *module.parameters()))
    assert gradient.dtype == torch.bfloat16 and weight_gradient.dtype == torch.float32


@pytest.mark.parametrize("wide", ["embeddings", "weights"])
def test_two_types_are_computed_in_the_wider(name: str, wide: str) -> None:
    module, weights = head(name)
    weights.data = weights.data.float().double()  # the same numbers in both types
    f = batch().detach().float().double().requires_grad_()
    exact = module(f, LABELS)
    gradients, logits = torch.autograd.grad(exact, (f, weights)), None if name == "proxies" else module.logits(f)
    if wide == "embeddings":
        module.float()
    else:
        f = f.detach().float().requires_grad_()
    (weights,) = module.parameters()
    loss = module(f, LABELS)
    torch.testing.assert_close(loss, exact, rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(loss, (f, weights))
    assert [gradient.dtype for gradient in found] == [f.dtype, weights.dtype]
    torch.testing.assert_close([gradient.double() for gradient in found], list(gradients), rtol=1e-5, atol=1e-7)
    if logits is not None:
        torch.testing.assert_close(module.logits(f), logits, rtol=1e-12, atol=1e-12)


def test_zero_vectors_have_finite_loss_and_gradient(name: str) -> None:
    f, (module, _) = batch().detach(), head(name)
    f[2] = 0
    loss = module(f.requires_grad_(), LABELS)
    gradient = torch.autograd.grad(loss, f)[0]
    assert loss.isfinite() and gradient.isfinite().all() and (name == "linear" or not gradient[2].any())


def test_wrong_input_is_named(name: str) -> None:
    f, (module, weights) = batch(), head(name)
    for bad in (5, -1):
        with pytest.raises(ValueError, match=rf"labels must be in \[0, 5\), found {bad}"):
            module(f, torch.where(LABELS == 1, bad, LABELS))
    with pytest.raises(ValueError, match="8 embeddings need labels"):
        module(f, LABELS[:3])
    with pytest.raises(ValueError, match="embeddings row 6 of 8 is not finite"):
        module(torch.where(torch.arange(8)[:, None] == 6, torch.nan, f), LABELS)
    with pytest.raises(TypeError, match="embeddings must be a torch tensor, not ndarray"):
        module(f.detach().numpy(), LABELS)
    with pytest.raises(ValueError, match="embeddings have dimension 7, the class weights 6"):
        module(batch(7), LABELS)
    if name != "proxies":
        with pytest.raises(ValueError, match="embeddings have dimension 7, the class weights 6"):
            module.logits(batch(7))
    weights.data[2] = torch.inf
    with pytest.raises(ValueError, match=r"(weights|proxies) row 2 of 5 is not finite"):
        module(f, LABELS)


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
