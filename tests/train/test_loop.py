"""What a run writes besides its weights, how its learning rate moves, and that every loss learns."""

import gc
import json
import math
import os
import re
import sys
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import ranks
from isosphere import inference
from isosphere.data.images import ImageSet
from isosphere.errors import BadArgument, Diverged, FolderExists, Interrupted, MissingExtra, RunExists
from isosphere.inference import Trained
from isosphere.losses.balanced import balanced_directions
from isosphere.metrics import recall_at_k
from isosphere.recipes import find, schema
from isosphere.recipes.losses import Loss
from isosphere.sphere import SPREADING
from isosphere.train import loop, measuring, tuning
from isosphere.train.build import build_constraint
from isosphere.train.journal import Journal, below
from isosphere.train.retrieval import Retrieval
from isosphere.train.schedules import lr_factor
from isosphere.train.stopping import advice
from tiny import TINY, tiny_recipe


def test_schedules():
    steps = schema.MultiStep(at=(0.375, 0.75), factor=0.1)
    assert [lr_factor(steps, t) for t in (0, 0.374, 0.375, 0.74, 0.75)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    cosine = schema.Cosine(final=0.001)
    for t in (0.0, 0.25, 0.5, 1.0):
        assert lr_factor(cosine, t) == pytest.approx(0.001 + 0.999 * (1 + math.cos(math.pi * t)) / 2)
    assert lr_factor(schema.Constant(), 0.7) == 1
    warmed = [schema.Constant(warmup=0.2), schema.MultiStep((0.375,), warmup=0.2), schema.Cosine(0.0, warmup=0.2)]
    assert [[lr_factor(one, t) for t in (0, 0.05, 0.2)] for one in warmed] == [[0, 0.25, 1]] * 3
    assert [lr_factor(one, 0.6) for one in warmed] == pytest.approx([1, 0.1, 0.5]), "half of the cosine lies behind"


@pytest.mark.parametrize("at", [(0.0,), (1.0,), (5000.0,), (-0.5, 0.5), (0.75, 0.375), (0.5, 0.5), (math.nan,)])
def test_milestones_are_fractions_in_order(at):
    with pytest.raises(BadArgument):
        schema.MultiStep(at)


def test_a_learning_rate_never_falls_to_nothing_or_below():
    assert lr_factor(schema.MultiStep(()), 0.9) == 1 and lr_factor(schema.Cosine(0.0), 1) == 0


def test_the_journal_has_every_step_with_lr_and_norms(tmp_path):
    recipe = tiny_recipe("rendered-sec", {"schedule.at": "0.5", "optimizer.lr": 0.002, "optimizer.backbone_lr": 0.001})
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


def radial_share(embeddings: torch.Tensor, gradients: torch.Tensor) -> float:
    pairs = zip(embeddings.tolist(), gradients.tolist(), strict=True)
    radial = sum(sum(x * g for x, g in zip(f, slope, strict=True)) ** 2 / sum(x * x for x in f) for f, slope in pairs)
    return radial / float(gradients.square().sum())


@pytest.mark.parametrize("method", ["", "-sec", "-sec-ema", "-sec-relative", "-balanced", "-l2reg"])
@pytest.mark.parametrize("loss", ["MultiSimilarity", "ArcFace", "Softmax"])
def test_figures_are_those_of_the_criterions_gradient_and_change_nothing(method, loss):
    """Against a step without any of them: the weights bit for bit, the radial share by loops."""
    changes = {"loss": loss, "schedule": "Constant", "loop.steps": 8, "optimizer.lr": 0.003}
    watched, plain = (loop.prepare(tiny_recipe(f"rendered{method}", changes), torch.device("cpu")) for _ in range(2))
    for batch in loop.training_feed(watched):
        found = loop.train_step(watched, batch.images, batch.labels)

        embeddings = plain.network(batch.images)
        inputs = balanced_directions(embeddings) if method == "-balanced" else embeddings
        metric = plain.criterion(inputs, batch.labels)
        (gradients,) = torch.autograd.grad(metric, embeddings, retain_graph=True)
        progress = plain.step / 8
        penalty = 0.0 if plain.constraint is None else plain.constraint(embeddings, progress=progress)
        plain.optimizer.zero_grad()
        (metric + penalty).backward()
        plain.optimizer.step()

        watched.step, plain.step = watched.step + 1, plain.step + 1
        assert float(found["radial_share"]) == pytest.approx(radial_share(embeddings, gradients), rel=1e-3, abs=1e-12)
        rates = 0.003 / embeddings.detach().norm(dim=1)  # Adam
        assert float(found["lr_proxy_mean"]) == pytest.approx(float(rates.mean()))
        assert float(found["lr_proxy_cv"]) == pytest.approx(float(rates.std(correction=0) / rates.mean()), rel=1e-4)
        for mine, wanted in ((watched.model, plain.model), (watched.criterion, plain.criterion)):
            assert all(torch.equal(value, wanted.state_dict()[name]) for name, value in mine.state_dict().items())
    assert (float(found["radial_share"]) > 0.01) == (loss == "Softmax" and method != "-balanced")


def figures_of_a_step(recipe: schema.Recipe) -> dict[str, float]:
    run = loop.prepare(recipe, torch.device("cpu"))
    batch = next(iter(loop.training_feed(run)))
    return {name: float(value) for name, value in loop.train_step(run, batch.images, batch.labels).items()}


def test_figures_of_two_ranks_are_those_of_one():
    recipe = tiny_recipe("rendered-sec", {"loss": "Softmax", "loop.precision": "float64"})
    wanted = figures_of_a_step(recipe)
    assert wanted["radial_share"] > 1e-6
    for found in ranks.on_ranks(2, figures_of_a_step, recipe):
        assert found == pytest.approx(wanted, rel=1e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_figures_of_a_captured_step_are_those_of_the_eager_one():
    changes = {"loss": "Softmax", "loop.precision": "float64", "schedule": "Cosine"}
    lines = []
    for compiled in ("false", "true"):
        run = loop.prepare(tiny_recipe("rendered-sec", changes | {"loop.compile": compiled}), torch.device("cuda"))
        run.network.train()
        lines.append([])
        for batch in loop.training_feed(run):
            found = loop.train_step(run, batch.images, batch.labels)
            lines[-1].append({name: float(value) for name, value in found.items()})
            run.step += 1
    for eager, captured in zip(*lines, strict=True):
        assert captured == pytest.approx(eager, rel=1e-3, abs=1e-9)
    assert eager["radial_share"] > 0.01


def test_the_first_step_is_logged_so_that_alarms_can_measure_by_it(tmp_path):
    recipe = tiny_recipe("rendered", {"loop.log_every": 8, "loop.steps": 20, "optimizer.lr": 1.0})
    loop.fit(recipe, tmp_path / "run", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [1, 8, 16]
    (alarm,) = [line for line in lines if line.get("warning") == "exploding"]
    assert alarm["step"] == 8, "the rate is far too high: norms had exploded before the first of these lines"


def test_alarms_are_written_said_once_and_not_again_after_a_resume(tmp_path, monkeypatch, capsys):
    recipe = tiny_recipe("rendered", {"loop.snapshot_every": 5, "loop.tensorboard": "true"})
    loop.fit(recipe, tmp_path / "whole", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").open()]
    (alarm,) = [line for line in lines if line.get("warning") == "spreading"]  # norms start at 0.05, and grow apart
    cause = next(line for line in lines if line["kind"] == "train" and line["norm_cv"] >= SPREADING)
    assert (alarm["step"], alarm["warning"]) == (cause["step"], "spreading") and "norms spread" in alarm["text"]
    said = " ".join(capsys.readouterr().err.split())
    assert said.count(alarm["text"]) == 1
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        loop.fit(recipe, tmp_path / "broken", "cpu")
    assert len(list((tmp_path / "broken" / "snapshots").glob("*.npy"))) == 2, "a resume needs them"
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    whole, broken = ((tmp_path / run / "metrics.jsonl").read_text() for run in ("whole", "broken"))
    assert broken == whole


def test_a_spread_is_no_alarm_until_eta_has_risen_nor_after_a_resume_before_that(tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec", {"constraint.eta": 1e-9, "constraint.ramp": "0.2,0.75"})
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 15)
        loop.fit(recipe, tmp_path, "cpu")
    loop.fit(recipe, tmp_path, "cpu", resume=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    causes = [line["step"] for line in lines if line["kind"] == "train" and line["norm_cv"] >= SPREADING]
    (alarm,) = [line for line in lines if line.get("warning", "untrained") != "untrained"]
    assert min(causes) < 15 and alarm["warning"] == "spreading"
    assert alarm["step"] == next(step for step in causes if step >= 16), "step 16 is the first to see the whole eta"


@pytest.mark.parametrize(
    "constraint, decay, fields, spreads",
    [
        (schema.Baseline(), 0.0, ["optimizer.lr"], True),
        (schema.L2Reg(0.1), 1e-4, ["optimizer.weight_decay", "constraint.eta", "optimizer.lr"], True),
        (schema.SEC(0.1, "ema", ramp=(0, 1)), 0.0, ["constraint.eta", "optimizer.lr"], False),
    ],
)
def test_warnings_name_the_fields_that_the_run_has_and_never_advise_sec(constraint, decay, fields, spreads):
    recipe = schema.Recipe(constraint=constraint, optimizer=schema.Adam(weight_decay=decay))
    run = SimpleNamespace(recipe=recipe, loop=recipe.loop, constraint=build_constraint(constraint))
    found = advice(run, step=recipe.loop.steps)
    assert re.findall(r"--([\w.]+)", found["collapsing"]) == fields
    assert re.findall(r"--([\w.]+)", found["exploding"]) == ["schedule.warmup", "optimizer.lr"]
    assert ("spreading" in found) == spreads and "SEC" not in " ".join(found.values())
    run.recipe = replace(recipe, schedule=schema.Constant(warmup=0.1))
    assert "warmup" not in advice(run, step=1)["exploding"]


@pytest.mark.parametrize("listed", [False, True])
def test_test_images_are_named_from_the_datas_root(listed, tmp_path, monkeypatch):
    names = []
    for number in range(16):
        names.append(f"class{number // 4}/{number:02}.png")
        path = tmp_path / "photos" / names[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (16 * number, 0, 99)).save(path)
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in names)
    (tmp_path / "photos" / "all.csv").write_text("path,label\n" + rows)
    monkeypatch.chdir(tmp_path)
    changes = {"data": "Folder", "data.root": "photos/all.csv" if listed else "photos", "data.size": 12}
    fields = {key: value for key, value in TINY.items() if not key.startswith("data.")} | {"batches.size": 6}
    fields |= changes | {"data.shorter": 14, "data.seed": "none", "loop.steps": 1, "loop.workers": 0}
    loop.fit(find("rendered-sec", {key: str(value) for key, value in fields.items()}), tmp_path / "run", "cpu")
    assert (tmp_path / "run" / "test_paths.txt").read_text().split() == names[8:]
    assert below("elsewhere/1.png", "photos") == "elsewhere/1.png"


def test_snapshots_hold_norms_and_the_angles_turned(tmp_path, monkeypatch):
    seen = []
    real = Journal.snapshot
    monkeypatch.setattr(Journal, "snapshot", lambda self, *found: (seen.append(found), real(self, *found)))
    changes = {"loop.snapshot_every": 5, "loop.snapshot_images": 9}
    loop.fit(tiny_recipe("rendered", changes), tmp_path / "run", "cpu")
    folder = tmp_path / "run" / "snapshots"
    assert [file.name for file in sorted(folder.glob("*.npz"))] == [f"step-{s:07d}.npz" for s in (0, 5, 10, 15, 20)]
    assert not list(folder.glob("*.npy")), "only angles are stored"
    assert not {"angles", "since"} & set(np.load(folder / "step-0000000.npz"))
    for (_, _, _, before), (step, indices, lengths, after) in zip(seen, seen[1:], strict=False):
        held = np.load(folder / f"step-{step:07d}.npz")
        np.testing.assert_array_equal(held["indices"], indices)
        np.testing.assert_array_equal(held["norms"], lengths)
        turned = torch.rad2deg(torch.arccos((before.double() * after.double()).sum(1)))
        np.testing.assert_allclose(held["angles"], turned, atol=1e-2)
        assert held["since"] == step - 5
    journal = map(json.loads, (tmp_path / "run" / "metrics.jsonl").open())
    turns = [line for line in journal if line["kind"] == "turn"]
    assert [(line["since"], line["step"]) for line in turns] == [(0, 5), (5, 10), (10, 15), (15, 20)]
    for (_, _, lengths, _), line in zip(seen, turns, strict=False):
        angles = np.load(folder / f"step-{line['step']:07d}.npz")["angles"].astype(np.float64)
        assert line["norm_variance"] == pytest.approx(float(lengths.var(correction=0)), rel=1e-5)
        assert line["turn_variance"] == pytest.approx(angles.var(), rel=1e-6)
        slope = np.polyfit(np.log(lengths.double().numpy()), np.log(angles), 1)[0]
        assert line["turn_slope"] == pytest.approx(slope, rel=1e-6)
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
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra) as caught:
        loop.fit(tiny_recipe("rendered", {"loop.tensorboard": "true"}), tmp_path / "run", "cpu")
    assert (caught.value.package, caught.value.extra) == ("tensorboard", "tensorboard")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [kind.__name__ for kind in Loss.__args__ if kind is not schema.OwnLoss])
def test_every_loss_of_the_registry_trains(kind):
    """Ten steps on one batch lower the loss, so build, criterion and gradients fit together."""
    changes = {"loss": kind, "optimizer.lr": 0.01, "schedule": "Constant"}
    changes |= {"batches.per_class": 2} if kind == "NTXent" else {}
    run = loop.prepare(tiny_recipe("rendered-sec-relative", changes), torch.device("cpu"))
    batch = next(iter(loop.training_feed(run)))
    losses = [float(loop.train_step(run, batch.images, batch.labels)["loss"]) for _ in range(10)]
    assert losses[-1] < losses[0]


def test_a_seed_gives_the_same_start_and_batches_whatever_the_method():
    methods = [tiny_recipe(f"rendered{method}", {"seed": 3}) for method in ("", "-sec", "-sec-relative", "-balanced")]
    runs = [loop.prepare(recipe, torch.device("cpu")) for recipe in methods]
    for run in runs[1:]:
        for name, value in runs[0].model.state_dict().items():
            assert torch.equal(value, run.model.state_dict()[name])
        for one, other in zip(loop.training_feed(runs[0]), loop.training_feed(run), strict=True):
            assert torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)


def test_what_is_trained_and_measured_is_reported_and_kept(tmp_path, capsys):
    """A folder that was read differently than meant shows here; so do classes too small for a batch."""
    for number in range(12):
        (tmp_path / "photos" / f"class{number:02d}").mkdir(parents=True)
        for place in range(1 if number == 0 else 5):
            pixels = np.random.default_rng([number, place]).integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / f"class{number:02d}" / f"{place}.png")
    changes = {"data.root": str(tmp_path / "photos"), "data.size": "8", "data.shorter": "8", "loop.workers": "0"}
    changes |= {"loop.steps": "1", "model.backbone": "small_cnn", "batches.size": "8"}
    result = loop.fit(find("photos", changes), tmp_path / "run", "cpu")
    assert result["images"] == {"train_images": 26, "test_images": 30, "train_classes": 6, "test_classes": 6}
    err = " ".join(capsys.readouterr().err.split())
    assert "trains on 26 images of 6 classes, is measured on 30 images of 6 classes" in err
    assert "; 1 of 6 classes have fewer than per_class 4, which repeat" in err


def test_an_incomplete_benchmark_is_recorded(tmp_path):
    run = loop.prepare(tiny_recipe(), torch.device("cpu"))
    run.task = replace(run.task, notes=("Cars196 lacks 15 images",))
    assert loop.train(run, tmp_path / "run")["notes"] == ["Cars196 lacks 15 images"]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["notes"] == ["Cars196 lacks 15 images"]


def test_a_run_before_lends_its_data_and_changes_nothing(tmp_path):
    first, second = tiny_recipe("rendered"), tiny_recipe("rendered-sec")
    alone = loop.fit(second, tmp_path / "alone", "cpu")["last"]
    before = loop.prepare(first, torch.device("cpu"))
    loop.train(before, tmp_path / "before")
    run = loop.prepare(second, torch.device("cpu"), before)
    assert run.task is before.task
    assert loop.train(run, tmp_path / "after")["last"] == alone


def test_a_compiled_network_is_lent_only_to_a_run_that_would_compile_the_same(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda network: torch.nn.Sequential(network))  # which takes a minute
    before = loop.prepare(tiny_recipe("rendered", {"loop.compile": "true"}), torch.device("cpu"))
    for changes, lent in (
        ({"loop.precision": "float32", "loop.workers": 0}, True),  # what auto is on a CPU
        ({"loop.precision": "float64"}, False),
        ({"loop.precision": "bfloat16"}, False),
        ({"data.size": 16}, False),
    ):
        recipe = tiny_recipe("rendered", {"loop.compile": "true"} | changes)
        run = loop.prepare(recipe, torch.device("cpu"), before)
        assert (run.model is before.model, run.network is before.network) == (lent, lent), changes
        wanted = torch.float64 if recipe.loop.precision == "float64" else torch.float32
        assert {value.dtype for value in run.model.parameters()} == {wanted}


def test_deterministic_algorithms_end_with_the_run(tmp_path, monkeypatch):
    seen, step, short = [], loop.train_step, {"loop.steps": 1}
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    def watched(*given):
        seen.append(torch.are_deterministic_algorithms_enabled())
        return step(*given)

    monkeypatch.setattr(loop, "train_step", watched)
    loop.fit(tiny_recipe("rendered", short | {"loop.deterministic": "true"}), tmp_path / "0", "cpu")
    loop.fit(tiny_recipe("rendered", short), tmp_path / "1", "cpu")
    assert seen == [True, False] and not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for wanted in ("true", "false"):
            loop.fit(tiny_recipe("rendered", short | {"loop.deterministic": wanted}), tmp_path / wanted, "cpu")
            assert torch.is_deterministic_algorithms_warn_only_enabled(), "what the caller had chosen"
        assert seen[2:] == [True, True]
    finally:
        torch.use_deterministic_algorithms(False)


def test_fit_does_not_train_over_a_run(tmp_path):
    recipe, folder = tiny_recipe("rendered-sec", {"loop.snapshot_every": 10}), tmp_path / "run"
    loop.fit(recipe, folder, "cpu")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RunExists):
        loop.fit(replace(recipe, seed=1), folder, "cpu")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("again", ["train", "fit", "Runner"])
def test_a_run_that_begins_anew_leaves_nothing_of_the_one_before(again, tmp_path, monkeypatch):
    """`train` over a finished run; the others over one that was killed before its first checkpoint."""
    recipe = tiny_recipe("rendered-sec", {"loop.snapshot_every": 10, "loop.tensorboard": "true"})
    loop.fit(recipe, tmp_path / "run", "cpu")
    (tmp_path / "run" / "notes.txt").touch()
    if again != "train":
        (tmp_path / "run" / "checkpoint.pt").unlink()
        (tmp_path / "run" / "result.json").unlink()
    monkeypatch.setattr(loop, "_begin", lambda run, journal: 1 / 0)  # broken off at once
    with pytest.raises(ZeroDivisionError):
        if again == "train":
            loop.train(loop.prepare(recipe, torch.device("cpu")), tmp_path / "run")
        elif again == "fit":
            loop.fit(recipe, tmp_path / "run", "cpu", resume=True)
        else:
            tuning.Runner("cpu").run(recipe, tmp_path / "run")
    left = sorted(path.name.partition(".out.")[0] for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert left == ["events", "metrics.jsonl", "notes.txt", "recipe.json", "run.json"]


def test_a_folder_that_is_no_run_keeps_what_it_has(tmp_path):
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "step-9999999.npz").touch()
    for resume in (False, True):
        with pytest.raises(FolderExists):
            loop.fit(tiny_recipe("rendered", {"loop.steps": 1}), tmp_path, "cpu", resume)
    assert [*tmp_path.rglob("*.*")] == [tmp_path / "snapshots" / "step-9999999.npz"]


class TwoSets(Retrieval):
    """The second set's rows are not what is kept, as with faces and with frozen features."""

    def embed(self, embedder, final):
        return super().embed(embedder, final) | {"other": embedder.mirrored(self.images, self.view)}


class Broken(TwoSets):
    """One of the two is not finite."""

    broken = ""

    def embed(self, embedder, final):
        rows = super().embed(embedder, final)
        return rows | {name: rows[name] * math.nan for name in rows if name == self.broken}


def divergence_in_an_evaluation(broken: str, folder: Path) -> tuple[int, dict] | None:
    """The step and values of this rank's error, if an evaluation with rows that are not finite raises one."""
    run = loop.prepare(tiny_recipe(), torch.device("cpu"))
    evaluation = Broken(run.task.evaluation.images, run.task.evaluation.view)
    object.__setattr__(evaluation, "broken", broken)
    run.task = replace(run.task, evaluation=evaluation)
    try:
        with Journal(folder, run.recipe, run.loop, run.device, None, loop.distributed.rank() == 0) as journal:
            measuring.evaluate(run, journal)
    except Diverged as error:
        return str(error)
    return None


def test_rows_that_are_not_finite_stop_all_ranks(tmp_path):
    assert ranks.on_ranks(2, divergence_in_an_evaluation, "", tmp_path / "run") == [None, None]
    for broken in ("embeddings", "other"):
        assert all(ranks.on_ranks(2, divergence_in_an_evaluation, broken, tmp_path / broken))


def test_no_more_workers_than_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert [inference.workers(schema.Loop(workers=count)) for count in (0, 1, 2, 4)] == [0, 1, 2, 2]
    run, asked = loop.prepare(tiny_recipe("rendered", {"loop.workers": 4}), torch.device("cpu")), []
    for module in (loop, inference.embedding):
        monkeypatch.setattr(module, "loader", lambda *given, **named: asked.append(given[4]) or iter(()))
    loop.training_feed(run)
    trained = Trained(run.recipe, run.model, run.device, [], None)
    for embedder in (loop.embedder(run), trained.embedder):
        with pytest.raises((RuntimeError, ValueError)):  # of the loader that gives nothing
            embedder(run.task.images, None)
    assert asked == [2, 2, 2]


def test_a_model_that_fails_to_embed_is_left_as_it_was():
    run = loop.prepare(tiny_recipe("rendered"), torch.device("cpu"))
    run.model.backbone.eval()  # a part of it that was frozen stays so
    modes = [module.training for module in run.model.modules()]

    def fails(images):
        raise RuntimeError("no memory")

    for forward, error in ((fails, RuntimeError), (None, None)):
        with nullcontext() if error is None else pytest.raises(error):
            inference.embed(run.model, run.task.images, None, run.device, forward=forward)
        assert [module.training for module in run.model.modules()] == modes and True in modes and False in modes


def test_a_result_says_what_the_tested_images_are_to_the_model():
    images = ImageSet(torch.tensor([0, 1, 2]), ["a", "b", "c"], pixels=torch.zeros(3, 3, 1, 1, dtype=torch.uint8))
    evaluation = Retrieval(images, None)
    assert evaluation.relation(["d", "e"], None, "test", False).startswith("test classes")
    assert "2 of 3" in evaluation.relation(["b", "c", "d"], None, "test", False)


@pytest.mark.parametrize("count", [25, 1])
def test_evaluation_is_shared_by_the_ranks(count):
    """Neither divides by two: the last row of the odd rank, which may be all it has, is padding and not seen."""
    wanted = ranks.embeddings_of_all(count)
    assert len(wanted) == count
    for found in ranks.on_ranks(2, ranks.embeddings_of_all, count):
        torch.testing.assert_close(found, wanted)


def test_a_run_is_freed_once_the_next_has_begun(tmp_path, monkeypatch):
    seen, prepare = [], tuning.prepare
    monkeypatch.setattr(tuning, "prepare", lambda *given: seen.append(prepare(*given)) or seen[-1])
    runner = tuning.Runner("cpu")
    gc.disable()  # a cycle would keep a run, on a GPU with its captured step's gigabytes, until the collector comes
    try:
        for seed in range(2):
            runner.run(tiny_recipe("rendered-sec", {"seed": seed}), tmp_path / str(seed))
            seen[-1] = weakref.ref(seen[-1])
        assert [run() is None for run in seen] == [True, False]
    finally:
        gc.enable()
