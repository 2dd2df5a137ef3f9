"""Pair losses: loop transcriptions, PML, gradients in closed form, and what must not change the loss."""

import inspect
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, miners, reducers
from pytorch_metric_learning import losses as pml

import references
from isosphere.losses import contrastive as views
from isosphere.losses import pairs, slopes

FUNCTIONS = {
    "triplet": pairs.triplet,
    "semihard_triplet": pairs.semihard_triplet,
    "npair": pairs.npair,
    "npair_all": lambda f, y: pairs.npair(f, y, 25.0, "all"),
    "multi_similarity": pairs.multi_similarity,
    "contrastive": pairs.contrastive,
    "supcon": views.supcon,
}
REFERENCES = {
    "npair_all": lambda f, y: references.npair(f, y, 25.0, "all"),
    **{name: getattr(references, name) for name in FUNCTIONS if name != "npair_all"},
}
pytestmark = pytest.mark.filterwarnings("ignore:all labels of the batch are")  # a test of its own has it
UNEQUAL = torch.tensor([3, 0, 3, 7, 0, 3, 7, 9, 0, 3])  # 3, 4, 2 and 1 of a class, not in order


@pytest.fixture(params=FUNCTIONS)
def name(request) -> str:
    return request.param


def batch(n: int = 10, dim: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.rand(n, 1, generator=generator, dtype=dtype) + 0.5
    return (torch.randn(n, dim, generator=generator, dtype=dtype) * scales).requires_grad_()


def value_and_gradient(function, embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = function(embeddings, labels)
    return loss.detach(), torch.autograd.grad(loss, embeddings)[0]


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loops(name: str, seed: int) -> None:
    f = batch(seed=seed)
    ours, theirs = (value_and_gradient(table[name], f, UNEQUAL) for table in (FUNCTIONS, REFERENCES))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    settings_=st.tuples(st.sampled_from(sorted(FUNCTIONS)), st.sampled_from([2, 5])),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_loops_for_any_labels(labels: list[int], seed: int, settings_: tuple[str, int]) -> None:
    name, dim = settings_
    f, y = batch(len(labels), dim, seed), torch.tensor(labels)
    ours, theirs = (value_and_gradient(table[name], f, y) for table in (FUNCTIONS, REFERENCES))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@given(labels=st.lists(st.integers(0, 2), min_size=2, max_size=7), data=st.data())
@settings(max_examples=60, deadline=None)
def test_triplets_with_ties(labels: list[int], data: st.DataObject) -> None:
    # Few angles, so that many distances are equal: sorting must not care. Cosines of 60 and 90 degrees are inexact,
    # so only values are compared, and semi-hard, which compares with >, is left to the test at readable angles.
    angles = data.draw(st.lists(st.sampled_from([0.0, 60.0, 90.0, 180.0]), min_size=len(labels), max_size=len(labels)))
    margin = data.draw(st.sampled_from([0.0, 0.2, 1.0, 2.0]))
    f, y = references.circle(angles), torch.tensor(labels)
    torch.testing.assert_close(pairs.triplet(f, y, margin), references.triplet(f, y, margin), rtol=1e-9, atol=1e-12)


def test_triplet_at_readable_angles() -> None:
    # Anchor 0, positive at 60 (d = 1), negative at 90 (d = 2): 1 - 2 + 1 = 0. From 60: d_ap = 1, d_an = 2 - sqrt(3).
    f, y = references.circle([0, 60, 90]), torch.tensor([0, 0, 1])
    assert pairs.triplet(f, y, 1.0).item() == pytest.approx((0 + 1 - (2 - 3**0.5) + 1) / 2)


def test_semihard_at_readable_angles() -> None:
    # From 0: the positive at 60 has d = 1; negatives at 90 (2) and 180 (4) are farther, the one at 20 is nearer. The
    # smallest beyond is 2: hinge 1 - 2 + 1.5 = 0.5. From 60: d(20) = .468, d(90) = .268, d(180) = 3: 1 - 3 + 1.5 < 0.
    f, y = references.circle([0, 60, 90, 180, 20]), torch.tensor([0, 0, 1, 2, 3])
    assert pairs.semihard_triplet(f, y, 1.5).item() == pytest.approx(0.5 / 2)
    # No negative is farther than the positive at 180: the *largest* d_an is taken, 2 - 2 cos 30.
    f, y = references.circle([0, 180, 10, 30]), torch.tensor([0, 0, 1, 2])
    far = references.chord(f[0], f[3]) + 0  # from 0; from 180 the nearest beyond does not exist either: 2 + 2 cos 10
    other = references.chord(f[1], f[2])
    assert pairs.semihard_triplet(f, y, 0.2).item() == pytest.approx(((4.2 - far) + (4.2 - other)).item() / 2)


def test_semihard_passes_over_a_negative_at_the_same_distance() -> None:
    f = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0]])  # from row 0: d = 2, 2, 4
    y = torch.tensor([0, 0, 1, 2])  # row 0: 2 - 4 + m, row 1 (d = 2, 2): none beyond, the largest: 2 - 2 + m
    assert pairs.semihard_triplet(f, y, 0.5).item() == pytest.approx((0 + 0.5) / 2)


def test_npair_takes_the_first_two_of_a_class() -> None:
    f = references.circle([0, 20, 50, 100, 130])
    first = pairs.npair(f, torch.tensor([0, 0, 0, 1, 1]), 2.0)
    assert first.item() == pytest.approx(pairs.npair(f[[0, 1, 3, 4]], torch.tensor([0, 0, 1, 1]), 2.0).item())
    logits = 2.0 * torch.tensor([[0.939692620786, -0.642787609687], [0.173648177667, 0.866025403784]])
    assert first.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1])).item())


def mined(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return pml.MultiSimilarityLoss(2, 40, 0.5)(f, y, miners.MultiSimilarityMiner(0.1)(f, y))


def hinges(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = pml.ContrastiveLoss(1.0, 0.5, distance=distances.CosineSimilarity(), reducer=reducers.DoNothingReducer())
    return sum(part["losses"].sum() for part in loss(f, y).values()) / len(f)


def test_equals_pml() -> None:
    f, y = batch(24, 8), torch.arange(24) // 4
    oracles = {
        "triplet": pml.TripletMarginLoss(1.0, distance=distances.LpDistance(power=2), reducer=reducers.MeanReducer()),
        "multi_similarity": mined,
        "npair_all": pml.NTXentLoss(1 / 25),
        "supcon": pml.SupConLoss(0.1),
        "contrastive": hinges,
    }
    for name, oracle in oracles.items():
        ours, theirs = value_and_gradient(FUNCTIONS[name], f, y), value_and_gradient(oracle, f, y)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_gradcheck(name: str) -> None:
    assert torch.autograd.gradcheck(lambda f: FUNCTIONS[name](f, UNEQUAL), batch(dim=3, seed=5))


def test_second_derivatives_are_refused() -> None:
    f = batch()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(pairs.triplet(f, UNEQUAL), f, create_graph=True)


def test_proposition_1_the_gradient_is_orthogonal_to_the_embedding(name: str) -> None:
    f = batch()
    _, gradient = value_and_gradient(FUNCTIONS[name], f, UNEQUAL)
    assert gradient.norm() > 1e-3
    assert (gradient * f).sum(1).abs().max() < 1e-12


def test_scale_relabelling_and_order_do_not_matter(name: str) -> None:
    f, function = batch(), FUNCTIONS[name]
    loss, gradient = value_and_gradient(function, f, UNEQUAL)
    lengths = torch.linspace(0.1, 30, 10, dtype=torch.float64)[:, None]
    scaled = (f.detach() * lengths).requires_grad_()
    torch.testing.assert_close(value_and_gradient(function, scaled, UNEQUAL), (loss, gradient / lengths))
    torch.testing.assert_close(function(f, 100 - 3 * UNEQUAL), loss)
    torch.testing.assert_close(function(f, UNEQUAL.to(torch.uint8)), loss)
    if name != "npair":  # whose first two samples of a class are those that come first
        order = torch.randperm(10, generator=torch.Generator().manual_seed(1))
        moved = f.detach()[order].requires_grad_()
        torch.testing.assert_close(value_and_gradient(function, moved, UNEQUAL[order]), (loss, gradient[order]))


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [5, 5, 5, 5], [2], []])
def test_nothing_to_compare_gives_a_zero_that_backpropagates(name: str, labels: list[int]) -> None:
    f = batch(len(labels))
    loss, gradient = value_and_gradient(FUNCTIONS[name], f, torch.tensor(labels, dtype=torch.long))
    if name == "contrastive" and labels:  # it compares single pairs, so one kind is enough
        torch.testing.assert_close(loss, references.contrastive(f, torch.tensor(labels)).detach())
        return
    assert loss == 0 and gradient.shape == f.shape and not gradient.any()


@pytest.mark.parametrize(
    "labels, told", [([0, 1, 2, 3], "different"), ([0, 1, 2, 0], ""), ([5, 5, 5, 5], "the same"), ([2], "")]
)
def test_labels_that_are_all_alike_or_different_are_told_where_the_loss_is_called(labels: list[int], told: str) -> None:
    f, y = batch(len(labels)), torch.tensor(labels)
    both_kinds = [function for name, function in FUNCTIONS.items() if name != "contrastive"]
    for function in (pairs.TripletLoss(), pairs.NPairLoss(), views.SupConLoss(), *both_kinds):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            function(f, y)
        assert [note.filename for note in found] == [__file__] * bool(told)
        assert all(f"all labels of the batch are {told}, so this loss is 0" in str(note.message) for note in found)


@pytest.mark.parametrize("labels", [[0, 1], [5, 5]])
def test_contrastive_is_silent_where_single_pairs_are_within_their_margins(labels: list[int]) -> None:
    f = references.circle([0, 0 if labels[0] == labels[1] else 90])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pairs.ContrastiveLoss()(f, torch.tensor(labels)) == 0


def test_zero_vectors_have_finite_loss_and_no_gradient(name: str) -> None:
    f = batch().detach()
    f[4] = 0
    loss, gradient = value_and_gradient(FUNCTIONS[name], f.requires_grad_(), UNEQUAL)
    assert loss.isfinite() and gradient.isfinite().all() and not gradient[4].any() and gradient[0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_raised_even_under_autocast(name: str, dtype: torch.dtype) -> None:
    f = batch(dtype=torch.float32).detach().to(dtype).requires_grad_()
    exact, exact_gradient = value_and_gradient(FUNCTIONS[name], f.detach().float().requires_grad_(), UNEQUAL)
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss, gradient = value_and_gradient(FUNCTIONS[name], f, UNEQUAL)
        assert loss.dtype == torch.float32 and gradient.dtype == dtype
        torch.testing.assert_close(loss, exact)
        torch.testing.assert_close(gradient.float(), exact_gradient, rtol=1e-2, atol=1e-3)


def test_blocks_of_rows_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, y = batch(23, 3), torch.arange(23) % 5
    whole = value_and_gradient(FUNCTIONS[name], f, y)
    monkeypatch.setattr(slopes, "BLOCK", 1)  # blocks of D = 3 rows, the last of 2
    torch.testing.assert_close(value_and_gradient(FUNCTIONS[name], f, y), whole)


def test_without_gradients_the_value_is_the_same(name: str) -> None:
    f = batch()
    with torch.no_grad():
        assert FUNCTIONS[name](f, UNEQUAL) == FUNCTIONS[name](f.requires_grad_(), UNEQUAL).detach()
    assert not FUNCTIONS[name](f.detach(), UNEQUAL).requires_grad


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_row_is_named(name: str, bad: float) -> None:
    f = batch().detach()
    f[7, 2] = bad  # row 7 is alone in its class: mining alone would not show it
    with pytest.raises(ValueError, match="embeddings row 7 of 10 is not finite"):
        FUNCTIONS[name](f, UNEQUAL)


def test_wrong_input_is_named(name: str) -> None:
    f, function = batch(), FUNCTIONS[name]
    with pytest.raises(ValueError, match=r"10 embeddings need labels \(10,\), not \(9,\)"):
        function(f, UNEQUAL[:9])
    with pytest.raises(ValueError, match="labels must be integers, not torch.float32"):
        function(f, UNEQUAL.float())
    with pytest.raises(ValueError, match="embeddings must be"):
        function(f[0], UNEQUAL)
    with pytest.raises(ValueError, match="embeddings must be"):
        function(f.long(), UNEQUAL)
    with pytest.raises(TypeError, match="embeddings must be a torch tensor, not list"):
        function(f.tolist(), UNEQUAL)
    with pytest.raises(TypeError, match="labels must be a torch tensor, not ndarray"):
        function(f, np.asarray(UNEQUAL))


@pytest.mark.parametrize("bad", [0, -2.0, float("nan"), float("inf")])
def test_settings_that_are_not_positive_are_named(bad: float) -> None:
    f = batch()
    for setting, module, function in (
        ("scale", pairs.NPairLoss, pairs.npair),
        ("alpha", pairs.MultiSimilarityLoss, pairs.multi_similarity),
        ("beta", pairs.MultiSimilarityLoss, pairs.multi_similarity),
        ("temperature", views.SupConLoss, views.supcon),
        ("temperature", views.NTXentLoss, views.nt_xent),
    ):
        for make in (lambda: module(**{setting: bad}), lambda: function(f, UNEQUAL, **{setting: bad})):  # noqa: B023
            with pytest.raises(ValueError, match=f"{setting} must be a positive number, not {bad}"):
                make()


def test_npair_refuses_other_negatives() -> None:
    for make in (lambda: pairs.NPairLoss(25, "some"), lambda: pairs.npair(batch(), UNEQUAL, 25, "some")):
        with pytest.raises(ValueError, match='"positives" or "all", not \'some\''):
            make()


@pytest.mark.parametrize(
    ("criterion", "function"),
    [
        (pairs.TripletLoss(0.7), lambda f, y: pairs.triplet(f, y, 0.7)),
        (pairs.SemiHardTripletLoss(0.9), lambda f, y: pairs.semihard_triplet(f, y, 0.9)),
        (pairs.NPairLoss(3, negatives="all"), lambda f, y: pairs.npair(f, y, 3, "all")),
        (pairs.MultiSimilarityLoss(1, 9, 0.3, 0.4), lambda f, y: pairs.multi_similarity(f, y, 1, 9, 0.3, 0.4)),
        (pairs.ContrastiveLoss(0.8, 0.1), lambda f, y: pairs.contrastive(f, y, 0.8, 0.1)),
        (views.SupConLoss(0.3), lambda f, y: views.supcon(f, y, 0.3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_criteria_pass_their_settings_on(criterion: torch.nn.Module, function) -> None:
    f = batch()
    assert criterion(f, UNEQUAL) == function(f, UNEQUAL) != type(criterion)()(f, UNEQUAL)
    for argument in inspect.signature(type(criterion)).parameters:
        assert f"{argument}={getattr(criterion, argument)!r}" in repr(criterion)


LARGE = """
import json, resource, time, torch
from isosphere.losses import pairs
torch.set_num_threads(2)
f, y = torch.randn(8192, 512, requires_grad=True), torch.arange(8192) // 4
pairs.triplet(f[:64], y[:64]).backward()
before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
for loss in (pairs.triplet, pairs.multi_similarity):
    begin = time.perf_counter()
    loss(f, y).backward()
    seconds.append(time.perf_counter() - begin)
print(json.dumps([seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20]))
"""


def test_large_batches_are_quick_and_small() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True, timeout=300)
    seconds, gibibytes = json.loads(done.stdout)
    assert len(seconds) == 2 and max(seconds) < 20
    assert gibibytes < 4  # the higher of the two peaks
