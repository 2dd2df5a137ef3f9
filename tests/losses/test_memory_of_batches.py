"""Anchors of a pair loss, and the memory of past batches that stands behind them."""

import copy

import pytest
import torch
from torch import Tensor

import isosphere
import references
from isosphere.errors import BadArgument, Interrupted
from isosphere.losses import CrossBatchMemory, slopes
from isosphere.train import loop
from isosphere.train.loop import fit
from tiny import tiny_recipe

LABELS = torch.tensor([3, 0, 3, 4, 0, 1, 4, 4, 1, 3])
ANCHORS = slice(2, 7)
LOSSES = {
    "triplet": isosphere.TripletLoss(),
    "semihard_triplet": isosphere.SemiHardTripletLoss(),
    "multi_similarity": isosphere.MultiSimilarityLoss(),
    "contrastive": isosphere.ContrastiveLoss(),
    "supcon": isosphere.SupConLoss(),
    "circle_loss": isosphere.CircleLoss(),
    "lifted_structure": isosphere.LiftedStructureLoss(),
    "ranked_list": isosphere.RankedListLoss(),
    "tuplet_margin": isosphere.TupletMarginLoss(),
    "decoupled_contrastive": isosphere.DecoupledContrastiveLoss(),
    "smooth_ap": isosphere.SmoothAPLoss(),
    "recall_surrogate": isosphere.RecallSurrogateLoss(),
    "npair_all": isosphere.NPairLoss(negatives="all"),
}


def rows(seed: int, count: int = len(LABELS), dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, dtype=dtype, generator=generator).requires_grad_()


@pytest.fixture
def of_anchors(monkeypatch):
    """The loops of `references.py`, in which only these rows are anchors."""

    def loops(name: str, f: Tensor, y: Tensor, anchors: slice) -> Tensor:
        chosen = range(len(f))[anchors]
        for kind in ("positives", "negatives"):
            pairs = getattr(references, kind)
            monkeypatch.setattr(references, kind, lambda y, a, pairs=pairs: pairs(y, a) if a in chosen else [])
        settings = (25.0,) if name == "npair_all" else ()
        value = getattr(references, name)(f, y, *settings)
        monkeypatch.undo()
        return value * (len(f) / len(chosen) if name in ("multi_similarity", "contrastive") else 1)

    return loops


@pytest.mark.parametrize("block", [2**22, 1])
@pytest.mark.parametrize("name", LOSSES)
def test_only_anchors_have_terms_and_all_rows_gradients(name, block, of_anchors, monkeypatch):
    f = rows(0)
    theirs = of_anchors(name, f, LABELS, ANCHORS)
    monkeypatch.setattr(slopes, "BLOCK", block)
    ours = LOSSES[name](f, LABELS, anchors=ANCHORS)
    torch.testing.assert_close(ours, theirs)
    (gradient,), (wanted,) = (torch.autograd.grad(one, f) for one in (ours, theirs))
    torch.testing.assert_close(gradient, wanted)
    assert gradient[: ANCHORS.start].any()
    whole = LOSSES[name](f, LABELS)
    torch.testing.assert_close(LOSSES[name](f, LABELS, anchors=slice(None)), whole, rtol=0, atol=0)


def test_a_loss_of_ones_own_has_anchors():
    @isosphere.pair_loss
    def loss(cosines, positive, negative):
        return (cosines * (negative.double() - positive.double())).sum(1)

    f = rows(0)
    parts = [loss(f, LABELS, anchors=slice(i, i + 1)) for i in range(len(f))]
    torch.testing.assert_close(sum(parts) / len(f), loss(f, LABELS))


@pytest.mark.parametrize("anchors", [slice(0, 8, 2), 4, [0, 1]])
def test_anchors_are_a_plain_slice(anchors):
    with pytest.raises(BadArgument) as error:
        isosphere.TripletLoss()(rows(0), LABELS, anchors)
    assert error.value.name == "anchors"


@pytest.mark.parametrize("name", LOSSES)
def test_a_memory_is_the_last_embeddings_held_constant(name, of_anchors):
    memory = CrossBatchMemory(LOSSES[name], dim=6, size=14).double()
    batches = [rows(seed) for seed in range(4)]
    before: list[Tensor] = []
    for f in batches:
        held = torch.cat(before)[-14:] if before else f[:0]
        y = LABELS.repeat(len(before))[-14:]
        order = torch.arange(len(held)).roll(len(before) * len(LABELS) % 14 if len(held) == 14 else 0)
        every = torch.cat([f, held[order]])
        wanted = of_anchors(name, every, torch.cat([LABELS, y[order]]), slice(0, len(f)))
        found = memory(f, LABELS)
        torch.testing.assert_close(found, wanted)
        (ours,), (theirs,) = (torch.autograd.grad(value, f) for value in (found, wanted))
        torch.testing.assert_close(ours, theirs)
        before.append(f.detach())


def test_a_memory_waits_is_left_alone_in_evaluation_and_goes_on_from_a_checkpoint():
    criterion = isosphere.MultiSimilarityLoss()
    memory = CrossBatchMemory(criterion, dim=6, size=16, start=2).double()
    for seed in range(2):
        assert memory(rows(seed), LABELS) == criterion(rows(seed), LABELS)
    third = memory(rows(2), LABELS)
    assert third != criterion(rows(2), LABELS)
    memory.eval()
    first, second = (memory(rows(3), LABELS) for _ in range(2))
    assert first == second and int(memory.counts[2]) == 3
    other = CrossBatchMemory(criterion, dim=6, size=16, start=2).double()
    other.load_state_dict(copy.deepcopy(memory.state_dict()))
    for seed in (4, 5):
        assert other(rows(seed), LABELS) == memory.train()(rows(seed), LABELS)


def test_a_memory_smaller_than_a_batch_keeps_its_last_rows_and_float32():
    memory = CrossBatchMemory(isosphere.TripletLoss(), dim=6, size=4).bfloat16()
    memory(rows(0, dtype=torch.float32), LABELS)
    assert memory.embeddings.dtype == torch.float32 and memory.labels.tolist() == LABELS[-4:].tolist()
    torch.testing.assert_close(memory.embeddings, isosphere.sphere.directions(rows(0, dtype=torch.float32))[-4:])


@pytest.mark.parametrize("name, value", [("size", 0), ("dim", 2.5), ("start", -1)])
def test_settings_that_cannot_be(name, value):
    with pytest.raises(BadArgument) as error:
        CrossBatchMemory(isosphere.TripletLoss(), **{"dim": 6, name: value})
    assert error.value.name == name


def test_a_run_with_a_memory_goes_on_as_if_unbroken(tmp_path, monkeypatch):
    changes = {"loss": "MultiSimilarity", "batches.memory": 60, "loop.steps": 10}
    whole = fit(tiny_recipe("rendered", changes), tmp_path / "whole", "cpu")
    plain = fit(tiny_recipe("rendered", changes | {"batches.memory": 0}), tmp_path / "plain", "cpu")
    monkeypatch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 5)
    with pytest.raises(Interrupted):
        fit(tiny_recipe("rendered", changes), tmp_path / "parts", "cpu")
    monkeypatch.undo()
    parts = fit(tiny_recipe("rendered", changes), tmp_path / "parts", "cpu", resume=True)
    assert parts["last"] == whole["last"] != plain["last"]
