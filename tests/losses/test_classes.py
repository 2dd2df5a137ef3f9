"""Many classes in chunks: value and gradient of a plain softmax over whole logits, whatever the size of a chunk."""

import pytest
import torch
from torch import Tensor, nn

import references
from isosphere.errors import BadArgument, LossOverflow, Unsupported
from isosphere.losses import classes
from isosphere.losses.margins import (
    ArcFace,
    CosFace,
    CosineClassifier,
    LinearClassifier,
    NormFace,
    ProxyAnchorLoss,
    SphereFace,
)

MARGINS = {"normface": NormFace(), "cosface": CosFace(0.35), "arcface": ArcFace(0.45), "sphereface": SphereFace(3)}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def data(rows: int = 7, dim: int = 5, count: int = 11, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    f, w = (torch.randn(n, dim, generator=generator, dtype=torch.float64).requires_grad_() for n in (rows, count))
    return f, w, torch.randint(count, (rows,), generator=generator)


def plain(f: Tensor, y: Tensor, w: Tensor, margin, scale: float = 16.0) -> Tensor:
    """Whole logits, torch's own normalization and cross-entropy, gradients by autograd."""
    cosines = nn.functional.normalize(f) @ nn.functional.normalize(w).T
    true = nn.functional.one_hot(y, len(w)).bool()
    return nn.functional.cross_entropy(scale * torch.where(true, margin(cosines), cosines), y)


def chunked(f: Tensor, y: Tensor, w: Tensor, margin, scale: float = 16.0, **options) -> Tensor:
    return classes.class_softmax(nn.functional.normalize(f), w, y, margin, scale, **options)


@pytest.mark.parametrize("chunk", [2, 3, 4, 10, 11, 64])
@pytest.mark.parametrize("name", MARGINS)
def test_chunks_change_nothing(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "BLOCK", 7 * chunk)
    for seed in range(3):
        f, w, y = data(dim=2, seed=seed)
        f, w = (3 * f).detach().requires_grad_(), w.detach().requires_grad_()
        ours, theirs = chunked(f, y, w, MARGINS[name]), plain(f, y, w, MARGINS[name])
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
        gradients = [torch.autograd.grad(loss, (f, w)) for loss in (3 * ours, 3 * theirs)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("label", range(11))
def test_the_true_class_may_be_in_any_chunk(label: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f, w, _ = data(2, 3)
    y = torch.tensor([label, (label + 5) % 11])
    for block in (1, 2**24):
        monkeypatch.setattr(classes, "BLOCK", block)
        ours = chunked(f, y, w, ArcFace())
        theirs = references.cosine_softmax(f, y, w, "arcface", 0.45, scale=16.0)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
        gradients = [torch.autograd.grad(loss, (f, w), retain_graph=True) for loss in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)


def test_no_chunk_is_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, real = [], classes._raised_product
    monkeypatch.setattr(classes, "_raised_product", lambda a, b: shapes.append((len(a), b.shape[1])) or real(a, b))
    monkeypatch.setattr(classes, "BLOCK", 28)
    logits, gradient = [(7, 4), (7, 4), (7, 3)], (7, 3)
    # kept where three blocks are few; else each chunk's logits are computed again before its gradient
    for few, backward in ((3, [gradient] * 3), (2, [shape for chunk in logits for shape in (chunk, gradient)])):
        monkeypatch.setattr(classes, "FEW", few)
        f, w, y = data(dim=3)
        chunked(f, y, w, CosFace()).backward()
        assert shapes == logits + backward
        shapes.clear()


@pytest.mark.parametrize("name", MARGINS)
def test_gradcheck(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "BLOCK", 12)
    f, w, y = data(4, 2, 7)
    assert torch.autograd.gradcheck(lambda f, w: chunked(f, y, w, MARGINS[name], 4.0), (f, w))
    assert torch.autograd.gradcheck(lambda f, w: classes.class_softmax(f, w, y, normalized=False), (f, w))


def test_only_the_wanted_gradient() -> None:
    f, w, y = data()
    both = torch.autograd.grad(chunked(f, y, w, CosFace()), (f, w))
    torch.testing.assert_close(torch.autograd.grad(chunked(f, y, w.detach(), CosFace()), f)[0], both[0])
    torch.testing.assert_close(torch.autograd.grad(chunked(f.detach(), y, w, CosFace()), w)[0], both[1])
    assert not chunked(f.detach(), y, w.detach(), CosFace()).requires_grad
    with torch.no_grad():
        assert not chunked(f, y, w, CosFace()).requires_grad
    loss = chunked(f, y, w, CosFace())
    (gradient,) = torch.autograd.grad(loss, f, create_graph=True)
    with pytest.raises(Unsupported):
        gradient.sum().backward()


def test_the_gradient_of_the_weights_is_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    written, real = [], classes._gradients

    def watched(*arguments):
        gradients = real(*arguments)
        written.append(gradients[1].data_ptr())
        return gradients

    monkeypatch.setattr(classes, "_gradients", watched)
    head = CosineClassifier(5, 300, CosFace())
    f, _, y = data()
    head(f.float(), y).backward()
    assert head.weights.grad.data_ptr() == written[0], "a copy of a million rows is 2 GB"


def test_a_second_backward_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    f, w, y = data()
    for block in (1, 2**24):
        monkeypatch.setattr(classes, "BLOCK", block)
        loss = chunked(f, y, w, ArcFace())
        first = torch.autograd.grad(loss, (f, w), retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(loss, (f, w)), first, rtol=0, atol=0)


def test_zero_weights_and_poles_have_finite_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "BLOCK", 1)
    for dtype in (torch.float32, torch.float64):
        for margin in MARGINS.values():
            f, w, y = data()
            w = w.detach().to(dtype)
            w[y[0]] = 0
            f = torch.where(torch.arange(7)[:, None] % 2 == 0, w[y], -w[y]).requires_grad_()
            w.requires_grad_()
            loss = CosineClassifier(5, 11, margin, 64.0).to(dtype)
            value = torch.func.functional_call(loss, {"weights": w}, (f, y))
            gradients = torch.autograd.grad(value, (f, w))
            assert value.isfinite() and all(g.isfinite().all() for g in gradients)
            assert not gradients[1][y[0]].any()


@pytest.mark.parametrize("scale", [64.0, 1e3])
def test_large_scales_neither_underflow_nor_overflow(scale: float) -> None:
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    f = torch.tensor([[2.0, 0.0], [2.0, 0.0]], requires_grad=True)
    loss = classes.class_softmax(nn.functional.normalize(f), w, torch.tensor([1, 0]), None, scale)
    assert loss.item() == pytest.approx(scale)  # 2 * scale for the first, nothing for the second
    assert torch.autograd.grad(loss, f)[0].isfinite().all()


def test_a_tiny_loss_keeps_its_digits() -> None:
    w = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    f = torch.tensor([[1.0, 0.0]])
    loss = classes.class_softmax(f, w, torch.tensor([0]), None, 40.0)
    expected = torch.tensor(-40.0, dtype=torch.float64).exp().item()  # 4e-18, far below float32's step at 40
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, -0.0], [40 * expected, 0.0]]), rtol=1e-5, atol=0)


def test_bfloat16_products_are_exact_products_of_rounded_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "BLOCK", 1)
    f, w, y = data(32, 64, 500)
    f, w = (value.detach().float().requires_grad_() for value in (f, w))
    rounded = chunked(f, y, w, CosFace(), products=torch.bfloat16)
    exact = plain(f, y, w, CosFace())
    assert rounded.dtype == torch.float32 and 0 < (rounded - exact).abs() < 2e-3 * exact
    for ours, theirs in zip(*(torch.autograd.grad(loss, (f, w)) for loss in (rounded, exact)), strict=True):
        assert ours.dtype == torch.float32 and (ours - theirs).norm() < 1e-2 * theirs.norm()
    # the loss itself, from directions rounded by hand; the true class's cosine is not rounded
    left, right = nn.functional.normalize(f), nn.functional.normalize(w)
    logits = (16 * left).bfloat16().float() @ right.bfloat16().float().T
    true = nn.functional.one_hot(y, 500).bool()
    logits = torch.where(true, 16 * (left @ right.T - 0.35), logits)
    torch.testing.assert_close(rounded, nn.functional.cross_entropy(logits, y), rtol=1e-6, atol=1e-6)


def test_a_class_that_no_rank_has_shows() -> None:
    f, w, y = data()
    with pytest.raises(LossOverflow):
        chunked(f, torch.where(y == y[0], 11, y), w, CosFace(), first=0)
    torch.testing.assert_close(chunked(f, y, w, CosFace(), first=0), chunked(f, y, w, CosFace()))


def test_products_of_another_kind_are_refused() -> None:
    f, w, y = data()
    with pytest.raises(BadArgument) as error:
        chunked(f, y, w, CosFace(), products=torch.float16)
    assert (error.value.name, error.value.value) == ("products", torch.float16)


@pytest.mark.parametrize(("half", "products"), [(torch.float16, None), (torch.bfloat16, torch.bfloat16)])
def test_a_thousand_steps_in_half_precision(half: torch.dtype, products: torch.dtype | None) -> None:
    torch.manual_seed(0)
    inputs, y = torch.randn(32, 8), torch.arange(32) % 16
    network = nn.Linear(8, 8)
    head = CosineClassifier(8, 16, ArcFace(0.45), products=products).to(half)
    assert head.weights.dtype == torch.float32
    optimizer = torch.optim.SGD([*network.parameters(), *head.parameters()], lr=0.1, momentum=0.9, weight_decay=5e-4)
    losses = []
    for _ in range(1000):
        f = network(inputs).to(half)  # as autocast hands embeddings over
        loss = head(f, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(torch.tensor(losses).isfinite()) and losses[-1] < 0.5 * losses[0]
    assert all(p.isfinite().all() and p.dtype == torch.float32 for p in head.parameters())


@pytest.mark.parametrize("kind", [CosineClassifier, LinearClassifier, ProxyAnchorLoss])
def test_class_weights_stay_float32(kind) -> None:
    head = kind(4, 3)
    (weights,) = head.parameters()
    before = weights.detach().clone()
    for change in ("half", "bfloat16"):
        assert getattr(head, change)() is head and torch.equal(weights, before)
    head.double()
    assert weights.dtype == torch.float64


@needs_gpu
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_thousand_steps_under_autocast(half: torch.dtype) -> None:
    torch.manual_seed(0)
    inputs, y = torch.randn(64, 32, device="cuda"), torch.arange(64, device="cuda") % 16
    network, head = nn.Linear(32, 32).cuda(), CosineClassifier(32, 5000, ArcFace(0.45), products=torch.bfloat16).cuda()
    parameters = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True)
    losses = []
    for _ in range(1000):
        with torch.autocast("cuda", dtype=half):
            loss = head(network(inputs), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    assert losses.isfinite().all() and losses[-1] < losses[0] and all(p.isfinite().all() for p in parameters)


@needs_gpu
@pytest.mark.parametrize("products", [None, torch.bfloat16])
def test_captured_in_a_graph_it_is_the_same(products: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "BLOCK", 16 * 400)
    torch.manual_seed(0)
    head = CosineClassifier(64, 1000, ArcFace(), products=products).cuda()
    f, y = torch.randn(16, 64, device="cuda", requires_grad=True), torch.randint(1000, (16,), device="cuda")

    def step() -> tuple[Tensor, Tensor, Tensor]:
        loss = head(f, y)
        return loss.detach(), *torch.autograd.grad(loss, (f, head.weights))

    eager = step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for value in captured:
        value.fill_(-1)
    graph.replay()
    torch.testing.assert_close(captured, eager)
