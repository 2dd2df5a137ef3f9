"""Validation classes: held out of training, watched, and what decides which weights are kept. Test classes wait."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from isosphere.errors import BadArgument, Incompatible, Interrupted, Option, SingleImages, TooFewClasses
from isosphere.inference import load_run, read_checkpoint
from isosphere.paper import find
from isosphere.recipes import schema
from isosphere.runs import entries, kept, read, recipe_of
from isosphere.train import evaluation, loop
from isosphere.train.build import build_task
from isosphere.train.loop import fit
from isosphere.train.measure import measure_run
from isosphere.train.validation import validated
from own_parts import Points
from tiny import tiny_recipe

CPU = torch.device("cpu")
RUN = {"data.classes": 40, "validation.held_out": 0.3, "loop.steps": 12, "loop.eval_every": 3, "batches.size": 18}


def held(data: schema.Data, given: object = None, **fields: object) -> tuple:
    """A task before and after validation images are held out of it."""
    task = build_task(data, CPU, given)
    return task, validated(task, schema.Validation(**fields), "here")


def rows(images) -> list:
    """What tells an image from others."""
    return list(images.paths or ()) or [images[index].numpy().tobytes() for index in range(len(images))]


# ---------------------------------------------------------------- what is held out

SOURCES = {
    "rendered": (schema.Rendered(classes=20, per_class=3, size=12), None),
    "folder": (schema.Folder(size=16, shorter=20, train_fraction=0.6), None),
    "own": (schema.OwnData(path="Points", source="any"), Points(12)),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("held_out", "seed", "count"), [(0.34, 0, 2), (0.34, 1, 2), (2, None, 2), (0.01, 0, 2)])
def test_whole_training_classes_are_held_out_of_every_source(source, held_out, seed, count, photos):
    data, given = SOURCES[source]
    data = schema.Folder(str(photos), size=16, shorter=20, train_fraction=0.6) if source == "folder" else data
    count = {"rendered": round(0.34 * 10)}.get(source, count) if held_out == 0.34 else count
    whole, parted = held(data, given, held_out=held_out, seed=seed)
    validation = parted.validation
    assert len(validation.images.classes) == validation.classes == count
    assert sorted(parted.images.classes + validation.images.classes) == sorted(whole.images.classes)
    assert not set(validation.images.classes) & set(parted.evaluation.images.classes)
    if source != "own":  # whose images are drawn anew each time
        assert sorted(rows(parted.images) + rows(validation.images)) == sorted(rows(whole.images))
    assert parted.evaluation is whole.evaluation or rows(parted.evaluation.images) == rows(whole.evaluation.images)
    if seed is None:
        assert validation.images.classes == whole.images.classes[-count:]
    _, again = held(data, given, held_out=held_out, seed=seed)
    assert again.validation.images.classes == validation.images.classes


def test_seeds_choose_other_classes():
    data = schema.Rendered(classes=40, per_class=2, size=12)
    found = {tuple(held(data, held_out=0.3, seed=seed)[1].validation.images.classes) for seed in range(4)}
    assert len(found) == 4


def class_folders(root: Path, *folders: str, images: int = 6) -> str:
    for number, folder in enumerate(folders):
        (root / folder).mkdir(parents=True)
        for index in range(images):
            Image.new("RGB", (20, 20), (20 * number, 30 * index, 90)).save(root / folder / f"{index}.png")
    return str(root)


def test_where_tested_classes_are_trained_on_images_of_each_class_are_held_out(tmp_path):
    root = class_folders(tmp_path, *(f"{part}/{name}" for part in ("train", "test") for name in "abc"), images=10)
    data = schema.Folder(root, size=16, shorter=20, allow_shared=True)
    whole, parted = held(data, held_out=0.3)
    assert torch.bincount(parted.validation.images.labels).tolist() == [3] * 3
    assert torch.bincount(parted.images.labels).tolist() == [7] * 3
    assert sorted(rows(parted.images) + rows(parted.validation.images)) == sorted(rows(whole.images))


def test_without_labels_images_are_held_out_and_the_probe_learns_from_the_rest(tmp_path):
    root = class_folders(tmp_path, *"abc", images=10)
    whole, parted = held(schema.Unlabeled(root, size=16, shorter=20), held_out=0.25)
    train, its = parted.images, parted.validation
    assert torch.bincount(its.images.labels).tolist() == [2] * 3 and len(train) == len(whole.images) - 6
    assert parted.evaluation.train is train is its.train and its.choosing == "knn"
    assert rows(parted.evaluation.images) == rows(whole.evaluation.images)


def test_a_part_that_the_data_bring_is_taken(tmp_path):
    root = class_folders(tmp_path, *(f"{part}/{part}{name}" for part in ("train", "val", "test") for name in "abc"))
    for fields in ({}, {"held_out": 0.5}):
        whole, parted = held(schema.Folder(root, size=16, shorter=20), **fields)
        assert parted.validation.images.classes == ["vala", "valb", "valc"]
        assert rows(parted.images) == rows(whole.images) and parted.images.classes == ["traina", "trainb", "trainc"]
    assert "is validated on 18 images of 3 classes" in parted.in_words(None)


@pytest.mark.parametrize(
    ("data", "fields", "kind", "wanted"),
    [
        (schema.Rendered(classes=6, per_class=2, size=12), {"held_out": 0.5}, TooFewClasses, {"needed": 4, "found": 3}),
        (schema.Rendered(classes=20, per_class=2, size=12), {"held_out": 1}, BadArgument, {"value": 1}),
        (schema.Rendered(classes=20, per_class=2, size=12), {"held_out": 9}, BadArgument, {"value": 9}),
        (schema.Rendered(classes=20, per_class=1, size=12), {"held_out": 3}, SingleImages, {"use": "validate"}),
        (schema.Rendered(classes=20, per_class=2, size=12), {"only": True}, BadArgument, {"value": True}),
    ],
)
def test_too_few_classes_are_refused(data, fields, kind, wanted):
    with pytest.raises(kind) as caught:
        held(data, **fields)
    assert wanted.items() <= vars(caught.value).items()


def test_images_without_classes_have_nothing_to_validate_by(tmp_path):
    root = class_folders(tmp_path, "one")
    with pytest.raises(BadArgument) as caught:
        held(schema.Unlabeled(root, size=16, shorter=20), held_out=0.2)
    assert caught.value.name == Option("validation.held_out")


# ---------------------------------------------------------------- a run that is watched


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Path:
    """A run whose best evaluation is not its last."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "evaluate", scripted([0.1, 0.2, 0.5, 0.3, 0.4]))
        fit(tiny_recipe("rendered-sec", RUN), folder, "cpu")
    return folder


def scripted(scores: list[float]):
    """Evaluations whose MAP@R on validation images is as wished; those of test images are measured."""
    left, measured = iter(scores), evaluation.evaluate

    def evaluate(its, embedder, final, seed):
        found = measured(its, embedder, final, seed)
        return found if final else found._replace(metrics=found.metrics | {"map@r": next(left)})

    return evaluate


def lines(folder: Path, kind: str) -> list[tuple]:
    return [(line["step"], line["map@r"]) for line in entries(folder, kind)]


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def test_validation_is_watched_and_the_test_is_measured_at_the_end_of_best_and_last(watched):
    assert lines(watched, "validation") == [(0, 0.1), (3, 0.2), (6, 0.5), (9, 0.3), (12, 0.4)]
    found = result(watched)
    assert [step for step, _ in lines(watched, "test")] == [12, 6]
    assert found["best"]["step"] == 6 and kept(found) == found["best"] != found["last"] and "oracle" not in found
    assert found["validation"]["metric"] == "map@r" and found["validation"]["best"]["map@r"] == 0.5
    assert found["images"]["validation_classes"] == 6 and found["images"]["train_classes"] == 14
    split = json.loads((watched / "split.json").read_text())
    assert [len(split[part]["classes"]) for part in ("train", "validation")] == [14, 6]
    run = read(watched, strict=True)
    assert run.last == found["best"] and run.ended == found["last"] and run.untrained["map@r"] > 0


def test_the_best_weights_are_what_a_loaded_run_has(watched):
    found, saved = result(watched), read_checkpoint(watched / "checkpoint.pt")
    assert saved["best"]["step"] == 6 and saved["step"] == 12 and saved["finished"]
    for last, wanted in ((False, found["best"]), (True, found["last"])):
        measured = measure_run(load_run(watched, "cpu", last=last))["last"]
        assert {name: wanted[name] for name in measured} == measured
    best = load_run(watched, "cpu").model.state_dict()
    assert any(not torch.equal(value, best[name]) for name, value in saved["model"].items())


@pytest.mark.parametrize("only", [False, True])
def test_patience_ends_a_run(only, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "evaluate", scripted([0.1, 0.5, 0.3, 0.4, 0.6]))
    recipe = tiny_recipe("rendered-sec", RUN | {"loop.patience": 2, "validation.only": only})
    fit(recipe, tmp_path / "run", "cpu")
    saved = read_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert saved["finished"] and saved["step"] == 9 and saved["best"]["step"] == 3
    assert ("best" in result(tmp_path / "run")) == bool(saved["best"]["model"]) != only
    fit(recipe, tmp_path / "run", "cpu", resume=True)  # has nothing left to do
    assert len(entries(tmp_path / "run", "train")) == 9


def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec", RUN | {"loop.save_every": 4})
    fit(recipe, tmp_path / "whole", "cpu")
    for step in (1, 6, 7, 11):
        folder = tmp_path / f"stopped{step}"
        with monkeypatch.context() as patch:
            patch.setattr(loop, "_asked_to_stop", lambda run, caught, at=step: run.step == at)
            with pytest.raises(Interrupted):
                fit(recipe, folder, "cpu")
        fit(recipe, folder, "cpu", resume=True)
        assert entries(folder) == entries(tmp_path / "whole")
        one, other = (read_checkpoint(its / "checkpoint.pt") for its in (folder, tmp_path / "whole"))
        assert one["best"]["step"] == other["best"]["step"]
        for part in (one["best"]["model"], other["best"]["model"]), (one["model"], other["model"]):
            assert all(torch.equal(value, part[1][name]) for name, value in part[0].items())


def test_a_run_that_was_broken_off_in_its_test_is_tested_once_more(tmp_path, monkeypatch):
    recipe = tiny_recipe("rendered-sec", RUN)
    fit(recipe, tmp_path / "whole", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(loop.Journal, "result", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(recipe, tmp_path / "run", "cpu")
    fit(recipe, tmp_path / "run", "cpu", resume=True)
    assert entries(tmp_path / "run") == entries(tmp_path / "whole")
    assert kept(result(tmp_path / "run")) == kept(result(tmp_path / "whole"))


def test_without_validation_nothing_changes_but_the_classes_that_train(tmp_path):
    """Weights do not depend on being watched: a run whose validation part is given trains as one without it."""
    parts = (f"{part}/{part}{name}" for part in ("train", "val", "test") for name in "abcd")
    root = Path(class_folders(tmp_path / "photos", *parts, images=3))
    shutil.copytree(root, tmp_path / "less")
    shutil.rmtree(tmp_path / "less" / "val")
    changes = {"data.size": 12, "data.shorter": 14, "batches.size": 6, "batches.per_class": 3, "loop.steps": 4}
    changes |= {"loop.eval_every": 2, "loop.workers": 0, "model.dim": 8}
    for name in ("photos", "less"):
        recipe = find("photos", {key: str(value) for key, value in changes.items()} | {"data.root": tmp_path / name})
        fit(recipe, tmp_path / f"run {name}", "cpu")
    both = [read_checkpoint(tmp_path / f"run {name}" / "checkpoint.pt") for name in ("photos", "less")]
    assert all(torch.equal(value, both[1]["model"][name]) for name, value in both[0]["model"].items())
    assert result(tmp_path / "run photos")["last"] == result(tmp_path / "run less")["last"]


def test_patience_without_validation_is_refused():
    with pytest.raises(Incompatible) as caught:
        loop.prepare(tiny_recipe("rendered", {"loop.patience": 3}), CPU)
    assert caught.value.fields == ("loop.patience", "validation.held_out")


def test_an_unknown_metric_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(BadArgument) as caught:
        fit(tiny_recipe("rendered", RUN | {"validation.metric": "recall@3"}), tmp_path / "run", "cpu")
    assert caught.value.name == Option("validation.metric") and entries(tmp_path / "run", "train") == []


# ---------------------------------------------------------------- as older versions wrote it


@pytest.mark.parametrize("held_out", [20, 0.1, 0])
def test_what_older_recipes_held_out_means_the_same(held_out):
    values = {"kind": "Recipe", "data": {"kind": "Cifar", "held_out": held_out}}
    wanted = schema.Validation(held_out, seed=None, only=True) if held_out else schema.Validation()
    assert recipe_of(values).validation == wanted
