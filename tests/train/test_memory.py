"""A GPU that runs out of memory, made believe on the CPU; test_gpu.py fills a real one."""

import weakref

import pytest
import torch

from isosphere.cli import endings
from isosphere.errors import Diverged, OutOfMemory
from isosphere.train import loop
from isosphere.train.memory import Undo, is_out_of_memory
from isosphere.train.saving import stop_if_not_finite
from raised import raised
from tiny import tiny_recipe

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1 GiB")


def test_an_error_that_hides_a_full_gpu_is_known():
    hidden = RuntimeError("the capture was invalidated")
    hidden.__context__ = FULL
    assert is_out_of_memory(FULL) and is_out_of_memory(hidden) and not is_out_of_memory(RuntimeError("CUDA error"))
    words = endings.words_of(FULL)
    assert endings.code_of(FULL) == 1 and "20.00 MiB" in words and "total" not in words


@pytest.mark.parametrize("place", ["a step", "an evaluation", "the first evaluation"])
def test_a_full_gpu_is_one_line_and_the_run_goes_on(place, tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec-ema", {"loop.eval_every": 7, "loop.save_every": 5})
    step, evaluate, held = loop.train_step, loop.evaluate, []

    def full(run):
        activations = torch.zeros(1000)
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError(*FULL.args)

    def training(run, images, labels):
        return full(run) if place == "a step" and run.step == 7 else step(run, images, labels)

    def evaluating(run, *rest):
        at = {"an evaluation": 7, "the first evaluation": 0}.get(place)
        return full(run) if run.step == at else evaluate(run, *rest)

    at = 0 if place == "the first evaluation" else 7
    with monkeypatch.context() as patch, raised(OutOfMemory, step=at, steps=20, saved=at, batch=24, size=12) as caught:
        patch.setattr(loop, "train_step", training)
        patch.setattr(loop, "evaluate", evaluating)
        loop.fit(recipe, tmp_path / "run", "cpu")
    assert held[0]() is None, "what the error held is free"
    assert ("batches.size", 12) in caught.value.remedies
    loop.fit(recipe, tmp_path / "run", "cpu", resume=True)
    loop.fit(recipe, tmp_path / "whole", "cpu")
    found, wanted = (torch.load(tmp_path / name / "checkpoint.pt") for name in ("run", "whole"))
    assert all(torch.equal(found["model"][name], value) for name, value in wanted["model"].items())
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()


def test_a_step_is_taken_back_where_no_weight_was_changed(monkeypatch):
    run = loop.prepare(tiny_recipe("rendered-sec-ema", {"model.head": "dropout_fc_bn"}), torch.device("cpu"))
    run.network.train()
    batches = list(loop.training_feed(run))[:3]
    loop.train_step(run, *batches[0][:2])
    undo = Undo(run)
    undo.keep()
    radius, before = run.constraint.running_radius, {name: its.clone() for name, its in run.model.state_dict().items()}
    first = float(radius)
    drawn = torch.rand(3)
    undo.keep()
    torch.rand(5)
    run.constraint(run.network(batches[1].images), progress=0.1).backward()
    assert not all(torch.equal(value, run.model.state_dict()[name]) for name, value in before.items())
    assert float(radius) != first and undo.put_back()
    assert all(torch.equal(value, run.model.state_dict()[name]) for name, value in before.items())
    assert float(radius) == first
    after = torch.rand(3)
    undo.put_back()
    assert torch.equal(after, torch.rand(3)) and not torch.equal(after, drawn)
    loop.train_step(run, *batches[1][:2])
    assert not undo.put_back()


@pytest.mark.parametrize("row", [-1, 3])
def test_a_loss_that_is_not_finite_names_row_and_image(row, tmp_path, monkeypatch):
    run = loop.prepare(tiny_recipe("rendered"), torch.device("cpu"))
    stop_if_not_finite(run, {})
    run.bad_step, run.bad_row = torch.tensor(2), torch.tensor(row)
    for paths in (None, [f"{number}.png" for number in range(len(run.task.images))]):
        monkeypatch.setattr(run.task.images, "paths", paths)
        with pytest.raises(Diverged) as caught:
            stop_if_not_finite(run, {"loss": torch.tensor(torch.nan)})
        index = int(run.batches.indices(1)[row])
        words = caught.value.reason
        assert caught.value.step == 2 and ("row 3" in words) == (f"image {index}" in words) == (row == 3)
        assert (f"{index}.png" in words) == (row == 3 and paths is not None)


def test_the_first_bad_row_of_the_first_bad_step_is_kept(monkeypatch):
    """As on a GPU, where no value is read: the loss there is NaN and goes on."""
    run = loop.prepare(tiny_recipe("rendered"), torch.device("cpu"))
    for step, (loss, row) in enumerate([(1.0, -1), (torch.nan, 5), (torch.nan, 0)]):
        found = {"loss": torch.tensor(loss), "bad_row": torch.tensor(row)}
        monkeypatch.setattr("isosphere.train.step.update", lambda *given, found=found: found)
        run.step = step
        assert set(loop.train_step(run, torch.zeros(24, 1, 12, 12), torch.zeros(24))) == {"loss"}
    assert (int(run.bad_step), int(run.bad_row)) == (2, 5)
