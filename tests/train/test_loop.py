"""What a run writes besides its weights, how its learning rate moves, and that every loss learns."""

import gc
import json
import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

import ranks
from isosphere.metrics import recall_at_k
from isosphere.recipes import schema
from isosphere.recipes.losses import Loss
from isosphere.train import loop, reproduce
from isosphere.train.journal import Journal
from isosphere.train.schedules import lr_factor
from tiny import tiny_recipe


def test_schedules():
    steps = schema.MultiStep(at=(0.375, 0.75), factor=0.1)
    assert [lr_factor(steps, t) for t in (0, 0.374, 0.375, 0.74, 0.75)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    cosine = schema.Cosine(final=0.001)
    for t in (0.0, 0.25, 0.5, 1.0):
        assert lr_factor(cosine, t) == pytest.approx(0.001 + 0.999 * (1 + math.cos(math.pi * t)) / 2)
    assert lr_factor(schema.Constant(), 0.7) == 1


def test_the_journal_has_every_step_with_lr_and_norms(tmp_path):
    recipe = tiny_recipe("rendered-sec", {"schedule.at": "0.5", "optimiser.lr": 0.002, "optimiser.backbone_lr": 0.001})
    loop.fit(recipe, tmp_path / "run", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    steps = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in steps] == list(range(1, 21))
    assert [line["lr"] for line in steps] == pytest.approx([0.002] * 10 + [0.0002] * 10)
    for line in steps:
        assert line["loss"] == pytest.approx(line["metric"] + line["penalty"], rel=1e-5)
        assert line["norm_min"] <= line["norm_mean"] <= line["norm_max"]
        assert line["norm_cv"] == pytest.approx(math.sqrt(line["norm_variance"]) / line["norm_mean"], rel=1e-4)
        # SEC with the batch's radius is eta times the variance of the norms.
        assert line["penalty"] == pytest.approx(recipe.constraint.eta * line["norm_variance"], rel=1e-3)


def test_snapshots_hold_norms_and_the_angles_turned(tmp_path, monkeypatch):
    seen = []
    real = Journal.snapshot
    monkeypatch.setattr(Journal, "snapshot", lambda self, *found: (seen.append(found), real(self, *found)))
    changes = {"loop.snapshot_every": 5, "loop.snapshot_images": 9}
    loop.fit(tiny_recipe("rendered", changes), tmp_path / "run", "cpu")
    folder = tmp_path / "run" / "snapshots"
    assert [file.name for file in sorted(folder.glob("*.npz"))] == [f"step-{s:07d}.npz" for s in (0, 5, 10, 15, 20)]
    assert len(list(folder.glob("*.npy"))) == 2
    assert "angles" not in np.load(folder / "step-0000000.npz")
    for (_, _, _, before), (step, indices, lengths, after) in zip(seen, seen[1:], strict=False):
        held = np.load(folder / f"step-{step:07d}.npz")
        np.testing.assert_array_equal(held["indices"], indices)
        np.testing.assert_array_equal(held["norms"], lengths)
        turned = torch.rad2deg(torch.arccos((before.double() * after.double()).sum(1)))
        np.testing.assert_allclose(held["angles"], turned, atol=1e-2)
    loop.fit(tiny_recipe("rendered", changes | {"loop.snapshot_images": 0}), tmp_path / "all", "cpu")
    assert len(np.load(tmp_path / "all" / "snapshots" / "step-0000020.npz")["angles"]) == 12 * 6


def test_the_last_test_embeddings_are_kept(tmp_path):
    result = loop.fit(tiny_recipe("rendered-sec"), tmp_path / "run", "cpu")
    held = np.load(tmp_path / "run" / "test_embeddings.npz")
    embeddings = torch.from_numpy(held["embeddings"].astype(np.float32) * held["scale"])
    assert float(embeddings.norm(dim=1).mean()) == pytest.approx(result["last"]["norm_mean"], rel=1e-3)
    assert recall_at_k(embeddings, torch.from_numpy(held["labels"]))[1] == pytest.approx(
        result["last"]["recall@1"], abs=0.03
    )


def test_tensorboard_gets_the_same_numbers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loop.fit(tiny_recipe("rendered", {"loop.tensorboard": "true"}), tmp_path / "run", "cpu")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    wanted = [line["loss"] for line in lines if line["kind"] == "train"]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(wanted)
    assert "test/recall@1" in events.Tags()["scalars"]


def test_tensorboard_that_is_not_installed_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'isosphere\[tensorboard\]'"):
        loop.fit(tiny_recipe("rendered", {"loop.tensorboard": "true"}), tmp_path / "run", "cpu")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [kind.__name__ for kind in Loss.__args__])
def test_every_loss_of_the_registry_trains(kind):
    """Ten steps on one batch lower the loss, so build, criterion and gradients fit together."""
    changes = {"loss": kind, "optimiser.lr": 0.01, "schedule": "Constant"}
    changes |= {"batches.per_class": 2} if kind == "NTXent" else {}
    run = loop.prepare(tiny_recipe("rendered-sec-relative", changes), torch.device("cpu"))
    batch = next(iter(loop.training_feed(run)))
    losses = [float(loop.train_step(run, batch.images, batch.labels)["loss"]) for _ in range(10)]
    assert losses[-1] < losses[0]


def test_a_seed_gives_the_same_start_and_batches_whatever_the_arm():
    arms = [tiny_recipe(f"rendered{arm}", {"seed": 3}) for arm in ("", "-sec", "-sec-relative", "-balanced")]
    runs = [loop.prepare(recipe, torch.device("cpu")) for recipe in arms]
    for run in runs[1:]:
        for name, value in runs[0].model.state_dict().items():
            assert torch.equal(value, run.model.state_dict()[name])
        for one, other in zip(loop.training_feed(runs[0]), loop.training_feed(run), strict=True):
            assert torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)


def test_an_incomplete_benchmark_is_recorded(tmp_path):
    run = loop.prepare(tiny_recipe(), torch.device("cpu"))
    run.views = replace(run.views, deviation="Cars196 lacks 15 images")
    assert loop.train(run, tmp_path / "run")["deviation"] == "Cars196 lacks 15 images"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["deviation"] == "Cars196 lacks 15 images"


def test_a_run_before_lends_its_data_and_changes_nothing(tmp_path):
    first, second = tiny_recipe("rendered"), tiny_recipe("rendered-sec")
    alone = loop.fit(second, tmp_path / "alone", "cpu")["last"]
    before = loop.prepare(first, torch.device("cpu"))
    loop.train(before, tmp_path / "before")
    run = loop.prepare(second, torch.device("cpu"), before)
    assert run.views is before.views
    assert loop.train(run, tmp_path / "after")["last"] == alone


def test_evaluation_is_shared_by_the_ranks():
    """25 images do not divide by two: the last row of the odd rank is padding, and must not be seen."""
    wanted = ranks.embeddings_of_all(25)
    for found in ranks.on_ranks(2, ranks.embeddings_of_all, 25):
        torch.testing.assert_close(found, wanted)


def test_a_run_is_freed_once_the_next_has_begun(tmp_path, monkeypatch):
    seen, prepare = [], reproduce.prepare
    monkeypatch.setattr(reproduce, "prepare", lambda *given: seen.append(prepare(*given)) or seen[-1])
    runner = reproduce.Runner("cpu")
    gc.disable()  # a cycle would keep a run, on a GPU with its captured step's gigabytes, until the collector comes
    try:
        for seed in range(2):
            runner.run(tiny_recipe("rendered-sec", {"seed": seed}), tmp_path / str(seed))
            seen[-1] = weakref.ref(seen[-1])
        assert [run() is None for run in seen] == [True, False]
    finally:
        gc.enable()
