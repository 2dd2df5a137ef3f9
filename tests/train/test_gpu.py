"""On a GPU: a captured step is the eager step and waits for nothing, class heads are right, runs free their memory, a
deterministic run resumes bit for bit, and SimCLR's captured one but for rounding."""

import gc
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from PIL import Image

from isosphere.data import CachedSet, cifar
from isosphere.errors import DamagedCacheWarning, Diverged, Interrupted, OutOfMemory
from isosphere.losses import classes
from isosphere.losses.margins import ArcFace
from isosphere.paper import find
from isosphere.recipes import override
from isosphere.train import loop, step, tuning
from isosphere.train.capture import CapturedStep, CompiledView
from raised import raised
from small_cifar import write_cifar10
from tiny import TINY, tiny_recipe

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


CONSTRAINTS = [
    {"constraint": "LogNorms"}, {"constraint": "DecoupledSEC"}, {"constraint": "BalancedDirections"},
    {"constraint": "AdaptiveSEC"}, {"constraint": "CutInitialization"}, {"constraint": "L2SP"},
    {"constraint": "SEC", "constraint.radius": "learned"}, {"constraint": "ShuffledPulls", "constraint.course": "2,1"},
    {"constraint": "ScaleCourse", "constraint.course": "2,4,3"},
]  # fmt: skip


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda changes: changes["constraint"])
def test_a_captured_step_has_every_constraint(constraint):
    weights = []
    for compiled in ("false", "true"):
        changes = constraint | {"loop.precision": "float64", "loop.compile": compiled}
        run = loop.prepare(tiny_recipe("rendered", changes), torch.device("cuda"))
        run.network.train()
        for batch in loop.training_feed(run):
            loop.train_step(run, batch.images, batch.labels)
            run.step += 1
        weights.append(run.model.state_dict())
    for name in weights[0]:
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-3, atol=1e-4)


TRAINING = [
    {"schedule.head_first": "0.5", "optimizer": "AdamW"}, {"optimizer.backbone_lr": "0"}, {"loop.average": "0.9"},
    {"optimizer": "AdamW", "optimizer.layer_decay": "0.5", "model.pooling": "gem"},
]  # fmt: skip


@pytest.mark.parametrize("changes", TRAINING, ids=str)
def test_a_captured_step_learns_what_the_eager_one_does(changes):
    weights = []
    for compiled in ("false", "true"):
        fields = changes | {"loop.precision": "float64", "loop.compile": compiled}
        run = loop.prepare(tiny_recipe("rendered", fields), torch.device("cuda"))
        run.network.train()
        for batch in loop.training_feed(run):
            loop.train_step(run, batch.images, batch.labels)
            run.step += 1
        weights.append(run.measured.state_dict())
    for name in weights[0]:
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-3, atol=1e-4)


def test_a_run_that_wakes_captured_resumes_bit_for_bit(tmp_path, monkeypatch):
    changes = {"schedule.head_first": "0.3", "loop.average": "0.9", "loop.compile": "true"}
    recipe = tiny_recipe("rendered-sec", changes | {"loop.deterministic": "true"})
    loop.fit(recipe, tmp_path / "whole", "cuda")
    for stop in (3, 11):
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(loop, "_asked_to_stop", lambda run, caught, stop=stop: run.step == stop)
            loop.fit(recipe, tmp_path / "broken", "cuda", resume=True)
    loop.fit(recipe, tmp_path / "broken", "cuda", resume=True)
    whole, broken = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "broken"))
    for part in ("model", "average", "criterion"):
        assert all(torch.equal(value, broken[part][name]) for name, value in whole[part].items())


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
    runner, held = tuning.Runner("cuda"), []
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
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        loop.fit(recipe, tmp_path / "broken", "cuda")
    loop.fit(recipe, tmp_path / "broken", "cuda", resume=True)
    whole, broken = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "broken"))
    for part in ("model", "criterion", "constraint"):
        assert all(torch.equal(value, broken[part][name]) for name, value in whole[part].items())


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_checkpoint_of_the_cpu_goes_on_on_a_gpu(compiled, optimizer, tmp_path, monkeypatch):
    """And ends where the CPU would have: in float64, as in the captured step above."""
    changes = {"loop.precision": "float64", "optimizer": optimizer, "optimizer.lr": "0.001"}
    recipe = tiny_recipe("rendered-sec", changes)
    loop.fit(recipe, tmp_path / "whole", "cpu")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        loop.fit(recipe, tmp_path / "run", "cpu")
    loop.fit(override(recipe, {"loop.compile": compiled}), tmp_path / "run", "cuda", resume=True)
    whole, found = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "run"))
    assert found["step"] == 20 and found["optimizer"]["state"]
    for moments in found["optimizer"]["state"].values():
        assert all(value.is_cuda for value in moments.values())
        assert optimizer == "SGD" or int(moments["step"]) == 20
    for name, value in whole["model"].items():
        torch.testing.assert_close(found["model"][name].cpu(), value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_a_checkpoint_of_a_gpu_goes_on_on_the_cpu(optimizer, tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec", {"loop.compile": "true", "optimizer": optimizer, "optimizer.lr": "0.001"})
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 11)
        loop.fit(recipe, tmp_path, "cuda")
    loop.fit(override(recipe, {"loop.compile": "false"}), tmp_path, "cpu", resume=True)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["step"] == 20
    assert all(not value.is_cuda for moments in saved["optimizer"]["state"].values() for value in moments.values())


def test_a_step_is_captured_while_images_from_files_are_pinned(tmp_path, monkeypatch):
    for number in range(16):
        path = tmp_path / "photos" / f"class{number // 4}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (16 * number, 0, 99)).save(path)
    real, pinned = loop.update, []

    def update(*given):
        if torch.cuda.is_current_stream_capturing():  # the loader's thread may pin now: here another one does for sure
            with ThreadPoolExecutor(1) as pool:
                pinned.append(pool.submit(lambda: torch.empty(2**24).pin_memory()).result())
        return real(*given)

    monkeypatch.setattr(loop, "update", update)
    fields = {key: value for key, value in TINY.items() if not key.startswith("data.")} | {"batches.size": "6"}
    fields |= {"data": "Folder", "data.root": str(tmp_path / "photos"), "data.size": "12", "data.shorter": "14"}
    fields |= {"loop.workers": "2", "loop.compile": "true"}
    loop.fit(find("rendered-sec", fields), tmp_path / "run", "cuda")
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert len(pinned) == 1 and saved["step"] == 20


def test_a_captured_simclr_run_resumes_with_its_radius_and_its_ramp(tmp_path, monkeypatch):
    """Stopped within an epoch. In float64, so that the order in which a GPU adds is far below what is compared."""
    monkeypatch.setattr(cifar, "COUNTS", {"train": 200, "test": 50})
    write_cifar10(tmp_path, 200, 50, lambda labels, generator: generator.integers(0, 256, (len(labels), 3, 32, 32)))
    changes = {
        "data.root": str(tmp_path), "model.backbone": "small_cnn", "model.dim": "16", "batches.size": "20",
        "optimizer.lr": "0.01", "loop.steps": "2", "loop.log_every": "1", "loop.compile": "true",
        "loop.precision": "float64",
    }  # fmt: skip
    recipe = find("simclr-cifar10-sec-ema", changes)  # of two epochs of ten steps
    assert recipe.constraint.radius == "ema" and recipe.constraint.ramp == (0, 1)
    run = loop.prepare(recipe, torch.device("cuda"))
    assert isinstance(run.captured, CapturedStep) and isinstance(run.task.view, CompiledView)
    loop.fit(recipe, tmp_path / "whole", "cuda")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 13)
        loop.fit(recipe, tmp_path / "broken", "cuda")
    stopped = torch.load(tmp_path / "broken" / "checkpoint.pt", weights_only=True)
    loop.fit(recipe, tmp_path / "broken", "cuda", resume=True)
    whole, broken = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("whole", "broken"))
    assert stopped["step"] == 13 and whole["step"] == broken["step"] == 20
    assert 0 < stopped["constraint"]["running_radius"] != whole["constraint"]["running_radius"]
    for part in ("model", "constraint"):
        torch.testing.assert_close(broken[part], whole[part], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(broken["optimizer"]["state"], whole["optimizer"]["state"], rtol=1e-6, atol=1e-9)
    texts = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "broken")]
    steps = [[line for line in map(json.loads, text) if line.pop("kind") == "train"] for text in texts]
    assert [line["step"] for line in steps[1]] == list(range(1, 21)) and steps[0][-1]["penalty"] > 0
    for wanted, found in zip(*steps, strict=True):
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)


# ---------------------------------------------------------------- images of a cache

PHOTOS = {
    "model.dim": "8", "model.backbone": "small_cnn", "data.size": "16", "data.shorter": "20", "batches.size": "12",
    "loop.steps": "8", "loop.eval_every": "8", "loop.log_every": "1", "loop.deterministic": "true",
}  # fmt: skip
LABELED = PHOTOS | {"batches.per_class": "3"}
PAIRED = {"data": "Unlabeled", "batches": "Shuffled", "batches.views": "2", "loss": "NTXent", "model.head": "mlp"}
KINDS = {"folder": ("photos-sec", LABELED), "unlabeled": ("photos-sec", PHOTOS | PAIRED)}


def cached_run(kind, photos, place, **changes):
    name, fields = KINDS[kind]
    places = {"data.root": str(photos), "data.cache": str(place)}
    return loop.prepare(find(name, fields | places | changes), torch.device("cuda"))


@pytest.mark.parametrize("kind", KINDS)
def test_cached_images_live_on_the_gpu_or_go_there_batch_by_batch(kind, photos, tmp_path, monkeypatch):
    whole = cached_run(kind, photos, tmp_path)
    monkeypatch.setattr(CachedSet, "fits", lambda images, device: False)
    staged = cached_run(kind, photos, tmp_path)
    assert whole.task.images.resident and whole.task.evaluation.images.resident
    assert not staged.task.images.resident and not staged.task.images.on_disk
    with_files = cached_run(kind, photos, "none")
    for one, other, plain in zip(*map(loop.training_feed, (whole, staged, with_files)), strict=True):
        assert one.images.is_cuda and torch.equal(one.images, other.images)
        levels = (one.images.cpu().int() - plain.images.int()).abs()
        assert levels.max() <= 1 or (kind == "unlabeled" and levels.float().mean() < 0.5)  # colors carry it further
    losses = []
    for run in (whole, staged):
        run.network.train()
        losses.append([float(loop.train_step(run, its.images, its.labels)["loss"]) for its in loop.training_feed(run)])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("fits", [True, False], ids=["on the GPU", "batch by batch"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_step_on_cached_images(kind, fits, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(CachedSet, "fits", lambda images, device: fits)
    run = cached_run(kind, photos, tmp_path, **{"loop.compile": "true", "loop.deterministic": "false"})
    run.network.train()
    try:
        for batch in loop.training_feed(run):
            if run.step == 6 and fits:  # compiled and captured; from here the host waits for nothing
                torch.cuda.set_sync_debug_mode("error")
            found = loop.train_step(run, batch.images, batch.labels)
            run.step += 1
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.step == 8 and found["loss"].isfinite()


def test_a_changed_byte_is_seen_on_the_way_to_the_gpu(photos, tmp_path):
    images = cached_run("folder", photos, tmp_path).task.images
    with open(images.file, "r+b") as file:
        data = bytearray(file.read())
        data[100] ^= 1
        file.seek(0)
        file.write(data)
    with pytest.warns(DamagedCacheWarning) as warned:
        again = cached_run("folder", photos, tmp_path).task
    assert len(warned) == 1
    assert torch.equal(again.images.buffer, images.buffer)


# ---------------------------------------------------------------- memory that runs out, and values that are not finite


def overfull(patch, at):
    """Ask for more memory than any GPU has in the middle of a step, after the network and its batch norm."""
    real, calls = step.distributed.gather, []

    def gather(embeddings, labels):
        calls.append(len(calls))
        if len(calls) == at:
            torch.empty(2**46, dtype=torch.uint8, device="cuda")
        return real(embeddings, labels)

    patch.setattr(step.distributed, "gather", gather)
    return calls


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_full_gpu_saves_frees_its_memory_and_the_run_goes_on_bit_for_bit(compiled, tmp_path, monkeypatch):
    """Eagerly in the middle of step 8. Captured after a resume, in the second of the steps that warm it up."""
    changes = {"loop.deterministic": "true", "loop.compile": compiled, "model.head": "dropout_fc_bn"}
    recipe = tiny_recipe("rendered-sec-ema", changes)
    loop.fit(recipe, tmp_path / "whole", "cuda")
    if compiled == "true":
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 7)
            loop.fit(recipe, tmp_path / "run", "cuda")
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    resume, at = compiled == "true", 2 if compiled == "true" else 8
    with monkeypatch.context() as patch:
        overfull(patch, at)
        with raised(OutOfMemory, step=7, steps=20, saved=7, batch=24, size=12) as caught:
            loop.fit(recipe, tmp_path / "run", "cuda", resume)
    assert caught.value.peak > 0 and ("batches.size", 12) in caught.value.remedies
    del caught
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + 2**22 and torch.cuda.memory_reserved() < 2**30
    loop.fit(recipe, tmp_path / "run", "cuda", resume=True)
    whole, found = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "run"))
    assert found["step"] == 20
    for part in ("model", "criterion", "constraint"):
        assert all(torch.equal(value, found[part][name]) for name, value in whole[part].items())


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_nan_is_found_when_a_line_is_written_and_its_row_is_named(compiled, tmp_path, monkeypatch):
    """Step 8 of 20 has it, and every fifth writes a line."""
    update = loop.update

    def poisoned(run, images, labels, progress):
        with monkeypatch.context() as patch:
            gather = step.distributed.gather

            def spoiled(embeddings, its):
                rows = torch.arange(len(embeddings), device="cuda") == 5
                late = torch.as_tensor(progress, device="cuda") >= 7 / 20 - 1e-4
                return gather(torch.where((rows & late)[:, None], torch.nan, embeddings), its)

            patch.setattr(step.distributed, "gather", spoiled)
            return update(run, images, labels, progress)

    monkeypatch.setattr(loop, "update", poisoned)
    monkeypatch.setattr(step, "update", poisoned)
    recipe = tiny_recipe("rendered", {"loop.compile": compiled, "loop.log_every": 5, "loop.save_every": 0})
    with pytest.raises(Diverged) as caught:
        loop.fit(recipe, tmp_path / "run", "cuda")
    assert caught.value.step == 8 and "row 5" in caught.value.reason
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").open())
    assert max(line["step"] for line in lines) == 5, "found at step 10, before its line"
