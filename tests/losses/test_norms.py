"""SEC in all its forms against the paper's formulas, its state, and its errors."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from isosphere import SEC, functional, sphere
from isosphere.errors import BadArgument, LossOverflow, NotFinite, Unsupported
from isosphere.losses import checks, log_norms

KEPT = ("ema", "initial", "learned")
RADII = ("batch", *KEPT)


def refused(name, given, call):
    """The argument that a call refuses, and the value that it names."""
    with pytest.raises(BadArgument) as error:
        call()
    assert error.value.name == name
    assert error.value.value is given or error.value.value == given


def some_embeddings(dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(10, 6, generator=generator, dtype=torch.float64) * 3).to(dtype).requires_grad_()


def transcribed(embeddings: torch.Tensor, radius: float | None, relative: bool) -> float:
    lengths = [sum(float(x) ** 2 for x in row) ** 0.5 for row in embeddings]
    radius = sum(lengths) / len(lengths) if radius is None else radius
    parts = [(length / radius - 1) ** 2 if relative else (length - radius) ** 2 for length in lengths]
    return sum(parts) / len(parts)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("radius", [None, 2.5])
def test_norm_penalty_against_loops(radius, relative):
    embeddings = some_embeddings()
    found = functional.norm_penalty(embeddings.detach(), radius, relative)
    assert float(found) == pytest.approx(transcribed(embeddings.detach(), radius, relative))
    constant = 2.5 if radius is None else radius  # a detached batch radius is no function of f for gradcheck
    assert torch.autograd.gradcheck(lambda f: functional.norm_penalty(f, constant, relative), embeddings)


def test_equation_18_the_gradient_of_sec():
    embeddings = some_embeddings()
    SEC(eta=1.0)(embeddings).backward()
    lengths = embeddings.detach().norm(dim=1, keepdim=True)
    wanted = 2 / len(lengths) * (lengths - lengths.mean()) * embeddings.detach() / lengths
    torch.testing.assert_close(embeddings.grad, wanted)


def test_relative_sec_is_free_of_scale_and_equals_eta_over_the_squared_radius():
    embeddings = some_embeddings().detach()
    relative, mean = SEC(5.0, relative=True), float(sphere.norms(embeddings).mean())
    assert float(relative(embeddings)) == pytest.approx(float(relative(1000 * embeddings)))
    assert float(relative(embeddings)) == pytest.approx(float(SEC(5.0 / mean**2)(embeddings)))


def test_radius_zero_is_l2_reg():
    embeddings = some_embeddings()
    loss = SEC(0.01, radius=0.0)(embeddings)
    assert float(loss.detach()) == pytest.approx(0.01 * float(embeddings.detach().square().sum(1).mean()))
    loss.backward()
    torch.testing.assert_close(embeddings.grad, 0.01 * 2 / 10 * embeddings.detach())


def test_equation_31_the_running_mean():
    sec, batches = SEC(2.0, radius="ema", rho=0.3), [some_embeddings(seed=seed) for seed in range(4)]
    sec.double()
    radius = None
    for batch in batches:
        mean = float(batch.detach().norm(dim=1).mean())
        radius = mean if radius is None else 0.7 * radius + 0.3 * mean  # updated before it is used
        assert float(sec(batch)) == pytest.approx(2 * transcribed(batch.detach(), radius, False))
        assert float(sec.running_radius) == pytest.approx(radius)


def test_rho_one_is_the_plain_form_and_initial_keeps_the_first():
    ema, plain, initial = SEC(radius="ema", rho=1.0), SEC(), SEC(radius="initial")
    first = float(some_embeddings().detach().norm(dim=1).mean())
    for seed in range(3):
        batch = some_embeddings(seed=seed)
        assert float(ema(batch)) == pytest.approx(float(plain(batch)))
        initial(batch)
        assert float(initial.running_radius) == pytest.approx(first)
    initial.set_radius(8.7)
    assert float(initial(batch)) == pytest.approx(transcribed(batch.detach(), 8.7, False), rel=1e-6)
    refused("radius", "batch", lambda: plain.set_radius(1.0))


@pytest.mark.parametrize("bad", [-5, 0, math.nan, math.inf, True, "8.7", torch.tensor(-1.0), torch.ones(2)])
def test_a_radius_to_set_is_a_finite_number_above_0(bad):
    sec = SEC(radius="initial")
    refused("value", bad, lambda: sec.set_radius(bad))
    assert sec.running_radius.isnan()
    for good in (3, 8.5, torch.tensor(7.5, dtype=torch.float64), np.float32(2.5)):
        sec.set_radius(good)
        assert sec.running_radius.item() == good
    with torch.device("meta"):  # where values cannot be read, as those of a GPU must not be
        SEC(radius="ema").set_radius(torch.tensor(-1.0))


def test_parts_of_a_batch_with_its_mean_norm_are_the_whole():
    batch = some_embeddings()
    whole = torch.autograd.grad(SEC(2.0)(batch), batch)[0]
    mean_norm = float(batch.detach().norm(dim=1).mean())
    parts = sum(2.0 * functional.norm_penalty(part, mean_norm) / 2 for part in batch.chunk(2))
    torch.testing.assert_close(torch.autograd.grad(parts, batch)[0], whole)
    sec = SEC(2.0)
    assert not torch.allclose(torch.autograd.grad(sum(sec(p) / 2 for p in batch.chunk(2)), batch)[0], whole)


def test_the_running_mean_waits_in_evaluation_without_gradients_and_for_finite_numbers():
    sec = SEC(radius="ema", rho=0.5)
    sec(some_embeddings())
    before = float(sec.running_radius)
    with torch.no_grad():
        sec(some_embeddings(seed=1))
    sec.eval()
    sec(some_embeddings(seed=1))
    sec.train()
    with pytest.raises(NotFinite) as error:
        sec(torch.full((10, 6), float("nan")))
    assert (error.value.name, error.value.row, error.value.rows) == ("embeddings", 0, 10)
    assert float(sec.running_radius) == before
    sec(some_embeddings(seed=1))
    assert float(sec.running_radius) != before


@pytest.fixture
def other_rank(monkeypatch):
    """Pretends that there are two ranks, the other with three norms of sum 30; returns the list of all-reduces."""
    calls = []

    def all_reduce(total):
        calls.append(total.clone())
        total += torch.tensor([30.0, 3.0])

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    return calls


@pytest.mark.parametrize("radius", RADII)
def test_ranks_are_asked_only_while_learning(radius, other_rank):
    sec, batch = SEC(radius=radius).double(), some_embeddings()
    lengths = batch.detach().norm(dim=1)
    for alone in (sec.eval(), SEC(radius=radius).double()):  # one rank that validates, before there is a radius
        with torch.set_grad_enabled(not alone.training):
            assert float(alone(batch)) == pytest.approx(transcribed(batch.detach(), None, False))
    assert not other_rank
    over_ranks = (float(lengths.sum()) + 30) / 13
    share = 10 * 2 / 13  # of rows: DDP's mean of two ranks counts this one's ten of thirteen
    assert float(sec.train()(batch)) == pytest.approx(share * transcribed(batch.detach(), over_ranks, False))
    assert len(other_rank) == 1
    later = some_embeddings(seed=1).detach()
    assert float(sec.eval()(later)) == pytest.approx(
        transcribed(later, None if radius == "batch" else over_ranks, False)
    )
    assert len(other_rank) == 1


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("radius, rows", [*((kind, 5) for kind in RADII), *((kind, 0) for kind in (*RADII, 2.0))])
def test_nothing_to_constrain_gives_a_zero_that_backpropagates(radius, rows, relative):
    sec, embeddings = SEC(3.0, radius=radius, relative=relative), torch.zeros(rows, 4, requires_grad=True)
    for _ in range(2):
        loss = sec(embeddings)
        loss.backward()
        assert loss == 0 and embeddings.grad.shape == embeddings.shape and not embeddings.grad.any()
    broken = torch.ones(3, 4)
    for broken[2, 1] in (torch.nan, torch.inf):
        with pytest.raises(NotFinite) as error:  # as in the losses
            sec(broken)
        assert (error.value.row, error.value.rows) == (2, 3)


def test_a_broken_embedding_shows_where_values_may_not_be_read(monkeypatch):
    monkeypatch.setattr(checks, "reads_values", lambda values: False)  # as on a GPU, or compiling
    assert torch.isnan(SEC()(torch.full((2, 4), torch.nan)))


def test_an_empty_batch_leaves_the_running_mean_alone():
    sec = SEC(radius="ema")
    sec(torch.zeros(0, 6))
    sec(some_embeddings(torch.float32))
    before = float(sec.running_radius)
    assert before == pytest.approx(float(some_embeddings().detach().norm(dim=1).mean()))
    sec(torch.zeros(0, 6))
    assert float(sec.running_radius) == before


@pytest.mark.parametrize("radius", KEPT)
def test_a_batch_of_zeros_is_no_beginning(radius):
    sec = SEC(radius=radius, relative=True)
    assert sec(torch.zeros(4, 6)) == 0
    batch = some_embeddings().detach()
    first = float(batch.norm(dim=1).mean())
    assert float(sec(batch)) == pytest.approx(transcribed(batch, first, True))
    assert float(next(iter(sec.state_dict().values()))) == pytest.approx(first)


def test_a_relative_penalty_at_radius_zero_shows():
    embeddings = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert functional.norm_penalty(embeddings, torch.tensor(0.0), relative=True).isinf()
    assert functional.norm_penalty(embeddings, torch.tensor(2.5), relative=True) == 1  # (0 - 1)^2 and (2 - 1)^2


@pytest.mark.parametrize("radius", [2, np.float32(2), torch.tensor(2.0), torch.tensor(2)])
def test_any_number_is_a_radius(radius):
    embeddings = some_embeddings().detach()
    sec = SEC(radius=radius)
    assert float(sec(embeddings)) == pytest.approx(transcribed(embeddings, 2.0, False))
    assert "radius=2.0" in repr(sec)


def test_recomputation_does_not_update_twice():
    layer, images = torch.nn.Linear(6, 6).double(), some_embeddings().detach()
    plain, again = SEC(radius="ema", rho=0.5).double(), SEC(radius="ema", rho=0.5).double()
    for seed in range(2):
        batch = images * (1 + seed)
        plain(layer(batch)).backward()
        wanted, layer.weight.grad = layer.weight.grad, None
        checkpoint(lambda f: again(layer(f)), batch, use_reentrant=False).backward()
        torch.testing.assert_close(layer.weight.grad, wanted)
        layer.weight.grad = None
    assert float(again.running_radius) == float(plain.running_radius)


def test_the_radius_is_saved_moves_and_stays_out_of_half_precision():
    sec = SEC(radius="ema", rho=0.01)
    sec(some_embeddings())
    fresh = SEC(radius="ema", rho=0.01)
    fresh.load_state_dict(sec.state_dict())
    assert float(fresh.running_radius) == float(sec.running_radius)
    sec.bfloat16()
    assert sec.running_radius.dtype == torch.float32
    assert float(sec.running_radius) == float(fresh.running_radius), "not even rounded on the way"
    assert copy.deepcopy(sec).state_dict().keys() == {"running_radius"}
    assert not SEC().state_dict()


def test_ramps_of_the_paper():
    embeddings = some_embeddings().detach()
    plain = float(SEC(1.0)(embeddings))
    for (begin, end), curve in {
        (0.0, 0.0): lambda t: 1.0,
        (0.0, 1.0): lambda t: t,  # Eq. 29
        (3 / 16, 4 / 16): lambda t: min(max(16 * t - 3, 0), 1),  # App. B.2
        (0.0, 1.0 / 500): lambda t: min(1.0, 500 * t),  # Eq. 32 with eta 1
    }.items():
        sec = SEC(1.0, ramp=(begin, end))
        for t in (0.0, 0.001, 0.1, 0.2, 0.5, 1.0):
            assert float(sec(embeddings, progress=t)) == pytest.approx(curve(t) * plain)
            assert float(sec(embeddings, progress=torch.tensor(t))) == pytest.approx(curve(t) * plain, rel=1e-5)
    refused("progress", None, lambda: sec(embeddings))
    with pytest.raises(TypeError):
        sec(embeddings, 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_give_float32(dtype):
    embeddings = some_embeddings(torch.float32).detach().to(dtype)
    loss = SEC()(embeddings)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(transcribed(embeddings.double(), None, False), rel=1e-5)


def test_one_warning_when_the_model_normalizes():
    sec, unit = SEC(), sphere.directions(some_embeddings(torch.float32).detach())
    with pytest.warns(UserWarning) as caught:
        sec(unit)
    assert len(caught) == 1 and caught[0].filename == __file__, "it points at the line that called"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sec(unit)
        SEC()(some_embeddings().detach())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("radius", {"radius": "mean"}),
        ("radius", {"radius": -1.0}),
        ("radius", {"radius": 0.0, "relative": True}),
        ("radius", {"radius": math.inf}),
        ("radius", {"radius": True}),
        ("radius", {"radius": None}),
        ("radius", {"radius": torch.ones(2)}),
        ("radius", {"radius": torch.nn.Parameter(torch.tensor(3.0))}),  # was a constant without a word
        ("eta", {"eta": math.nan}),
        ("eta", {"eta": math.inf}),
        ("eta", {"eta": -0.1}),
        ("eta", {"eta": None}),
        ("rho", {"rho": 1.5}),
        ("rho", {"rho": "0.1"}),
        ("ramp", {"ramp": 0.5}),
        ("ramp", {"ramp": (0.5,)}),
        ("ramp", {"ramp": (0.5, 0.2)}),
        ("ramp", {"ramp": (0.0, math.nan)}),
    ],
)
def test_bad_settings(name, arguments):
    refused(name, arguments[name], lambda: SEC(**arguments))


@pytest.mark.parametrize("function", [SEC(), SEC(radius="ema"), functional.norm_penalty])
def test_bad_embeddings_are_named(function):
    for wrong, given in (
        (torch.ones(3), (3,)),
        (torch.ones(3, 2, dtype=torch.int64), torch.int64),
        (np.ones((3, 2), np.float32), np.ndarray),
    ):
        refused("embeddings", given, lambda: function(wrong))  # noqa: B023


def ring_loss(embeddings: torch.Tensor, radius: torch.Tensor, relative: bool) -> torch.Tensor:
    """Zheng et al. 2018, in loops: the mean squared distance of norms from a radius that is learned."""
    total = 0.0
    for row in embeddings:
        length = sum(x * x for x in row).sqrt()
        total = total + ((length / radius - 1) ** 2 if relative else (length - radius) ** 2)
    return total / len(embeddings)


@pytest.mark.parametrize("relative", [False, True])
def test_a_learned_radius_is_ring_loss(relative):
    sec, first = SEC(0.7, radius="learned", relative=relative).double(), some_embeddings()
    (radius,) = sec.parameters()
    assert radius.isnan() and list(sec.state_dict()) == ["learned_radius"]
    sec(first)  # the first batch's mean is where it begins
    assert float(radius) == pytest.approx(float(first.detach().norm(dim=1).mean()))
    optimizer = torch.optim.SGD(sec.parameters(), lr=0.5)
    for seed in (1, 2):
        embeddings, constant = some_embeddings(seed=seed), radius.detach().clone().requires_grad_()
        found = torch.autograd.grad(sec(embeddings), (embeddings, radius))
        wanted = torch.autograd.grad(0.7 * ring_loss(embeddings, constant, relative), (embeddings, constant))
        torch.testing.assert_close(found, wanted)
        assert found[1] != 0
        radius.grad = found[1]
        optimizer.step()
        assert float(radius.detach()) == pytest.approx(float(constant - 0.5 * wanted[1]))
    fresh = SEC(0.7, radius="learned", relative=relative).double()
    fresh.load_state_dict(sec.state_dict())
    assert float(fresh(embeddings)) == float(sec(embeddings))
    copied = copy.deepcopy(sec)
    assert copied.learned_radius is not radius and copied.learned_radius == radius
    sec.set_radius(4.0)
    assert float(sec(embeddings)) == pytest.approx(0.7 * float(ring_loss(embeddings.detach(), 4.0, relative)))


def test_a_learned_radius_stays_for_two_forward_passes_and_waits_in_evaluation():
    sec = SEC(radius="learned", relative=True)
    batches = [some_embeddings(torch.float32, seed) for seed in range(2)]
    with torch.no_grad():
        sec(batches[0])
    assert sec.learned_radius.isnan()
    sum(sec(batch) for batch in batches).backward()  # both forward passes come before the backward pass
    assert sec.learned_radius.grad.isfinite() and batches[0].grad.isfinite().all()
    assert sec.bfloat16().learned_radius.dtype == torch.float32


@pytest.mark.parametrize("radius", KEPT)
def test_a_radius_that_moves_is_refused_under_torch_func(radius):
    sec, embeddings = SEC(radius=radius).double(), some_embeddings().detach()
    with pytest.raises(Unsupported):
        torch.func.grad(sec)(embeddings)
    sec(embeddings)
    wanted = torch.autograd.grad(sec.eval()(leaf := some_embeddings(seed=1)), leaf)[0]
    torch.testing.assert_close(torch.func.grad(sec)(leaf.detach()), wanted)


@pytest.mark.parametrize("radius", [*RADII, 3.0, 0.0])
def test_compiles_as_one_graph(radius):
    eager, traced = SEC(radius=radius, ramp=(0, 1)), SEC(radius=radius, ramp=(0, 1))
    compiled = torch.compile(traced, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        embeddings, progress = some_embeddings(torch.float32, seed), torch.tensor(0.25 * seed)
        wanted = torch.autograd.grad(eager(embeddings, progress=progress), embeddings)[0]
        found = torch.autograd.grad(compiled(embeddings, progress=progress), embeddings)[0]
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(traced.state_dict(), eager.state_dict())


# ---------------------------------------------------------------- norms at the ends of float32


@pytest.mark.parametrize("scale", [1e19, 3e19, 1e30])
@pytest.mark.parametrize("make", [SEC, lambda: SEC(radius=0.0), lambda: SEC(radius="ema")])
def test_norms_whose_squares_overflow_raise_as_in_the_losses(make, scale):
    embeddings = some_embeddings(torch.float32).detach() * scale
    with pytest.raises((LossOverflow, NotFinite)):
        make()(embeddings)
    with pytest.raises((LossOverflow, NotFinite)):
        functional.norm_penalty(embeddings)


@pytest.mark.parametrize("scale", [1e-24, 1e-38])
@pytest.mark.parametrize("call", [
    lambda f, y: SEC()(f), lambda f, y: log_norms.log_norm_penalty(f),
    lambda f, y: functional.triplet(f, y), lambda f, y: functional.multi_similarity(f, y),
])  # fmt: skip
def test_norms_that_count_as_zero_are_said_once(call, scale):
    embeddings = some_embeddings(torch.float32).detach()
    labels = torch.arange(len(embeddings)) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(embeddings * 1e-15, labels)
        call(torch.zeros_like(embeddings), labels)  # which are zero, and not lost
    with pytest.warns(UserWarning) as said:
        call(embeddings * scale, labels)
    assert len(said) == 1 and f"{len(embeddings)} of {len(embeddings)}" in str(said[0].message)
