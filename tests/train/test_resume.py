"""Runs that are killed, stopped or starved of disk end as if nothing had happened, or lose nothing."""

import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from commands import isosphere
from isosphere.errors import (
    BadCheckpoint,
    Diverged,
    Halted,
    Interrupted,
    NoCheckpoint,
    NotSaved,
    Option,
    OtherImages,
    OtherRecipe,
    OtherVersion,
    UnreadableImage,
    UnsafeFile,
    WorkerDied,
    words,
)
from isosphere.inference import load_run, read_checkpoint
from isosphere.paper import find
from isosphere.recipes import override, schema
from isosphere.train import evaluation, loop, state
from isosphere.train.build import build_constraint
from isosphere.train.loop import fit
from isosphere.train.measure import measure_run
from isosphere.train.stopping import stop_diverged
from isosphere.train.tuning import Runner
from raised import raised
from tiny import TINY, tiny_recipe

STEPS = 150


def command(*words: str, **changes: object) -> list[str]:
    """`python -m isosphere train ...` on the tiny recipe."""
    fields = TINY | {"loop.steps": str(STEPS), "loop.save_every": "7", "loop.eval_every": "50"}
    fields |= {key: str(value) for key, value in changes.items()}
    pairs = [word for key, value in fields.items() for word in (f"--{key}", value)]
    return [sys.executable, "-m", "isosphere", "train", *words, "--device", "cpu", *pairs]


def last_step(folder: Path) -> int:
    lines = folder / "metrics.jsonl"
    return lines.read_text().count('"train"') if lines.exists() else 0


def weights(folder: Path) -> dict:
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def run_until(words: list[str], folder: Path, step: int, number: int) -> tuple[int, str]:
    """Start a run, send it a signal when it reaches a step; its exit code and what it said."""
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while last_step(folder) < step and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_five_kills_at_random_steps_end_in_the_weights_of_an_unbroken_run(tmp_path):
    changes = {"constraint.radius": "ema", "loss": "ArcFace", "schedule": "Cosine", "loop.snapshot_every": 2}
    words = command("rendered-sec", "--out", str(tmp_path / "whole"), **changes)
    subprocess.run(words, check=True, capture_output=True)
    broken, words = tmp_path / "broken", command("rendered-sec", "--out", str(tmp_path / "broken"), **changes)
    for step in sorted(random.Random(os.getpid()).sample(range(8, STEPS - 10), 5)):
        code, err = run_until(words, broken, step, signal.SIGKILL)
        assert code == -signal.SIGKILL, err
        words = command("--resume", str(broken), **changes)
    subprocess.run(words, check=True, capture_output=True)
    found, wanted = weights(broken), weights(tmp_path / "whole")
    assert found["step"] == wanted["step"] == STEPS
    for part in ("model", "criterion", "constraint"):
        assert found[part].keys() == wanted[part].keys()
        for name in wanted[part]:
            assert torch.equal(found[part][name], wanted[part][name]), name
    for name, values in wanted["optimizer"]["state"].items():
        assert all(torch.equal(values[key], found["optimizer"]["state"][name][key]) for key in values)
    # The journal is whole, too: every step once, and the same numbers.
    lines = [[json.loads(line) for line in (tmp_path / run / "metrics.jsonl").open()] for run in ("broken", "whole")]
    assert lines[0] == lines[1]


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    folder = tmp_path / "run"
    run_until(command("rendered", "--out", str(folder), **{"loop.save_every": STEPS}), folder, 5, signal.SIGKILL)
    assert last_step(folder) >= 5 and not (folder / "checkpoint.pt").exists()
    with pytest.raises(NoCheckpoint) as caught:
        load_run(folder)
    assert caught.value.path == folder / "checkpoint.pt"
    again = command("--resume", str(folder), **{"loop.save_every": STEPS})
    done = subprocess.run(again, capture_output=True, text=True)
    assert done.returncode == 0 and "was stopped before its first checkpoint and begins again" in done.stderr
    assert weights(folder)["step"] == last_step(folder) == STEPS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_exits_cleanly(tmp_path, number):
    folder = tmp_path / "run"
    code, err = run_until(command("rendered", "--out", str(folder), **{"loop.steps": 10**6}), folder, 12, number)
    assert code == 128 + number
    step = weights(folder)["step"]
    assert words(Interrupted(step, 10**6, folder, number)) in " ".join(err.split())
    assert last_step(folder) == step and "Traceback" not in err


def test_resuming_a_finished_run_says_so_and_gives_its_result(tmp_path, capsys):
    recipe = tiny_recipe()
    first = fit(recipe, tmp_path / "run", "cpu")
    assert "already finished" not in capsys.readouterr().err
    again = fit(recipe, tmp_path / "run", "cpu", resume=True)
    assert again["last"] == first["last"]
    err = f"already finished at step {recipe.loop.steps}; nothing was trained"
    assert capsys.readouterr().err == f"isosphere: {err}\n"


def test_resuming_a_finished_run_that_kept_no_checkpoint_does_not_train_over_its_result(tmp_path):
    recipe = tiny_recipe(changes={"loop.save_every": 0})
    fit(recipe, tmp_path / "run", "cpu")
    before = (tmp_path / "run" / "result.json").read_text()
    with pytest.raises(NoCheckpoint):
        fit(recipe, tmp_path / "run", "cpu", resume=True)
    assert (tmp_path / "run" / "result.json").read_text() == before


def test_a_last_evaluation_that_fails_costs_no_training(tmp_path, monkeypatch):
    recipe, taken = tiny_recipe(), evaluation.evaluate

    def failing(evaluation, embedder, final, seed):
        if final:
            raise OSError("no space for the evaluation")
        return taken(evaluation, embedder, final, seed)

    with monkeypatch.context() as patch, raised(Halted, step=20, steps=20, saved=20) as caught:
        patch.setattr(evaluation, "evaluate", failing)
        fit(recipe, tmp_path / "run", "cpu")
    assert isinstance(caught.value.reason, OSError)
    assert weights(tmp_path / "run")["finished"]
    result = fit(recipe, tmp_path / "run", "cpu", resume=True)
    whole = fit(recipe, tmp_path / "whole", "cpu")
    assert result["last"] == whole["last"]
    lines = [(tmp_path / run / "metrics.jsonl").read_text() for run in ("run", "whole")]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_last_evaluation_stops_nothing_that_is_left(number, tmp_path, monkeypatch):
    """The run is at its end: it is measured, written and shown as any other."""
    taken, sent = evaluation.evaluate, []

    def take(evaluation, embedder, final, seed):
        if final:
            sent.append(signal.raise_signal(number))
        return taken(evaluation, embedder, final, seed)

    monkeypatch.setattr(evaluation, "evaluate", take)
    fields = [word for key, value in TINY.items() for word in (f"--{key}", value)]
    done = isosphere("train", "rendered-sec", "--out", "run", "--device", "cpu", *fields, folder=tmp_path)
    assert len(sent) == 1 and "R@1" in done.stdout
    assert (tmp_path / "run" / "result.json").is_file() and weights(tmp_path / "run")["finished"]


def test_a_stopped_run_that_was_to_keep_no_checkpoint_ends_with_its_last_weights(tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec", {"loop.save_every": 0})
    whole = Runner("cpu").run(recipe, tmp_path / "whole")
    with pytest.raises(NoCheckpoint):
        load_run(tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        Runner("cpu").run(recipe, tmp_path / "run")
    assert load_run(tmp_path / "run", "cpu").stopped == 11
    result = Runner("cpu").run(recipe, tmp_path / "run")
    trained = load_run(tmp_path / "run", "cpu")
    assert trained.stopped is None and weights(tmp_path / "run")["step"] == 20
    assert measure_run(trained)["last"] == result["last"] == whole["last"]


def test_a_compiled_run_goes_on_without_compiling(tmp_path, monkeypatch):
    compiled, plain = (tiny_recipe("rendered-sec", {"loop.compile": word}) for word in ("true", "false"))
    monkeypatch.setattr(torch, "compile", lambda network: network)  # which takes a minute
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        fit(compiled, tmp_path / "run", "cpu")
    result = fit(plain, tmp_path / "run", "cpu", resume=True)
    assert result["last"] == fit(plain, tmp_path / "whole", "cpu")["last"]
    assert result["recipe"]["loop"]["compile"] is False


def killed_at(step: int) -> Callable[[SimpleNamespace, list[int]], bool]:
    """What the loop asks after every step, to end it there without a checkpoint."""

    def asked(run: SimpleNamespace, caught: list[int]) -> bool:
        if run.step == step:
            raise RuntimeError("killed")
        return False

    return asked


def test_a_run_killed_many_snapshots_after_its_checkpoint_still_knows_the_one_before_it(tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered", {"loop.save_every": 8, "loop.snapshot_every": 2})
    fit(recipe, tmp_path / "whole", "cpu")
    for step in (7, 15, 15, 19):  # the first begins again, the third has no checkpoint of its own
        resume = (tmp_path / "run").exists()
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
            patch.setattr(loop, "_asked_to_stop", killed_at(step))
            fit(recipe, tmp_path / "run", "cpu", resume)
        assert len(list((tmp_path / "run" / "snapshots").glob("*.npy"))) == 2, "all would be large"
    fit(recipe, tmp_path / "run", "cpu", resume=True)
    lines = [(tmp_path / run / "metrics.jsonl").read_text() for run in ("run", "whole")]
    assert lines[0] == lines[1] and lines[0].count('"turn"') == 10


def test_snapshots_of_other_images_after_a_resume_tell_no_angles_at_first(tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered", {"loop.snapshot_every": 5, "loop.snapshot_images": 20})
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 6)
        fit(recipe, tmp_path / "run", "cpu")
    fit(override(recipe, {"loop.snapshot_images": "30"}), tmp_path / "run", "cpu", resume=True)
    held = [np.load(tmp_path / "run" / "snapshots" / f"step-{step:07d}.npz") for step in (5, 10, 15)]
    assert [len(one["norms"]) for one in held] == [20, 30, 30] and ["angles" in one for one in held] == [1, 0, 1]
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").open())
    assert [line["step"] for line in lines if line["kind"] == "turn"] == [5, 15, 20]


ON_A_GPU = [
    ("Adam", {"fused": True, "capturable": False}),
    ("Adam", {"fused": True, "capturable": True}),
    ("Adam", {"fused": False, "capturable": True}),
    ("SGD", {"fused": True}),
]


@pytest.mark.parametrize("optimizer, settings", ON_A_GPU)
def test_moments_of_a_cpu_become_what_a_gpus_optimizer_wants(optimizer, settings):
    """A fused step wants moments with the weights' strides, Adam's its count of steps on their device.

    Weights on meta stand for those on a GPU, which are channels last.
    """
    recipe, device = tiny_recipe("rendered", {"optimizer": optimizer}), torch.device("cpu")
    run, other = loop.prepare(recipe, device), loop.prepare(recipe, device)
    batch = next(loop.training_feed(run))
    loop.train_step(run, batch.images, batch.labels)
    for group in other.optimizer.param_groups:
        moved = [weight.detach().to("meta") for weight in group["params"]]
        group["params"] = [w.to(memory_format=torch.channels_last) if w.ndim == 4 else w for w in moved]
        group.update(settings)
    state.restore(other, state.capture(run))
    assert len(other.optimizer.state) == len(run.optimizer.state) > 0
    kinds = set()
    for weight, moments in other.optimizer.state.items():
        for name, value in moments.items():
            kinds.add(name)
            assert value.device == weight.device and value.dtype == torch.float32
            assert name == "step" or (value.shape, value.stride()) == (weight.shape, weight.stride())
    assert kinds == ({"step", "exp_avg", "exp_avg_sq"} if optimizer == "Adam" else {"momentum_buffer"})
    for group in other.optimizer.param_groups:
        assert {name: group[name] for name in settings} == settings


def test_moments_of_a_gpu_become_what_a_cpus_optimizer_wants():
    """Adam's count is on the CPU there, and neither fused nor captured is taken from the checkpoint."""
    recipe, device = tiny_recipe("rendered"), torch.device("cpu")
    run, other = loop.prepare(recipe, device), loop.prepare(recipe, device)
    batch = next(loop.training_feed(run))
    loop.train_step(run, batch.images, batch.labels)
    saved = state.capture(run)
    for group in saved["optimizer"]["param_groups"]:
        group |= {"fused": True, "capturable": True, "lr": torch.tensor(group["lr"])}
    state.restore(other, saved)
    assert {moments["step"].device.type for moments in other.optimizer.state.values()} == {"cpu"}
    for group, own in zip(other.optimizer.param_groups, run.optimizer.param_groups, strict=True):
        assert all(group[name] == own[name] for name in ("lr", "fused", "capturable"))
    loop.train_step(other, batch.images, batch.labels)


@pytest.mark.parametrize("kind, settings", [(torch.optim.Adam, {}), (torch.optim.SGD, {"momentum": 0.9})])
def test_a_fused_optimizer_of_other_strides_goes_on_as_the_plain_one(kind, settings):
    first = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    plain, fused = (w.clone(memory_format=f).requires_grad_() for w, f in
                    ((first, torch.contiguous_format), (first, torch.channels_last)))  # fmt: skip
    optimizers = [kind([plain], lr=0.1, **settings), kind([fused], lr=0.1, fused=True, **settings)]
    for step in range(6):
        if step == 3:
            fused.data.copy_(plain.data)
            state.restore_optimizer(optimizers[1], optimizers[0].state_dict())
        gradient = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(step))
        for weight, optimizer in list(zip((plain, fused), optimizers, strict=True))[: 1 + (step >= 3)]:
            weight.grad = torch.empty_like(weight).copy_(gradient)
            optimizer.step()
    torch.testing.assert_close(fused, plain)
    assert not torch.equal(fused, first)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    recipe = tiny_recipe("rendered-sec", {"constraint.eta": 0.5})
    fit(recipe, tmp_path / "run", "cpu")
    before = weights(tmp_path / "run")["step"]
    with pytest.raises(OtherRecipe) as caught:
        fit(override(recipe, {"constraint.eta": "0.7"}), tmp_path / "run", "cpu", resume=True)
    assert caught.value.changes == {"constraint.eta": (0.5, 0.7)}
    fit(override(recipe, {"loop.log_every": "5"}), tmp_path / "run", "cpu", resume=True)
    assert weights(tmp_path / "run")["step"] == before


def test_changed_images_are_refused(tmp_path):
    fit(tiny_recipe(), tmp_path / "run", "cpu")
    saved = weights(tmp_path / "run")
    saved["classes"][0], saved["step"], saved["finished"] = "another character", 5, False
    torch.save(saved, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(OtherImages) as caught:
        fit(tiny_recipe(), tmp_path / "run", "cpu", resume=True)
    assert caught.value.what == "classes"


@pytest.mark.parametrize("loss", ["Triplet", "Softmax"])
def test_a_non_finite_loss_stops_and_leaves_the_last_checkpoint_alone(loss, tmp_path):
    changes = {"loss": loss, "optimizer": "SGD", "optimizer.lr": 1e3, "loop.save_every": 1}
    recipe = tiny_recipe("rendered-sec", changes)
    with pytest.raises(Diverged) as caught:
        fit(recipe, tmp_path / "run", "cpu")
    error, saved = caught.value, weights(tmp_path / "run")
    assert all(value.isfinite().all() for value in saved["model"].values() if value.is_floating_point())
    assert error.step == saved["step"] + 1 and error.values.keys() - {"loss"} == {"norm_mean", "eta"}
    eta = recipe.constraint.eta
    lower = Option("constraint.eta", eta / 10), Option("optimizer.lr", 1e2)
    assert error.remedies == (*lower, Option("loop.clip", 1.0)), "CPU: float32"
    assert error.values["eta"] == eta


LR, ETA, CLIP = Option("optimizer.lr", 1e-4), Option("constraint.eta", 0.8), Option("loop.clip", 1.0)
RAMP = {"constraint.eta": 8, "constraint.ramp": "0.25,0.75"}  # of 20 steps


@pytest.mark.parametrize(
    ("step", "changes", "eta", "remedies"),
    [
        (11, {"loop.clip": 2} | RAMP, 4, (ETA, LR)),
        (6, RAMP, None, (LR, CLIP)),  # it rises from there
        (6, {"constraint.eta": 0, "loop.clip": 2}, None, (LR,)),
        (6, {"constraint.eta": 0, "loop.precision": "bfloat16"}, None, (LR, CLIP, Option("loop.precision", "float32"))),
    ],
)
def test_divergence_advises_only_what_the_run_does_not_do_yet(step, changes, eta, remedies):
    found = {"loss": torch.tensor(math.nan), "norm_mean": torch.tensor(2.5), "norm_cv": torch.tensor(0.1)}
    recipe = tiny_recipe("rendered-sec", changes)
    held = build_constraint(recipe.constraint)
    run = SimpleNamespace(recipe=recipe, loop=recipe.loop, device=torch.device("cpu"), constraint=held)
    with pytest.raises(Diverged) as caught:
        stop_diverged(run, step, "why", found)
    error = caught.value
    assert (error.step, error.reason, error.remedies) == (step, "why", remedies)
    assert math.isnan(error.values.pop("loss")) and error.values == {"norm_mean": 2.5} | ({"eta": eta} if eta else {})


def test_a_full_disk_leaves_the_checkpoint_before_it_whole(tmp_path):
    path = tmp_path / "checkpoint.pt"
    state.save(path, {"recipe": {}, "step": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(NotSaved):
            state.save(path, {"recipe": {}, "step": 2, "weights": torch.zeros(10**6)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert weights(tmp_path)["step"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.pt"], "nothing is left behind"


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch pwned",))


def test_a_checkpoint_that_wants_to_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"recipe": Malicious()}, "checkpoint.pt")
    Path("torn.pt").write_bytes(Path("checkpoint.pt").read_bytes()[:100])
    torch.save([1], "list.pt")
    for name, kind in (("checkpoint.pt", UnsafeFile), ("torn.pt", BadCheckpoint), ("list.pt", BadCheckpoint)):
        with raised(kind, path=Path(name)):
            read_checkpoint(Path(name))
    assert not Path("pwned").exists()


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A run with a checkpoint and without a result, as one that was stopped."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    fit(tiny_recipe(changes={"loop.steps": 2}), folder, "cpu")
    (folder / "result.json").unlink()
    return folder


@pytest.mark.parametrize("odd", [None, "odd", [], {"odd": 1}])
def test_a_checkpoint_whose_parts_are_missing_or_odd_is_refused(odd, kept, tmp_path):
    """Alike where it is taken up and where its model is loaded, which wants less of it."""
    recipe, whole = tiny_recipe(changes={"loop.steps": 2}), weights(kept)
    shutil.copytree(kept, tmp_path / "run")
    for name in ("step", "finished", "seconds", "classes", "model", "criterion", "constraint", "optimizer", "random"):
        if isinstance(whole[name], type(odd)):
            continue  # of the right kind; what is in it is judged where it is taken up
        torch.save({**whole, name: odd}, tmp_path / "run" / "checkpoint.pt")
        with raised(BadCheckpoint, path=tmp_path / "run" / "checkpoint.pt"):
            fit(recipe, tmp_path / "run", "cpu", resume=True)
        with raised(BadCheckpoint):
            load_run(tmp_path / "run", "cpu")
    for name, value in {"optimizer": {"a": 1}, "random": torch.zeros(2), "model": {"a": 1}}.items():
        torch.save({**whole, name: value}, tmp_path / "run" / "checkpoint.pt")
        with raised(BadCheckpoint):
            fit(recipe, tmp_path / "run", "cpu", resume=True)
    torch.save({**whole, "recipe": odd}, tmp_path / "run" / "checkpoint.pt")
    with raised(OtherVersion, path=tmp_path / "run" / "checkpoint.pt"):
        load_run(tmp_path / "run", "cpu")


# ---------------------------------------------------------------- errors between two steps


def same_end(folder: Path, whole: Path) -> None:
    """The same weights, lines and last metrics, to the last bit."""
    found, wanted = weights(folder), weights(whole)
    assert found["step"] == wanted["step"]
    assert all(torch.equal(found["model"][name], value) for name, value in wanted["model"].items())
    assert (folder / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    last = [json.loads((place / "result.json").read_text())["last"] for place in (folder, whole)]
    assert last[0] == last[1]


def photo_recipe(photos: Path, changes: dict[str, object] | None = None) -> schema.Recipe:
    fields = {"data.root": photos, "data.size": 16, "data.shorter": 20, "model.dim": 16, "batches.size": 12,
              "batches.per_class": 3, "loop.steps": 8, "loop.log_every": 1, "loop.save_every": 3, "loop.eval_every": 5,
              "loop.snapshot_every": 5, "loop.workers": 0, "data.cache": "none", "data.seed": "none"}  # fmt: skip
    return find("photos-sec", {key: str(value) for key, value in (fields | (changes or {})).items()})


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_image_that_vanishes_costs_no_training(part, photos, tmp_path, monkeypatch):
    """Half of the classes train. Read by a snapshot, by the feed or by the evaluation of step 5."""
    shutil.copytree(photos, tmp_path / "photos")
    recipe = photo_recipe(tmp_path / "photos")
    fit(recipe, tmp_path / "whole", "cpu")
    gone = sorted((tmp_path / "photos").glob("*/*.png"))[0 if part == "train" else -1]
    step = loop.train_step

    def vanishing(run, images, labels):
        if run.step == 4:
            gone.rename(tmp_path / "kept.png")
        return step(run, images, labels)

    with monkeypatch.context() as patch, raised(Halted, step=5, steps=8, saved=5, folder=tmp_path / "run") as caught:
        patch.setattr(loop, "train_step", vanishing)
        fit(recipe, tmp_path / "run", "cpu")
    assert isinstance(caught.value.reason, UnreadableImage) and caught.value.reason.path == str(gone)
    (tmp_path / "kept.png").rename(gone)
    fit(recipe, tmp_path / "run", "cpu", resume=True)
    same_end(tmp_path / "run", tmp_path / "whole")


FAILURES = {
    "a worker": (WorkerDied("was killed by SIGKILL", Option("loop.workers", 1)), Halted),
    "a disk": (OSError(5, "Input/output error"), Halted),
    "a bug": (ZeroDivisionError("in a dataset"), ZeroDivisionError),
}


@pytest.mark.parametrize(("error", "kind"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("at", [0, 7, 12])
def test_a_feed_that_fails_costs_no_training(at, error, kind, tmp_path, monkeypatch, capsys):
    feed = loop.training_feed
    changes = {"loop.steps": 14, "loop.save_every": 6, "loop.eval_every": 7, "loop.snapshot_every": 7}
    recipe = tiny_recipe(changes=changes)

    def failing(run):
        yield from itertools.islice(feed(run), at)
        raise error

    with monkeypatch.context() as patch, pytest.raises(kind if at else type(error)) as caught:
        patch.setattr(loop, "training_feed", failing)
        fit(recipe, tmp_path / "run", "cpu")
    assert (tmp_path / "run" / "checkpoint.pt").is_file() == (at > 0)
    if at and kind is Halted:
        assert (caught.value.step, caught.value.saved, caught.value.reason) == (at, at, error)
    elif at:
        assert f"saved at step {at}" in capsys.readouterr().err
    fit(recipe, tmp_path / "run", "cpu", resume=True)
    fit(recipe, tmp_path / "whole", "cpu")
    same_end(tmp_path / "run", tmp_path / "whole")
