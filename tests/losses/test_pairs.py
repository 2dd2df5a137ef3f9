"""Pair losses: any labels, ties, readable angles, PML. What all losses promise is in test_contracts.py."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, miners, reducers
from pytorch_metric_learning import losses as pml

import references
from isosphere.errors import BadArgument
from isosphere.losses import contrastive as views
from isosphere.losses import lists, pairs, rankings, slopes, tuplets

FUNCTIONS = {
    "triplet": pairs.triplet,
    "semihard_triplet": pairs.semihard_triplet,
    "npair": pairs.npair,
    "npair_all": lambda f, y: pairs.npair(f, y, 25.0, "all"),
    "multi_similarity": pairs.multi_similarity,
    "contrastive": pairs.contrastive,
    "supcon": views.supcon,
    "circle": lists.circle,
    "lifted_structure": lists.lifted_structure,
    "ranked_list": lists.ranked_list,
    "tuplet_margin": tuplets.tuplet_margin,
    "decoupled_contrastive": tuplets.decoupled_contrastive,
    "smooth_ap": rankings.smooth_ap,
    "recall_surrogate": rankings.recall_surrogate,
}
OTHERS = {"npair_all": lambda f, y: references.npair(f, y, 25.0, "all"), "circle": references.circle_loss}
REFERENCES = OTHERS | {name: getattr(references, name) for name in FUNCTIONS.keys() - OTHERS.keys()}
pytestmark = pytest.mark.filterwarnings("ignore:all labels of the batch are")


def batch(n: int = 10, dim: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.rand(n, 1, generator=generator, dtype=dtype) + 0.5
    return (torch.randn(n, dim, generator=generator, dtype=dtype) * scales).requires_grad_()


def value_and_gradient(function, embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = function(embeddings, labels)
    return loss.detach(), torch.autograd.grad(loss, embeddings)[0]


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    settings_=st.tuples(st.sampled_from(sorted(FUNCTIONS)), st.sampled_from([2, 5])),
)
@settings(max_examples=90, deadline=None)
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
        "circle": pml.CircleLoss(0.4, 80),
        "lifted_structure": pml.GeneralizedLiftedStructureLoss(1.0, 0.0),
        "tuplet_margin": pml.TupletMarginLoss(math.degrees(0.1), 64),
    }
    for name, oracle in oracles.items():
        ours, theirs = value_and_gradient(FUNCTIONS[name], f, y), value_and_gradient(oracle, f, y)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_average_precision_at_readable_angles() -> None:
    # From 0 the order is 10 (other), 20 (own), 40 (other), 60 (own): precisions 1/2 and 2/4. A sharp sigmoid counts.
    f, y = references.circle([0, 10, 20, 40, 60]), torch.tensor([0, 1, 0, 2, 0])
    anchor_0 = (1 / 2 + 2 / 4) / 2
    # From 20: 10 (other), then 0 and 40 at equal distances, one of them own, then 60. A tie is half above.
    anchor_20 = (1 / 2.5 + 2 / 4) / 2
    # From 60: 40 (other), 20 (own), 10 (other), 0 (own).
    anchor_60 = (1 / 2 + 2 / 4) / 2
    wanted = 1 - (anchor_0 + anchor_20 + anchor_60) / 3
    assert rankings.smooth_ap(f, y, 1e-5).item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("loss", [rankings.smooth_ap, rankings.recall_surrogate])
def test_ranks_in_blocks_are_the_same_and_too_many_of_a_class_are_named(loss, monkeypatch) -> None:
    f, y = batch(12), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4])
    whole = value_and_gradient(loss, f, y)
    torch.testing.assert_close(value_and_gradient(lambda f, y: loss(f, y, per_class=6), f, y), whole)
    for module in (slopes, rankings):
        monkeypatch.setattr(module, "BLOCK", 1)
    torch.testing.assert_close(value_and_gradient(loss, f, y), whole)
    with pytest.raises(BadArgument) as error:
        loss(f, y, per_class=3)
    assert error.value.name == "per_class"
    compiled = torch.compile(lambda f: loss(f, y, per_class=3), backend="aot_eager", fullgraph=True)
    assert compiled(f.detach()).isnan(), "what cannot be read must show"


@pytest.mark.parametrize("loss", [lists.lifted_structure, lists.ranked_list])
def test_equal_embeddings_have_no_pull_along_a_distance_of_0(loss) -> None:
    f = references.circle([0, 0, 30, 70]).requires_grad_()
    value, gradient = value_and_gradient(loss, f, torch.tensor([0, 0, 1, 1]))
    assert value.isfinite() and gradient.isfinite().all() and gradient.any()


@pytest.mark.parametrize("labels", [[0, 1], [5, 5]])
def test_contrastive_is_silent_where_single_pairs_are_within_their_margins(labels: list[int]) -> None:
    f = references.circle([0, 0 if labels[0] == labels[1] else 90])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pairs.ContrastiveLoss()(f, torch.tensor(labels)) == 0
