"""NormMonitor: every figure against loops in float64, alarms, sinks, and that a step never waits for the device."""

import gc
import importlib
import json
import math
import os
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import isosphere
from isosphere import sphere
from isosphere.adapters.lightning import lightning_callback
from isosphere.errors import BadArgument, NoFolder, Unsupported
from isosphere.monitor import (
    FIGURES,
    NormMonitor,
    norm_figures,
    norm_record,
    proxy_power,
    turn_figures,
    turned,
)  # fmt: skip
from isosphere.monitor.alarms import ADVICE, CALM, Episodes, alarms
from isosphere.train.evaluation import norm_statistics

pytestmark = pytest.mark.filterwarnings("ignore:step")  # alarms, where a test is not about them
LABELS = torch.arange(8).repeat_interleave(3)


def some_embeddings(spread: float = 0.5, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(24, 9, dtype=torch.float64, generator=generator)
    return (draw[:, :8] * torch.exp(spread * draw[:, 8:])).to(dtype)


def watched(**settings) -> tuple[NormMonitor, list[dict]]:
    seen: list[dict] = []
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    monitor = NormMonitor(optimizer, callback=seen.append, **settings)
    monitor.kept = optimizer  # a monitor itself keeps none alive
    return monitor, seen


def refused(name: str, value: object, call) -> None:
    """The argument and the value that a call refuses."""
    with pytest.raises(BadArgument) as error:
        call()
    assert (error.value.name, error.value.value) == (name, value)


def rows(seen: list[dict]) -> list[dict]:
    return [record for record in seen if record["kind"] in ("train", "test")]


def figures_of(embeddings: Tensor, gradients: Tensor | None = None, lr: float = 1.0, power: int = 1) -> dict:
    found = norm_figures(norm_record(embeddings, gradients).unsqueeze(0), lr, power)
    return dict(zip(FIGURES, found[0].tolist(), strict=True))


def by_loops(embeddings: Tensor, gradients: Tensor, lr: float, power: int) -> dict[str, float]:
    lengths = [math.sqrt(sum(x * x for x in row)) for row in embeddings.tolist()]

    def moments(values: list[float]) -> tuple[float, float]:
        mean = sum(values) / len(values)
        return mean, sum((value - mean) ** 2 for value in values) / len(values)

    (mean, variance), (rate, rates) = moments(lengths), moments([lr / length**power for length in lengths])
    rows = zip(embeddings.tolist(), gradients.tolist(), lengths, strict=True)
    radial = sum((sum(x * g for x, g in zip(f, slope, strict=True)) / length) ** 2 for f, slope, length in rows)
    total = sum(g * g for slope in gradients.tolist() for g in slope)
    found = (mean, variance, math.sqrt(variance) / mean, min(lengths), max(lengths), 0, rate, math.sqrt(rates) / rate)
    return dict(zip(FIGURES, (*found, radial / total), strict=True))


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize("power", [1, 2])
def test_every_figure_equals_a_loop(power):
    embeddings, gradients = some_embeddings(), some_embeddings(seed=1)
    wanted = by_loops(embeddings, gradients, 0.3, power)
    assert figures_of(embeddings, gradients, 0.3, power) == pytest.approx(wanted)


def test_the_monitor_sees_the_gradient_and_the_learning_rate_of_each_step():
    monitor, seen = watched(every=4)
    leaf, wanted = some_embeddings().requires_grad_(), []
    for step in range(6):
        monitor.optimizer.param_groups[0]["lr"] = lr = 0.1 / (step + 1)
        weights = some_embeddings(seed=step)
        embeddings = leaf * (step + 1)
        monitor(embeddings)
        (embeddings * weights).sum().backward()
        wanted.append(by_loops(embeddings.detach(), weights, lr, 2))
    monitor.close()
    assert [(record["step"], record["kind"]) for record in rows(seen)] == [(step, "train") for step in range(1, 7)]
    for record, figures in zip(rows(seen), wanted, strict=True):
        assert {name: record[name] for name in FIGURES} == pytest.approx(figures)
        assert record["tangential_share"] == pytest.approx(1 - figures["radial_share"])


def test_norms_are_those_of_the_journal():
    lengths = sphere.norms(some_embeddings())
    journal = {name: float(value) for name, value in norm_statistics(lengths).items()}
    ours = figures_of(some_embeddings())
    assert {name: ours[name] for name in journal} == pytest.approx(journal)


def share(loss: Tensor, embeddings: Tensor) -> tuple[float, Tensor]:
    (gradients,) = torch.autograd.grad(loss, embeddings)
    return figures_of(embeddings, gradients)["radial_share"], gradients


@pytest.mark.parametrize("dtype, limit", [(torch.float64, 1e-28), (torch.float32, 1e-12), (torch.bfloat16, 1e-5)])
def test_proposition_1_only_sec_has_a_radial_gradient(dtype, limit):
    embeddings = some_embeddings(dtype=dtype).requires_grad_()
    alone, _ = share(isosphere.TripletLoss()(embeddings, LABELS), embeddings)
    assert alone < limit
    if dtype != torch.float64:
        return
    penalty = isosphere.SEC(eta=0.5)
    both, gradients = share(isosphere.TripletLoss()(embeddings, LABELS) + penalty(embeddings), embeddings)
    (of_sec,) = torch.autograd.grad(penalty(embeddings), embeddings)  # Eq. 18: along the embedding
    assert both == pytest.approx(float(of_sec.square().sum() / gradients.square().sum()))
    assert both > 0.1


def test_the_proxy_of_sgd_is_the_turn_of_eq_6_by_the_slope_on_the_sphere():
    embeddings, lr = some_embeddings().requires_grad_(), 1e-3
    (gradients,) = torch.autograd.grad(isosphere.MultiSimilarityLoss()(embeddings, LABELS), embeddings)
    unit = sphere.directions(embeddings.detach()).requires_grad_()
    (on_sphere,) = torch.autograd.grad(isosphere.MultiSimilarityLoss()(unit, LABELS), unit)  # already tangential
    rates = sphere.tan_direction_change(embeddings.detach(), gradients, lr) / sphere.norms(on_sphere)  # Proposition 3
    figures = figures_of(embeddings, None, lr, power=2)
    assert figures["lr_proxy_mean"] == pytest.approx(float(rates.mean()))
    assert figures["lr_proxy_cv"] == pytest.approx(float(rates.std(correction=0) / rates.mean()))


def test_the_proxy_of_adam_is_the_turn_of_a_first_step_with_a_scalar_second_moment():
    embeddings, lr = some_embeddings().requires_grad_(), 1e-3
    (gradients,) = torch.autograd.grad(isosphere.MultiSimilarityLoss()(embeddings, LABELS), embeddings)
    step = gradients / sphere.norms(gradients).unsqueeze(1)  # Proposition 5 at t = 1, without eps
    turns = sphere.tan_direction_change(embeddings.detach(), step, lr)
    figures = figures_of(embeddings, None, lr, power=1)
    assert figures["lr_proxy_mean"] == pytest.approx(float(turns.mean()))
    assert figures["lr_proxy_cv"] == pytest.approx(float(turns.std(correction=0) / turns.mean()))


@pytest.mark.parametrize("lr", [0.2, torch.tensor(0.2), torch.tensor(0.2, dtype=torch.float64)])
def test_the_power_is_the_optimizers_and_its_rate_may_be_a_tensor(lr):
    parameters = [torch.zeros(1, requires_grad=True)]
    embeddings = some_embeddings(dtype=torch.float32)
    for kind, power in ((torch.optim.SGD, 2), (torch.optim.Adam, 1), (torch.optim.AdamW, 1)):
        for wrap in (lambda optimizer: optimizer, Wrapped):
            seen, optimizer = [], wrap(kind(parameters, lr=lr))
            monitor = NormMonitor(optimizer, callback=seen.append)
            monitor(embeddings)
            monitor.close()
            wanted = by_loops(embeddings, embeddings, 0.2, power)["lr_proxy_mean"]
            assert seen[0]["lr_proxy_mean"] == pytest.approx(wanted, rel=1e-5)


def test_wrappers_that_hold_no_optimizer_have_no_power():
    alone, one, other = Wrapped(None), Wrapped(None), Wrapped(None)
    alone.optimizer, one.optimizer, other.optimizer = alone, other, one
    assert [proxy_power(wrapper) for wrapper in (alone, one, Wrapped(None), None)] == [None] * 4
    twice = Wrapped(Wrapped(torch.optim.Adam([torch.zeros(1, requires_grad=True)])))
    assert proxy_power(twice) == 1


class Wrapped(torch.optim.Optimizer):
    """An optimizer around another one, as Accelerate's is."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups


OTHERS = (
    "Adadelta", "Adafactor", "Adagrad", "Adamax", "ASGD", "LBFGS", "RAdam", "RMSprop", "Rprop", "SparseAdam", "Muon",
)  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, Wrapped], ids=["plain", "wrapped"])
@pytest.mark.parametrize("name", [name for name in OTHERS if hasattr(torch.optim, name)])
def test_with_any_optimizer_norms_are_watched_and_only_the_proxy_is_left_out(name, wrap):
    optimizer, seen = wrap(getattr(torch.optim, name)([torch.zeros(2, 2)])), []
    leaf = some_embeddings().requires_grad_()
    monitor, again = (NormMonitor(optimizer, callback=seen.append, power=power) for power in (None, 1))
    for one in (monitor, again):
        embeddings = leaf * 30
        one(embeddings)
        embeddings.square().sum().backward()
        one.close()
    proxies = {"lr_proxy_mean", "lr_proxy_cv"}
    records = rows(seen)
    assert proxies <= set(records[1]) and set(records[1]) - set(records[0]) == proxies
    assert {record["norm_mean"] for record in records} == {records[0]["norm_mean"]}
    alarms = [record["warning"] for record in monitor.alarms]
    assert alarms == [record["warning"] for record in again.alarms] == ["spreading", "radial"]


def test_a_monitor_keeps_nothing_alive_and_writes_its_last_rows(tmp_path):
    def train(keep: list) -> list[weakref.ref]:
        model = nn.Linear(4, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        settings = {"file": tmp_path / "norms.jsonl", "constrained": True}
        monitor = NormMonitor(optimizer, callback=lambda record: keep.append(monitor), **settings)
        embeddings = model(torch.randn(6, 4)) * 9
        monitor(embeddings)
        embeddings.sum().backward()
        return [weakref.ref(one) for one in (model, optimizer, monitor)]

    left = train([])
    gc.collect()
    assert [one() for one in left] == [None] * 3
    line = (tmp_path / "norms.jsonl").read_text().splitlines()[0]
    assert json.loads(line)["step"] == 1
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    monitor, seen = NormMonitor(optimizer), []
    monitor.callback = seen.append
    del optimizer
    gc.collect()
    assert monitor.optimizer is None
    monitor(some_embeddings())
    monitor.close()
    assert "norm_mean" in seen[0] and "lr_proxy_mean" not in seen[0]


def test_what_is_not_finite_is_counted_and_left_out():
    embeddings = some_embeddings()
    bad = torch.cat([embeddings, torch.full((1, 8), math.nan), torch.full((2, 8), math.inf)])
    wanted = figures_of(embeddings) | {"not_finite": 3}
    assert figures_of(bad) == pytest.approx(wanted, nan_ok=True)
    monitor, seen = watched()
    monitor(torch.full((4, 8), 1e30))  # its norm overflows
    with pytest.warns(UserWarning):
        monitor(bad.requires_grad_())
        monitor.close()
    assert seen[0] == {"step": 0, "kind": "test", "not_finite": 4}
    assert seen[1]["not_finite"] == 3 and seen[1]["norm_mean"] == pytest.approx(wanted["norm_mean"])
    assert "not_finite" in [record["warning"] for record in monitor.alarms]


def test_a_zero_vector_has_a_norm_but_no_rate():
    embeddings = torch.cat([some_embeddings(), torch.zeros(1, 8, dtype=torch.float64)])
    figures = figures_of(embeddings, some_embeddings(seed=1)[[*range(24), 0]])
    assert figures["norm_min"] == 0 and figures["not_finite"] == 0 and math.isfinite(figures["radial_share"])
    assert figures["lr_proxy_mean"] == pytest.approx(figures_of(some_embeddings())["lr_proxy_mean"])


# ---------------------------------------------------------------- any loop


class Reads(TorchDispatchMode):
    """Notes operations that make the host wait for values."""

    WAITING = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique", "index")

    def __init__(self):
        super().__init__()
        self.found, self.all = [], 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.all += 1
        options = options or {}
        name = function.__name__.split(".")[0]
        if name in self.WAITING or (name == "_to_copy" and "device" in options):
            self.found.append(name)
        return function(*arguments, **options)


def test_a_step_reads_nothing_and_a_read_is_one_transfer(monkeypatch):
    transfers = []
    for name in ("tolist", "item", "cpu", "numpy", "__float__", "__int__", "__bool__"):
        real = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda *given, real=real, name=name: transfers.append(name) or real(*given))
    monitor, seen = watched(every=5)
    leaf = some_embeddings(dtype=torch.float32).requires_grad_()
    with Reads() as reads:
        for calls in range(1, 12):
            embeddings = leaf * 2
            monitor(embeddings)
            embeddings.sum().backward()
            assert transfers == ["tolist"] * ((calls - 1) // 5)
    assert not reads.found and reads.all > 100 and len(rows(seen)) == 10
    with Reads() as reads:
        float(leaf.detach().sum())
    assert reads.found == ["_local_scalar_dense"], "the test sees a read where there is one"


def test_a_step_runs_where_there_are_no_values_at_all():
    monitor, _ = watched(every=5)
    leaf = torch.empty(24, 8, device="meta", requires_grad=True)
    for _ in range(5):
        embeddings = leaf * 2
        monitor(embeddings)
        embeddings.square().sum().backward()
    with pytest.raises(NotImplementedError):
        monitor.flush()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_step_on_a_gpu_waits_for_nothing_between_reads():
    monitor, seen = watched(every=3)
    leaf = some_embeddings(dtype=torch.float32).cuda().requires_grad_()

    def step() -> None:
        embeddings = leaf * 2
        monitor(embeddings)
        sphere.cosines(embeddings).exp().sum().backward()

    step()
    monitor.flush()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            step()
        with pytest.raises(RuntimeError, match="synchroniz"):
            monitor.flush()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(rows(seen)) == 1


def test_evaluation_is_kept_apart_and_gives_no_step():
    monitor, seen = watched(every=3)
    with torch.inference_mode():
        monitor(some_embeddings())
    for _ in range(4):
        embeddings = some_embeddings().requires_grad_() * 1
        monitor(embeddings)
        embeddings.sum().backward()
    with torch.no_grad():
        monitor(embeddings * 2)
    monitor.close()
    found = [(record["step"], record["kind"], "radial_share" in record) for record in rows(seen)]
    assert found == [(0, "test", False), *((step, "train", True) for step in (1, 2, 3, 4)), (4, "test", False)]


def test_batches_of_any_size_share_a_read():
    monitor, seen = watched(every=9)
    wanted = []
    for size in (5, 3, 5, 1, 24, 7):
        leaf, weights = some_embeddings(seed=size)[:size].requires_grad_(), some_embeddings(seed=99)[:size]
        embeddings = leaf * 1
        monitor(embeddings)
        (embeddings * weights).sum().backward()
        wanted.append(by_loops(leaf.detach(), weights, 0.1, 2))
    monitor.close()
    for record, figures in zip(rows(seen), wanted, strict=True):
        assert {name: record[name] for name in FIGURES} == pytest.approx(figures)


def test_accumulation_late_gradients_and_two_backward_passes():
    monitor, seen = watched(every=2, constrained=True)
    leaf = some_embeddings().requires_grad_()
    parts = []
    for step in (7, 7, 8, 8):  # four parts before the first backward pass: the first two are read without a gradient
        parts.append(leaf * 1)
        monitor(parts[-1], step=step)
    for number in (2, 3, 0, 1):  # the rows of the first two belong to the others by now
        loss = isosphere.TripletLoss()(parts[3], LABELS) if number == 3 else parts[number].square().sum()
        loss.backward()
    monitor(leaf * 1)
    embeddings = leaf * 1
    monitor(embeddings)
    torch.autograd.grad(sphere.cosines(embeddings).exp().sum(), embeddings, create_graph=True)
    embeddings.square().sum().backward()  # the last one counts
    monitor.close()
    assert [record["step"] for record in rows(seen)] == [7, 7, 8, 8, 9, 10]
    shares = [record.get("radial_share") for record in rows(seen)]
    assert shares == [None, None, pytest.approx(1), pytest.approx(0), None, pytest.approx(1)]


def test_autocast_and_a_model_compiled_or_wrapped_by_ddp(tmp_path):
    torch.manual_seed(0)
    model, inputs, (monitor, seen) = nn.Linear(6, 8), torch.randn(24, 6), watched()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for network in (model, compiled, nn.parallel.DistributedDataParallel(model)):
            with torch.autocast("cpu", torch.bfloat16):
                embeddings = network(inputs)
                monitor(embeddings)
                loss = isosphere.TripletLoss()(embeddings, LABELS)
            loss.backward()
    finally:
        torch.distributed.destroy_process_group()
    monitor.close()
    assert embeddings.dtype == torch.bfloat16 and len(rows(seen)) == 3
    for record in rows(seen):
        assert record["norm_mean"] == pytest.approx(float(embeddings.detach().double().norm(dim=1).mean()), rel=1e-6)
        assert 0 < record["radial_share"] < 1e-5


def test_a_record_can_be_compiled_and_added():
    compiled = torch.compile(norm_record, backend="aot_eager", fullgraph=True)
    embeddings, gradients = some_embeddings(), some_embeddings(seed=1)
    record = compiled(embeddings, gradients)
    torch.testing.assert_close(record, norm_record(embeddings, gradients))
    monitor, seen = watched(constrained=True)
    monitor.add(record)
    record.zero_()  # a captured step writes the next one to the same place
    monitor.close()
    assert {name: seen[0][name] for name in FIGURES} == pytest.approx(by_loops(embeddings, gradients, 0.1, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_record_can_be_captured():
    embeddings, labels = some_embeddings(dtype=torch.float32).cuda().requires_grad_(), LABELS.cuda()
    criterion, (monitor, seen) = isosphere.TripletLoss(), watched()

    def step() -> Tensor:
        (gradients,) = torch.autograd.grad(criterion(embeddings, labels), embeddings)
        return norm_record(embeddings, gradients)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        wanted = step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        record = step()
        with pytest.raises(Unsupported):
            monitor(embeddings)
    graph.replay()
    torch.testing.assert_close(record, wanted, atol=1e-5, rtol=1e-4)
    monitor.add(record)
    monitor.close()
    assert seen[0]["norm_mean"] == pytest.approx(float(wanted[0].mean())) and seen[0]["radial_share"] < 1e-10


RANKS = """
import sys, isosphere
from types import SimpleNamespace
assert "torch" not in sys.modules
import torch, torch.distributed as dist
isosphere.NormMonitor
assert not {"lightning", "pytorch_lightning", "tensorboard"} & set(sys.modules)
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
model = torch.nn.Linear(4, 3)
optimizer = SimpleNamespace(param_groups=[{"lr": 0.1}])  # a real one takes seconds to import
monitor = isosphere.NormMonitor(optimizer, file=f"{folder}/norms.jsonl", every=2, power=2)
for step in range(3):
    embeddings = model(torch.full((5, 4), 1.0 + rank))
    monitor(embeddings)
    embeddings.square().sum().backward()
    monitor.probe(embeddings, step)
dist.destroy_process_group()
"""


def test_the_first_rank_watches_alone_and_the_last_rows_are_written_at_exit(tmp_path):
    """And nothing heavy is imported unasked."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [[sys.executable, "-W", "ignore", "-c", RANKS, str(rank), str(tmp_path)] for rank in (0, 1)]
    processes = [subprocess.Popen(one, env=environment) for one in words]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    records = [json.loads(line) for line in (tmp_path / "norms.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train"] == [1, 2, 3]
    assert [record["step"] for record in records if record["kind"] == "probe"] == [1, 2]
    assert all(record["radial_share"] == pytest.approx(1) for record in records if record["kind"] == "train")


# ---------------------------------------------------------------- probes


def test_angles_are_exact_from_tiny_to_straight():
    base = torch.tensor([[3.0, 0.0]])
    for angle in (1e-6, 1e-3, 0.5, math.pi / 2, 3.0, math.pi):
        after = 7 * torch.tensor([[math.cos(angle), math.sin(angle)]])
        assert float(turned(base, after)) == pytest.approx(angle, rel=1e-5)
    before, after = some_embeddings(), some_embeddings(seed=1)
    for angle, f, g in zip(turned(before, after).tolist(), before.tolist(), after.tolist(), strict=True):
        cosine = sum(x * y for x, y in zip(f, g, strict=True)) / math.hypot(*f) / math.hypot(*g)
        assert angle == pytest.approx(math.acos(cosine))
    assert turned(torch.zeros(1, 2), base).isnan().all() and turned(base, torch.full((1, 2), math.inf)).isnan().all()


def test_a_probe_shows_angles_their_moments_and_the_slope(tmp_path):
    monitor, seen = watched(file=tmp_path / "probe.jsonl")
    before, after = some_embeddings(), some_embeddings(seed=1)
    assert monitor.probe(before, step=10) is None and not seen
    angles = monitor.probe(after, step=20).numpy()
    lengths = before.norm(dim=1).numpy()
    (slope, _), covariance = np.polyfit(np.log(lengths), np.log(angles), 1, cov=True)
    wanted = {"turn_mean": angles.mean(), "turn_variance": angles.var(), "turn_slope": slope}
    record = json.loads((tmp_path / "probe.jsonl").read_text())
    assert record == seen[0]
    assert {name: record[name] for name in wanted} == pytest.approx(wanted)
    assert record["turn_slope_error"] == pytest.approx(math.sqrt(covariance[0, 0]))
    assert (record["step"], record["kind"], record["since"]) == (20, "probe", 10)
    assert record["angles"] == pytest.approx(angles, rel=1e-3)
    monitor.probe(before, step=30)
    assert seen[1]["since"] == 20 and seen[1]["turn_mean"] == pytest.approx(record["turn_mean"])
    refused("embeddings", (5, 8), lambda: monitor.probe(before[:5], step=40))


@pytest.mark.parametrize("power", [1, 2])
def test_embeddings_that_move_freely_have_the_slope_of_the_proxy(power):
    before = some_embeddings()
    unit = sphere.directions(before)
    aside = torch.roll(unit, 1, dims=1)
    aside = sphere.directions(aside - (aside * unit).sum(1, keepdim=True) * unit)
    after = before + 1e-4 * aside * before.norm(dim=1, keepdim=True) ** (1 - power)
    figures = turn_figures(before.norm(dim=1), turned(before, after))
    assert figures["turn_slope"] == pytest.approx(-power, abs=1e-5)


def test_a_probe_without_a_slope_leaves_it_out():
    monitor, seen = watched()
    corners = torch.eye(3)
    monitor.probe(corners, 0)
    angles = monitor.probe(torch.tensor([[0.0, 1, 0], [0, 1, 0], [0, 0, 0]]), 1)
    assert angles.tolist() == pytest.approx([math.pi / 2, 0, math.nan], nan_ok=True)
    assert seen[0]["turn_mean"] == pytest.approx(math.pi / 4) and "turn_slope" not in seen[0]
    assert seen[0]["angles"][2] is None


# ---------------------------------------------------------------- alarms


def train_on(means: list[float], spread: float = 0.1, radial: float = 0.0, **settings) -> list[str]:
    """The alarms of steps whose norms have these means, this coefficient of variation and radial share."""
    monitor, seen = watched(every=1, **settings)
    deviations = torch.tensor([-1.0, 1.0]).repeat(12) * spread
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for mean in means:
            embeddings = torch.zeros(24, 8)
            embeddings[:, 0] = mean * (1 + deviations)
            embeddings = embeddings.requires_grad_() * 1
            monitor(embeddings)
            gradients = torch.zeros(24, 8)
            gradients[:, 0], gradients[:, 1] = math.sqrt(radial), math.sqrt(1 - radial)
            embeddings.backward(gradients)
        monitor.close()
    names = [record["warning"] for record in monitor.alarms]
    assert names == [record["warning"] for record in seen if record["kind"] == "warning"]
    assert [record["text"] for record in monitor.alarms] == [str(one.message).split(": ", 1)[1] for one in caught]
    return names


def test_healthy_runs_are_silent():
    assert not train_on([8.7] * 20)
    assert not train_on(np.geomspace(14, 3, 60).tolist()), "as SEC with weight decay on CUB-200-2011"
    assert not train_on(np.geomspace(2, 19, 60).tolist(), spread=0.19), "as from scratch, with SEC"
    assert not train_on([1.0] * 5, spread=0.05), "a radius of 1 is no normalized output"
    assert not train_on([8.7] * 5, radial=0.5, constrained=True)
    assert not train_on([8.7] * 5, radial=0.009)


def test_each_alarm_is_raised_once_an_episode():
    assert train_on([2.0] * 3 + np.geomspace(2, 200, 40).tolist()) == ["exploding"]
    assert train_on(np.geomspace(2, 0.02, 40).tolist()) == ["collapsing"]
    assert train_on([0.0] * 3) == ["zero", "collapsing"]
    assert train_on([2.0, 1e-30, 2.0]) == ["zero", "collapsing"], "the square of one norm is 0 in float32"
    assert train_on([8.7] * 20, spread=sphere.SPREADING + 0.01) == ["spreading"]
    assert train_on([1.0] * 20, spread=0.0) == ["normalized"]
    assert train_on([1.0] * 20, spread=0.0, radial=0.5) == ["normalized"], "what is radial there is projected away"
    assert train_on([8.7] * 20, radial=0.02) == ["radial"]
    assert train_on([8.7, math.nan, 8.7, math.inf, 8.7]) == ["not_finite"]
    assert train_on([2.0, 30.0, 2.0, 30.0]) == ["exploding"], "one episode, though it hovers"
    assert train_on([2.0, 30.0] + [2.0] * (CALM - 1) + [30.0]) == ["exploding"]
    assert train_on([2.0, 30.0] + [2.0] * CALM + [30.0]) == ["exploding", "exploding"]


def test_norms_that_explode_before_the_first_read_are_measured_by_the_first_step():
    monitor, _ = watched(every=5)
    monitor(torch.ones(4, 1) * 50.0)  # an evaluation is no step
    for mean in (2.0, 90.0, 90.0, 90.0):
        monitor((torch.ones(4, 1) * mean).requires_grad_())
    with pytest.warns(UserWarning, match=r"step 4: norms explode: their mean 68 is 34 times the first step's"):
        monitor.close()


def test_alarms_name_the_numbers_and_a_remedy():
    monitor, _ = watched(every=1)
    for mean in (2.0, 30.0):
        monitor((torch.ones(4, 1) * mean).requires_grad_())
    with pytest.warns(UserWarning, match=r"step 2: norms explode: their mean 30 is 15 times .* 225 times slower; "):
        monitor.close()


def test_an_alarm_points_at_the_line_that_called():
    monitor, _ = watched(every=1)
    with pytest.warns(UserWarning, match="norms explode") as seen:
        for mean in (2.0, 30.0, 30.0):
            monitor((torch.ones(4, 1) * mean).requires_grad_())
    with pytest.warns(UserWarning, match="not finite") as seen_at_the_end:
        monitor((torch.ones(4, 1) * math.nan).requires_grad_())
        monitor.close()
    assert {one.filename for one in (*seen, *seen_at_the_end)} == {__file__}


def test_alarms_give_the_advice_they_are_given_and_spread_is_none_without():
    figures, own = {"norm_mean": 1.5, "norm_cv": 0.5}, {"exploding": "e", "collapsing": "c", "spreading": "s"}
    ends = {name: words.split("; ")[1] for name, words in alarms(figures, 20.0, 1, False)}
    assert ends == {name: ADVICE[name] for name in ("collapsing", "spreading")}
    assert "L2-reg" in ends["collapsing"] and not any("SEC(" in words for words in ADVICE.values())
    for first_mean, name in ((20.0, "collapsing"), (0.1, "exploding")):
        found = dict(alarms(figures, first_mean, 1, False, own))
        assert {key: words.split("; ")[1] for key, words in found.items()} == {name: own[name], "spreading": "s"}
    episodes, waiting = Episodes(1, False), {"exploding": "e", "collapsing": "c"}
    begun = [list(episodes.fresh(figures, words)) for words in (waiting, waiting, own, own)]
    assert begun == [[], [], ["spreading"], []]


@pytest.mark.parametrize("dim", [16, 128, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_normalized_output_is_seen_in_every_precision(dim, dtype):
    monitor, _ = watched(every=1)
    generator = torch.Generator().manual_seed(dim)
    monitor(nn.functional.normalize(torch.randn(120, dim, generator=generator).to(dtype)).requires_grad_())
    monitor.close()
    assert [record["warning"] for record in monitor.alarms] == ["normalized"]


def test_real_losses_raise_what_they_should():
    for loss, wanted in ((isosphere.TripletLoss(), []), (isosphere.LinearClassifier(8, 8).double(), ["radial"])):
        monitor, _ = watched()
        embeddings = some_embeddings(spread=0.05).requires_grad_() * 0.3 + torch.ones(8)
        monitor(embeddings)
        loss(embeddings, LABELS).backward()
        monitor.close()
        assert [record["warning"] for record in monitor.alarms] == wanted


# ---------------------------------------------------------------- sinks


def test_the_file_is_appended_to_as_strict_json(tmp_path):
    def refuse(word: str):
        raise ValueError(f"{word} is not JSON")

    for _ in range(2):
        monitor, seen = watched(file=tmp_path / "norms.jsonl", every=2)
        for number in range(3):
            monitor(some_embeddings(seed=number) * (math.nan if number == 1 else 1))
        monitor.close()
        monitor.close()  # nothing is left, nothing is seen twice
    lines = (tmp_path / "norms.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=refuse) for line in lines]
    assert found == [*seen, {"step": 0, "kind": "start"}, *seen], "steps begin anew, and the file says so"
    with pytest.raises(NoFolder) as error:
        watched(file=tmp_path / "nowhere" / "norms.jsonl")
    assert error.value.folder == str(tmp_path / "nowhere")


@pytest.mark.parametrize("file", [".", "taken/norms.jsonl"])
def test_a_file_that_cannot_be_opened_is_refused_at_once(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError):
        watched(file=file)


def test_a_file_that_fails_later_warns_once_and_ends_no_loop(tmp_path, monkeypatch):
    """Its folder goes, a disk is full in the middle of a line, and all is well again."""
    file = tmp_path / "gone" / "norms.jsonl"
    file.parent.mkdir()
    monitor, told = watched(file=file, every=1)
    assert file.is_file()
    monitor(some_embeddings())
    file.rename(tmp_path / "kept.jsonl")
    file.parent.rmdir()
    with pytest.warns(UserWarning) as said:
        for number in range(4):
            monitor(some_embeddings(seed=number))
        monitor.flush()
    assert len(said) == 1 and str(file) in str(said[0].message)
    file.parent.mkdir()
    file.write_text('{"step": 9, "ki')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor(some_embeddings())
        monitor.close()
    lines = file.read_text().splitlines()
    assert lines[0] == '{"step": 9, "ki' and json.loads(lines[1]) == told[-1] and len(told) == 6


def test_only_the_first_rank_makes_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("isosphere.monitor.watch._first_rank", lambda: False)
    monitor, _ = watched(file=tmp_path / "norms.jsonl", every=1)
    monitor(some_embeddings())
    monitor.close()
    assert not (tmp_path / "norms.jsonl").exists()


def test_tensorboard_gets_the_mean_of_each_read(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        monitor, seen = watched(tensorboard=writer, every=3, constrained=True)
        for number in range(5):
            monitor((some_embeddings(seed=number) * (1 + 20 * (number > 2))).requires_grad_() * 1)
        monitor.probe(some_embeddings(), 5)
        monitor.probe(some_embeddings(seed=1), 5)
        monitor.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    means = [record["norm_mean"] for record in seen if record["kind"] == "train"]
    found = [(one.step, one.value) for one in events.Scalars("train/norm_mean")]
    assert found == [(3, pytest.approx(sum(means[:3]) / 3)), (5, pytest.approx(sum(means[3:]) / 2))]
    turns = [record["turn_mean"] for record in seen if record["kind"] == "probe"]
    assert [one.value for one in events.Scalars("probe/turn_mean")] == pytest.approx(turns)
    assert any("exploding" in tag for tag in events.Tags()["tensors"])


def test_bad_input_is_refused_in_a_line():
    monitor, seen = watched()
    refused("embeddings", (2, 3, 4), lambda: monitor(torch.zeros(2, 3, 4)))
    refused("embeddings", tuple, lambda: monitor((torch.zeros(2, 3),)))
    refused("embeddings", torch.int64, lambda: monitor(torch.ones(2, 3, dtype=torch.int64)))
    refused("every", 0, lambda: watched(every=0))
    refused("power", 0, lambda: watched(power=0))
    monitor(torch.zeros(0, 4))
    monitor.close()
    assert not seen


# ---------------------------------------------------------------- Lightning


class Texts:
    """An experiment that takes text, as TensorBoard's does."""

    def __init__(self):
        self.found = []

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.found.append((tag, step, text))


def fit_a_little(lightning, callback, loggers, spread: float = 1.0) -> list[warnings.WarningMessage]:
    """The warnings of three steps of a tiny Lightning module whose norms spread as much as its inputs."""

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.embedder = nn.Linear(6, 8, bias=False)

        def training_step(self, batch, index):
            return isosphere.TripletLoss()(self.embedder(batch[0]), LABELS)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    scales = torch.exp(spread * torch.linspace(-1, 1, 72))[torch.randperm(72)].unsqueeze(1)
    points = nn.functional.normalize(torch.randn(72, 6)) * scales
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points), batch_size=24)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        lightning.Trainer(
            max_epochs=1, accelerator="cpu", callbacks=[callback], logger=loggers, enable_progress_bar=False,
            enable_checkpointing=False, enable_model_summary=False, log_every_n_steps=1,
        ).fit(Model(), data)  # fmt: skip
    return seen


def test_lightning_shows_a_wrong_name_and_not_its_own_end():
    lightning = importlib.import_module("lightning.pytorch")
    with pytest.raises(AttributeError, match="embeder"):
        fit_a_little(lightning, lightning_callback("embeder"), False)


@pytest.mark.parametrize("every", [1, 3])  # seen in a step, and at the end of training
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_an_alarm_in_lightning_points_at_the_loop_of_its_user(package, every, monkeypatch):
    lightning = importlib.import_module(package)
    if package == "pytorch_lightning":
        monkeypatch.delitem(sys.modules, "lightning.pytorch", raising=False)
    seen = fit_a_little(lightning, lightning_callback("embedder", every=every), False)
    assert [one.filename for one in seen if "norms spread" in str(one.message)] == [__file__]


def test_lightning_loggers_get_alarms_as_text_and_no_empty_rows(tmp_path):
    lightning = importlib.import_module("lightning.pytorch")

    class Named(lightning.loggers.logger.DummyLogger):
        texts = Texts()

        @property
        def experiment(self):
            return self.texts

    rows_of, texts = lightning.loggers.CSVLogger(tmp_path, "norms"), Named()
    fit_a_little(lightning, lightning_callback("embedder", every=3), [rows_of, texts])
    header, *lines = (tmp_path / "norms" / "version_0" / "metrics.csv").read_text().splitlines()
    assert "train/norm_mean" in header and len(lines) == 1
    ((tag, step, words),) = texts.texts.found
    assert (tag, step) == ("warning/spreading", 3) and words.startswith("norms spread")


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(tmp_path, package):
    lightning = importlib.import_module(package)
    if package == "pytorch_lightning":  # of two packages in one process it would take the other
        hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if name == "lightning.pytorch"}

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.embedder = nn.Linear(6, 8)

        def training_step(self, batch, index):
            return isosphere.TripletLoss()(self.embedder(batch[0]), LABELS)

        def validation_step(self, batch, index):
            self.embedder(batch[0])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    class Logged(lightning.loggers.logger.DummyLogger):
        curves: list = []

        def log_metrics(self, metrics, step):
            self.curves.append((step, metrics))

    seen, logger = [], Logged()
    try:
        callback = lightning_callback("embedder", callback=seen.append, file=tmp_path / "norms.jsonl", every=4)
    finally:
        if package == "pytorch_lightning":
            sys.modules.update(hidden)
    assert isinstance(callback, lightning.Callback)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(24 * 6, 6)), batch_size=24)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_epochs=1, accumulate_grad_batches=2, accelerator="cpu", callbacks=[callback], logger=logger,
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False, log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(Model(), data, data)
    steps = rows(seen)
    assert [(record["step"], record["kind"]) for record in steps] == [(step, "train") for step in (1, 1, 2, 2, 3, 3)]
    assert all(record["radial_share"] < 1e-10 and record["lr_proxy_mean"] > 0 for record in steps)
    assert len((tmp_path / "norms.jsonl").read_text().splitlines()) == len(seen)
    curves = [(step, metrics["train/norm_mean"]) for step, metrics in logger.curves if "train/norm_mean" in metrics]
    wanted = [sum(record["norm_mean"] for record in part) / len(part) for part in (steps[:4], steps[4:])]
    assert curves == [(2, pytest.approx(wanted[0])), (3, pytest.approx(wanted[1]))]
