"""On a GPU: a captured step is the eager step and waits for nothing, class heads are right, runs free their memory, and
a deterministic run resumes bit for bit."""

import pytest
import torch

from isosphere.losses import classes
from isosphere.losses.margins import ArcFace
from isosphere.train import loop, reproduce
from tiny import tiny_recipe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("loss", ["Triplet", "SemiHard", "NPair", "MultiSimilarity", "ArcFace"])
def test_a_captured_step_is_the_eager_step(loss):
    # In float64: Adam makes steps of equal size from gradients of any, so rounding in float32 would decide their sign.
    changes = {"loss": loss, "loop.precision": "float64", "constraint.radius": "ema", "schedule": "Cosine"}
    weights = []
    for compiled in ("false", "true"):
        run = loop.prepare(tiny_recipe("rendered-sec", changes | {"loop.compile": compiled}), torch.device("cuda"))
        run.network.train()
        for batch in loop.training_feed(run):
            loop.train_step(run, batch.images, batch.labels)
            run.step += 1
        weights.append(run.model.state_dict() | run.constraint.state_dict())
    for name in weights[0]:  # rates on the device are float32: off by 5e-8, which grows to 2e-5 in these steps
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-3, atol=1e-4)


def test_a_captured_step_waits_for_nothing():
    run = loop.prepare(tiny_recipe("rendered-sec", {"loop.compile": "true"}), torch.device("cuda"))
    run.network.train()
    try:
        for batch in loop.training_feed(run):
            if run.step == 8:  # compiled and captured
                torch.cuda.set_sync_debug_mode("error")
            loop.train_step(run, batch.images, batch.labels)
            run.step += 1
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.step == 20


@pytest.mark.parametrize("few, block", [(4, 2**24), (0, 2**12)])
@pytest.mark.parametrize("products, near", [(None, 1e-4), (torch.bfloat16, 3e-2)])
def test_a_head_in_one_block_or_many_is_that_of_the_cpu_in_float64(few, block, products, near, monkeypatch):
    monkeypatch.setattr(classes, "FEW", few)
    monkeypatch.setattr(classes, "BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    rows, weights = (torch.randn(size, 32, generator=generator) for size in (64, 1000))
    labels = torch.randint(1000, (64,), generator=generator)
    found = []
    for place, kind, its in (("cuda", torch.float32, products), ("cpu", torch.float64, None)):
        parts = [part.to(place, kind).requires_grad_() for part in (rows, weights)]
        value = classes.class_softmax(*parts, labels.to(place), ArcFace(0.5), 64.0, products=its)
        found.append([value.detach(), *torch.autograd.grad(value, parts)])
    for one, two in zip(*found, strict=True):
        assert (one.cpu().double() - two).norm() < near * two.norm()


def test_runs_in_one_process_give_their_memory_back(tmp_path):
    runner, held = reproduce.Runner("cuda"), []
    for seed in range(4):
        runner.run(tiny_recipe("rendered-sec", {"seed": seed, "loop.compile": "true"}), tmp_path / str(seed))
        held.append(torch.cuda.memory_allocated())
    assert held[3] < 1.1 * held[1]


DROPOUT = {"model.head": "dropout_fc_bn", "loop.compile": "true"}


@pytest.mark.parametrize(
    ("loss", "changes"),
    [("Triplet", {}), ("SemiHard", {}), ("MultiSimilarity", {}), ("ArcFace", {}), ("ArcFace", DROPOUT)],
)
def test_a_deterministic_run_resumes_bit_for_bit(loss, changes, tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec-ema", {"loss": loss, "loop.deterministic": "true"} | changes)
    loop.fit(recipe, tmp_path / "whole", "cuda")
    with monkeypatch.context() as patch, pytest.raises(loop.Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        loop.fit(recipe, tmp_path / "broken", "cuda")
    loop.fit(recipe, tmp_path / "broken", "cuda", resume=True)
    whole, broken = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "broken"))
    for part in ("model", "criterion", "constraint"):
        assert all(torch.equal(value, broken[part][name]) for name, value in whole[part].items())
    torch.use_deterministic_algorithms(False)
