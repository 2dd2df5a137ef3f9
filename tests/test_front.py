"""The front door from Python: parts of the user's own go in, and a run comes out that embeds, measures and resumes."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

import isosphere
from commands import has, refusal
from commands import isosphere as command
from isosphere.errors import (
    BadArgument,
    FolderExists,
    NeedsObject,
    NotImportable,
    OtherRecipe,
    OtherSource,
    RunExists,
)
from isosphere.inference import read_checkpoint
from isosphere.recipes import schema
from own_parts import Head, Net, Pictures, PixelNet, Points, Spread, fit, mean_cosine, my_loss, spread, train
from ranks import on_ranks

HERE = Path(__file__).parent
PIXELS = {"size": 16, "shorter": 18}


def weights(folder: Path) -> dict[str, Tensor]:
    return read_checkpoint(folder / "checkpoint.pt")["model"]


def recorded(folder: Path) -> dict:
    return json.loads((folder / "recipe.json").read_text())


def test_any_module_dataset_lambda_and_constraint_train_and_go_on_after_a_kill(tmp_path):
    seen = []
    run = train(tmp_path / "whole", callbacks=lambda step, values: seen.append((step, values)))
    assert {"recall@1", "map@r", "mean_cosine", "norm_mean"} <= run.metrics.keys()
    assert run.evaluate() == pytest.approx(run.metrics)
    assert [step for step, values in seen if "train/loss" in values] == list(range(1, 13))
    assert isinstance(run.model.backbone, Net) and run.folder == tmp_path / "whole"
    images = torch.stack([Points()[index][0] for index in range(5)])
    assert torch.equal(run.embed(images), run.model(images))
    torch.testing.assert_close(run.encode(images).norm(dim=1), torch.ones(5))
    assert torch.equal(run.encode(images, normalize=False), run.embed(images))

    code = f"import own_parts; own_parts.train({str(tmp_path / 'broken')!r}, callbacks=own_parts.killed)"
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    resumed = train(tmp_path / "broken", resume=True)
    assert resumed.metrics == pytest.approx(run.metrics)
    found, wanted = weights(tmp_path / "broken"), weights(tmp_path / "whole")
    assert all(torch.equal(found[name], wanted[name]) for name in wanted), "random transforms are repeated, too"
    with pytest.raises(NeedsObject) as caught:
        isosphere.load_run(tmp_path / "whole")
    assert caught.value.part == "model"
    again = isosphere.load_run(tmp_path / "whole", "cpu", model=Net(), data=Points(), evaluate=mean_cosine)
    assert torch.equal(again.embed(images), run.embed(images)) and again.evaluate() == pytest.approx(run.metrics)


def test_names_alone_train_in_a_new_folder(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    batches, loop = {"size": 12, "per_class": 3}, {"steps": 2, "workers": 0}
    data = {"root": photos} | PIXELS
    run = isosphere.fit("photos-sec", data=data, batches=batches, loop=loop, model={"dim": 16}, loss="NPair", seed=3)
    assert run.folder == Path("runs") / f"{photos.name}-npair-sec-seed3"
    assert run.metrics == pytest.approx(run.evaluate())
    assert run.recipe.data == schema.Folder(root=str(photos), **PIXELS)
    assert run.encode(sorted((photos / "class3").iterdir())).shape == (5, 16)
    assert run.evaluate(photos)["recall@1"] <= 1
    other = isosphere.fit(run.recipe, constraint={"kind": "SEC", "eta": 0.5}, evaluate="NormsOnly", optimizer="SGD")
    assert other.recipe.constraint.eta == 0.5 and isinstance(other.recipe.optimizer, schema.SGD)
    assert {"norm_mean", "norm_cv"} <= other.metrics.keys() and "recall@1" not in other.metrics


# ---------------------------------------------------------------- what a part can be

CLOSED = (lambda margin: lambda f, y: my_loss(f, y, margin))(0.5)
LOSSES = {
    "function": (my_loss, "own_parts:my_loss", "path"),
    "path": ("own_parts:my_loss", "own_parts:my_loss", "path"),
    "class": (Head, "own_parts:Head", "path"),
    "partial": (partial(my_loss, margin=0.5), "own_parts:my_loss", "object"),
    "partial of a class": (partial(Head, scale=4.0), "own_parts:Head", "object"),
    "object": (isosphere.SupConLoss(), "isosphere.losses.contrastive:SupConLoss", "object"),
    "made in a function": (CLOSED, f"{CLOSED.__module__}:<lambda>.<locals>.<lambda>", "object"),
}


@pytest.mark.parametrize("loss, path, given", LOSSES.values(), ids=LOSSES)
def test_a_loss_can_be(loss, path, given, tmp_path):
    run = fit(loss=loss, folder=tmp_path / "run")
    found = recorded(run.folder)["loss"]
    assert (found["path"], found["given"], len(found["source"])) == (path, given, 12)
    assert recorded(run.folder)["loss"] == found and run.metrics
    criterion = read_checkpoint(run.folder / "checkpoint.pt")["criterion"]
    assert [value.shape for value in criterion.values()] == ([(4, 6)] if "Head" in path else [])


CONSTRAINTS = {
    "function": spread, "partial": partial(spread, weight=1.0), "module": Spread(), "class": Spread,
    "ours": isosphere.SEC(0.1, radius="ema"), "path": "own_parts:spread",
}  # fmt: skip


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constraint_can_be(constraint, tmp_path):
    shown = repr(constraint)
    run = fit(constraint=constraint, folder=tmp_path / "run")
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").open()]
    assert all(line["penalty"] > 0 for line in lines if line["kind"] == "train")
    assert repr(constraint) == shown, "the user's object is as it was"
    assert list(read_checkpoint(run.folder / "checkpoint.pt")["constraint"]) == ["running_radius"] * ("SEC" in shown)


def test_a_model_can_be_a_class_a_path_and_have_a_head_of_ours(tmp_path):
    for number, model in enumerate((Net, "own_parts:Net", Net(), lambda: Net(25))):
        run = fit(model=model, folder=tmp_path / str(number))
        assert run.model.dim == run.recipe.model.width == 6 and run.recipe.model.backbone in ("Net", "lambda")
    first, second = (fit(model=Net, seed=5, folder=tmp_path / f"seeded{part}") for part in range(2))
    assert all(map(torch.equal, first.model.state_dict().values(), second.model.state_dict().values())), "by the seed"
    headed = fit(model={"backbone": Net(), "head": "bn_fc", "dim": 9}, constraint="DecoupledSEC", folder=tmp_path / "h")
    assert headed.embed(torch.randn(3, 1, 5, 5)).shape == (3, 9) and headed.recipe.model.width == 6
    loaded = isosphere.load_run(tmp_path / "1", "cpu"), isosphere.load_run(tmp_path / "h", "cpu", model=Net())
    assert [run.model.dim for run in loaded] == [6, 9], "a path is imported again"


FORMS = {
    "PIL": Image.fromarray, "uint8": lambda pixels: pixels, "tensor": lambda pixels: torch.from_numpy(pixels.copy()),
    "gray PIL": lambda pixels: Image.fromarray(pixels).convert("L"), "gray": lambda pixels: pixels[..., 0],
    "gray tensor": lambda pixels: torch.from_numpy(pixels[None, ..., 0].copy()),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_pixels_of_a_dataset_are_cropped_and_normalized(form, tmp_path):
    data = {"kind": Pictures(form), "flip": False} | PIXELS
    run = fit(data=data, model=PixelNet(), folder=tmp_path / "run")
    assert run.metrics["recall@1"] == 1 and run.recipe.data.size == 16, "pictures of a class are the same"
    found = run.embed([Image.fromarray(Pictures()[0][0])])
    assert found.shape == (1, 6)
    by_name = fit(data=data, model={"backbone": "small_cnn", "dim": 16}, folder=tmp_path / "name")
    assert by_name.metrics["recall@1"] == 1 and by_name.model.dim == 16


def test_a_test_set_of_its_own_a_subset_and_another_dataset(tmp_path):
    few, rest = Subset(Points(), range(24)), Subset(Points(), range(24, 48))
    pair, same = fit(data=(few, rest), folder=tmp_path / "a"), fit(data=few, evaluate=rest, folder=tmp_path / "b")
    assert pair.metrics == pytest.approx(same.metrics) and pair.metrics["norm_mean"] > 0
    result = json.loads((pair.folder / "result.json").read_text())
    assert result["images"] == {"train_images": 24, "test_images": 24, "train_classes": 8, "test_classes": 8}
    assert pair.evaluate(Points())["recall@1"] > 0.9
    with pytest.raises(BadArgument) as caught:
        pair.evaluate(Pictures())
    assert caught.value.name == "data"


# ---------------------------------------------------------------- going on


def test_the_same_objects_are_asked_for_again(tmp_path):
    folder = tmp_path / "run"
    train(folder)
    with pytest.raises(RunExists):
        train(folder)
    before = weights(folder)
    assert train(folder, resume=True).metrics, "a finished run is read"
    assert all(torch.equal(value, before[name]) for name, value in weights(folder).items())
    others = {
        "loss": lambda f, y: my_loss(f, y), "constraint": partial(spread, weight=0.2), "evaluate": Spread,
        "model": Net(5), "data": Pictures(),
    }  # fmt: skip
    for part, other in others.items():
        with pytest.raises(OtherSource) as caught:
            train(folder, resume=True, **{part: other})
        assert caught.value.part == {"evaluate": "evaluation"}.get(part, part)
        assert caught.value.remedy == (f"{caught.value.part}.source", "any")
    with pytest.raises(OtherRecipe) as caught:
        train(folder, resume=True, loss="Triplet")
    assert "loss.kind" in caught.value.changes
    with pytest.raises(BadArgument):
        train(None, resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(FolderExists):
        train(tmp_path / "mine", resume=True)


def test_another_source_is_taken_if_that_is_said(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, callbacks=stop)
    other = {"kind": lambda f, y: my_loss(f, y, 2.0), "source": "any"}
    assert train(tmp_path, resume=True, loss=other).metrics and recorded(tmp_path)["loss"]["source"] == "any"


def stop(step: int, values: dict[str, float]) -> None:
    if step == 7:
        raise KeyboardInterrupt


MODULE = """
import torch
from torch import nn
import isosphere

WEIGHT = 1.0

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 8))

def my_loss(embeddings, labels):
    return WEIGHT * isosphere.functional.triplet(embeddings, labels)

def spread(embeddings):
    return 0.1 * isosphere.sphere.norms(embeddings).var()

def metrics(embeddings, labels):
    return {"mine": 0.5}

def dataset():
    from own_parts import Pictures
    return Pictures()
"""
OWN = "--loss mine_a:my_loss --model mine_a:Net --constraint mine_a:spread --evaluation mine_a:metrics"


def test_import_paths_on_the_command_line_are_imported_again(photos, tmp_path):
    file = tmp_path / "mine_a.py"
    file.write_text(MODULE)
    fields = "--data.size 16 --data.shorter 18 --batches.size 12 --batches.per_class 3 --loop.workers 0".split()
    words = ["train", "photos", photos, *OWN.split(), *fields, "--loop.steps", "4", "--out", "run"]
    done = command(*words, "--device", "cpu", folder=tmp_path)
    assert "mine 0.5" in done.stderr and "began from scratch" not in done.stderr
    found = recorded(tmp_path / "run")
    for part, name in {"loss": "my_loss", "model": "Net", "constraint": "spread", "evaluation": "metrics"}.items():
        assert (found[part]["path"], found[part]["given"]) == (f"mine_a:{name}", "path")
    assert '"mine": 0.5' in (tmp_path / "run" / "result.json").read_text()
    resume = [sys.executable, "-m", "isosphere", "train", "--resume", "run", "--device", "cpu"]
    (tmp_path / "run" / "result.json").unlink()  # as if it had been killed after its last step
    again = subprocess.run(resume, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0 and (tmp_path / "run" / "result.json").is_file(), again.stderr
    command("evaluate", "run", folder=tmp_path)
    command("embed", "run", photos, "--out", "e.npy", folder=tmp_path)
    assert np.load(tmp_path / "e.npy").shape == (50, 8)
    command("report", "run", folder=tmp_path)
    file.write_text(MODULE.replace("0.1 *", "0.25 *"))
    del sys.modules["mine_a"]
    words = ["train", "--resume", "run", "--device", "cpu"]
    assert has(refusal(*words, folder=tmp_path), OtherSource, part="constraint", remedy=("constraint.source", "any"))
    command(*words, "--constraint.source", "any", folder=tmp_path)
    file.unlink()
    del sys.modules["mine_a"]
    assert has(refusal(*words, folder=tmp_path), NotImportable, path="mine_a:Net")


def test_a_dataset_by_path_and_errors_of_paths_on_the_command_line(tmp_path):
    (tmp_path / "mine_b.py").write_text(MODULE)
    (tmp_path / "mine_broken.py").write_text("1 / 0")
    words = ["train", "photos", "--data", "mine_b:dataset", "--data.size", "16", "--data.shorter", "18"]
    small = "--batches.size 12 --batches.per_class 3 --loop.steps 2 --loop.workers 0 --device cpu --out run".split()
    command(*words, *small, folder=tmp_path)
    command("evaluate", "run", folder=tmp_path)
    for path in ("nowhere:dataset", "mine_b:nothing", "mine_broken:dataset"):
        assert has(refusal("train", "photos", "--data", path, folder=tmp_path), NotImportable, path=path)
    assert isinstance(refusal("train", "photos", "--optimizer", "mine_b:Net", folder=tmp_path), BadArgument)


NOTEBOOK = """
import isosphere, torch
from torch import nn
from own_parts import SMALL, Points

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(25, 6))

class Loss:
    def __call__(self, f, y):
        return WEIGHT * isosphere.functional.triplet(f, y)

dataset = Points()
isosphere.fit("photos", data=dataset, model=Net(), loss=Loss(), folder=FOLDER, resume=RESUME, **SMALL)
"""


def test_objects_of_a_notebook_are_known_again_by_their_code(tmp_path):
    def cell(weight: str, resume: bool) -> None:
        code = NOTEBOOK.replace("WEIGHT", weight).replace("FOLDER", repr(str(tmp_path / "run")))
        exec(code.replace("RESUME", str(resume)), {"__name__": "__main__"})

    cell("1", False)
    found = recorded(tmp_path / "run")["model"]
    assert (found["path"], found["given"], len(found["source"])) == ("__main__:Net", "object", 12)
    cell("1", True)
    with pytest.raises(OtherSource):
        cell("2", True)


# ---------------------------------------------------------------- what cannot be


def test_an_error_in_a_loss_has_few_frames_of_ours(tmp_path):
    def broken(embeddings: Tensor, labels: Tensor) -> Tensor:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError) as raised:
        fit(loss=broken, folder=tmp_path / "run")
    package = Path(isosphere.__file__).parent
    ours = [entry.name for entry in raised.traceback if Path(entry.path).is_relative_to(package)]
    assert ours[0] == "fit" and raised.traceback[-1].name == "broken" and len(ours) <= 6


def ranks_fit(folder: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    run = train(folder)
    return dict(run.model.state_dict()), run.metrics


def test_two_processes_train_the_users_parts_as_one(tmp_path):
    one = train(tmp_path / "one")
    for found, metrics in on_ranks(2, ranks_fit, tmp_path / "two"):
        torch.testing.assert_close(found, dict(one.model.state_dict()), rtol=1e-4, atol=1e-5)
        assert metrics == pytest.approx(one.metrics, rel=1e-3)


def test_a_run_of_the_command_line_can_be_had(trained, photos):
    run = isosphere.load_run(trained, "cpu")
    assert run.metrics["recall@1"] <= 1 and replace(run, recipe=run.recipe).folder == trained
