"""`isosphere train`: your own images and recipes, run folders, and one clear line for what cannot be."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from commands import has, isosphere, refusal
from isosphere.cli import endings
from isosphere.errors import (
    BadArgument,
    BadUsage,
    Incompatible,
    MovedData,
    NoDataSet,
    NotARun,
    NotFound,
    Option,
    OtherRecipe,
    RunExists,
    UnfillableBatch,
    UnknownField,
    UnknownName,
    UnknownOption,
    UnknownRecipe,
    WrongSize,
)
from tiny import FIELDS, PHOTOS


def test_a_run_folder_holds_the_whole_story(trained):
    names = {entry.name for entry in trained.iterdir()}
    assert names == {
        "recipe.json", "run.json", "metrics.jsonl", "checkpoint.pt", "result.json", "test_embeddings.npz",
        "test_paths.txt", "split.json",
    }  # fmt: skip
    recipe, run, result = (json.loads((trained / f"{n}.json").read_text()) for n in ("recipe", "run", "result"))
    assert recipe["constraint"]["eta"] > 0 and recipe["loop"]["steps"] == 4
    assert torch.__version__.startswith(run["versions"]["torch"]) and "git" in run
    assert run["command"].startswith("isosphere train")
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").open()]
    assert [line["step"] for line in lines if line["kind"] == "test"] == [0, 4]
    metrics = {"recall@1", "recall@8", "map@r", "nmi", "f1"}
    assert metrics | {f"norm_{n}" for n in ("mean", "variance", "cv", "min", "max")} <= result["last"].keys()
    assert result["oracle"]["recall@1"] >= result["last"]["recall@1"]


def test_resume_goes_on_from_the_folder_alone_and_a_finished_run_stays_as_it_is(trained):
    before = {file.name: file.read_bytes() for file in trained.iterdir()}
    done = isosphere("train", "--resume", trained, folder=trained.parent)
    assert "R@1" in done.stdout
    assert done.stderr.startswith("isosphere: already finished at step 4; nothing was trained\n")
    assert {file.name: file.read_bytes() for file in trained.iterdir()} == before
    error = refusal("train", "--resume", trained, "--loop.steps", "120", folder=trained.parent)
    assert has(error, OtherRecipe, changes={"loop.steps": (4, 120)})


@pytest.mark.parametrize(
    ("words", "kind", "fields"),
    [
        ("rendred", UnknownRecipe, {"name": "rendred"}),
        ("nowhere/photos", UnknownRecipe, {"name": "nowhere/photos"}),
        ("", BadUsage, {}),
        ("rendered --loss.margn 0.5", UnknownOption, {"option": "--loss.margn", "near": ("--loss.margin",)}),
        ("rendered --margin 0.5", UnknownOption, {"option": "--margin", "near": ("--loss.margin",)}),
        ("--margn=0.5 rendered", UnknownOption, {"option": "--margn"}),
        ("rendered --loss.alpha 1", UnknownField, {"field": Option("loss.alpha")}),
        ("rendered --loss.margin high", BadArgument, {"name": Option("loss.margin"), "value": "high"}),
        ("rendered --loss Tripel", BadArgument, {"name": Option("loss"), "value": "Tripel"}),
        ("rendered --seed", BadUsage, {}),
        ("rendered 3", BadUsage, {}),
        ("photos nowhere else", BadUsage, {}),
        ("photos a --data.root b", BadUsage, {}),
        ("rendered --resume nowhere", BadUsage, {}),
        ("--resume nowhere --out here", BadUsage, {}),
        ("--resume nowhere", NotARun, {}),
        ("photos-sec nowhere", NotFound, {"path": "nowhere"}),
        ("photos --data.root nowhere", NotFound, {"path": "nowhere"}),
        ("photos", BadArgument, {"name": Option("data.root"), "value": ""}),
        ("cub200-ms . --model.freeze_bn false", NoDataSet, {"title": "CUB-200-2011"}),
        ("cars196-ms . --model.freeze_bn false", NoDataSet, {"title": "Cars196"}),
        ("rendered --model.backbone resnet51", UnknownName, {"name": "resnet51"}),
        ("rendered --model.backbone crossvit_9_240", WrongSize, {"backbone": "crossvit_9_240", "size": 32}),
        ("rendered --model.backbone squeezenet1_0", BadArgument, {"value": "squeezenet1_0"}),
        ("rendered --model.weights gone.pth", NotFound, {}),
        ("rendered --model.freeze_bn true", Incompatible, {}),
        ("rendered --model.dim 0", BadArgument, {"name": Option("model.dim"), "value": 0}),
        ("rendered --data.classes 20", UnfillableBatch, {"found": 10, "most": Option("batches.size", 40)}),
        ("rendered --data.shift -3", BadArgument, {"name": Option("data.shift"), "value": -3}),
        ("rendered --device tpu", BadArgument, {"name": Option("device"), "value": "tpu"}),
        ("rendered --optimizer.lr -1", BadArgument, {"name": Option("optimizer.lr"), "value": -1.0}),
        ("rendered --optimiser.lr -1", BadArgument, {"name": Option("optimizer.lr"), "value": -1.0}),
        ("rendered --loop.clip 0", BadArgument, {"name": Option("loop.clip"), "value": 0.0}),
        ("rendered --seed -1", BadArgument, {"name": Option("seed"), "value": -1}),
        ("rendered --loss NTXent", Incompatible, {}),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(words, kind, fields, tmp_path):
    error = refusal("train", *words.split(), folder=tmp_path)
    assert has(error, kind, **fields), repr(error)
    assert not list(tmp_path.iterdir())


def test_old_spellings_are_translated_with_one_warning(tmp_path):
    words = ("--optimiser.lr", "0.01", "--optimiser.weight_decay", "0.1", "--constraint.balanced", "false")
    done = isosphere("train", "rendered", *FIELDS, "--loop.steps", "1", *words, folder=tmp_path)
    recipe = json.loads((tmp_path / "runs" / "rendered-seed0" / "recipe.json").read_text())
    assert recipe["optimizer"]["lr"] == 0.01 and recipe["optimizer"]["weight_decay"] == 0.1
    (warning,) = [line for line in done.stderr.splitlines() if "--optimiser.lr" in line or "optimiser.lr" in line]
    assert "optimizer.lr" in warning and warning.startswith("isosphere: ")


@pytest.mark.parametrize("name", ["2019", "faces (1)", "a, b", "-odd"])
def test_folders_of_any_name_are_images(name, photos, tmp_path):
    shutil.copytree(photos, tmp_path / name)
    words = [*PHOTOS.split(), "--loop.steps", "1", "--loop.save_every", "0"]
    place = f"./{name}" if name.startswith("-") else name
    isosphere("train", place, *words, "--out", "alone", folder=tmp_path)
    isosphere("train", "photos", *words, "--out", "named", place, folder=tmp_path)
    isosphere("train", "photos", *words, f"--data.root={name}", "--out", "field", folder=tmp_path)
    for run, root in (("alone", place), ("named", place), ("field", name)):
        assert json.loads((tmp_path / run / "recipe.json").read_text())["data"]["root"] == root


def test_images_in_the_current_folder_are_not_mixed_with_runs(photos, tmp_path):
    shutil.copytree(photos, tmp_path, dirs_exist_ok=True)
    isosphere("train", ".", *PHOTOS.split(), "--loop.steps", "1", folder=tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "result.json").read_text())["images"]["train_classes"] == 10


def test_a_run_is_never_overwritten(trained):
    before = (trained / "recipe.json").read_bytes()
    error = refusal("train", "rendered", "--out", "run", *FIELDS, folder=trained.parent)
    assert has(error, RunExists, folder=Path("run")) and (trained / "recipe.json").read_bytes() == before


def test_a_run_folder_is_not_a_file(photos, tmp_path):
    (tmp_path / "ok.csv").write_text("path,label\n")
    assert has(refusal("train", photos, "--out", "ok.csv", folder=tmp_path), BadUsage)
    assert (tmp_path / "ok.csv").read_text() == "path,label\n"


def test_a_path_is_the_root_whatever_the_data_are_said_to_be(photos, tmp_path):
    error = refusal("train", photos, "--data", "Faces", folder=tmp_path)
    assert has(error, BadArgument, name=Option("data.pairs_root")) and not list(tmp_path.iterdir())


def test_a_recipe_takes_the_path_of_the_images_and_the_run_is_called_as_it_is(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "closing[x]")
    words = [*PHOTOS.split(), "--loop.save_embeddings", "false", "--constraint.eta", "0", "--loss", "ArcFace"]
    done = isosphere("train", "photos-sec", *words, "./closing[x]", folder=tmp_path)
    assert "run folder: runs/closing[x]-arcface-seed0" in done.stdout
    assert done.stdout.count("closing[x]-arcface-seed0") == 2, "in the table, too"
    recipe = json.loads((tmp_path / "runs" / "closing[x]-arcface-seed0" / "recipe.json").read_text())
    assert recipe["data"]["root"] == "./closing[x]" and "ArcFace" in recipe["claim"]


def test_a_run_is_evaluated_from_any_folder(photos, tmp_path):
    project, other = tmp_path / "project", tmp_path / "other"
    shutil.copytree(photos, project / "photos")
    other.mkdir()
    isosphere("train", "photos", "./photos", *PHOTOS.split(), folder=project)
    run = project / "runs" / "photos-seed0"
    result = json.loads((run / "result.json").read_text())["last"]
    for name in ("class0", "class1"):  # others that have the same name are not taken for them
        shutil.copytree(photos / name, other / "photos" / name)
        shutil.copytree(photos / name, tmp_path / "photos" / name)
        shutil.copytree(photos / name, project / "runs" / "photos" / name)
    (project / "runs" / "photos" / "recipe.json").write_text("{}")  # a run of that name
    assert f"{100 * result['recall@1']:.1f}" in isosphere("evaluate", run, folder=other).stdout
    isosphere("train", "photos", "./photos", *PHOTOS.split(), "--out", "../other/deep/run", folder=project)
    assert f"{100 * result['recall@1']:.1f}" in isosphere("evaluate", "deep/run", folder=other).stdout
    shutil.rmtree(other / "photos")
    shutil.rmtree(tmp_path / "photos")
    shutil.rmtree(project / "runs" / "photos")
    (project / "photos").rename(project / "moved")
    assert has(refusal("evaluate", run, folder=other), MovedData, option=Option("data.root"))
    assert "never seen" in isosphere("evaluate", run, "--data.root", project / "moved", folder=other).stdout
    (run / "result.json").unlink()  # one that was broken off
    for folder in (project, other):
        assert has(refusal("train", "--resume", run, folder=folder), MovedData, option=Option("data.root"))
    assert has(refusal("train", "--resume", run, "--loop.steps", "120", folder=project), OtherRecipe)
    assert "R@1" in isosphere("train", "--resume", run, "--data.root", "moved", folder=project).stdout


def test_names_that_are_not_utf8_go_all_the_way(photos, tmp_path):
    root = tmp_path / b"caf\xe9".decode(errors="surrogateescape")
    shutil.copytree(photos, root)
    (root / "class9" / "0.png").rename(root / "class9" / b"\xe9.png".decode(errors="surrogateescape"))
    (root / "class8").rename(root / b"class8\xe9".decode(errors="surrogateescape"))

    command = [sys.executable, "-m", "isosphere", "train", root, *PHOTOS.split(), "--data.seed", "none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0 and b"run folder: runs/caf\xe9-seed0" in done.stdout, done.stderr
    folder = next((tmp_path / "runs").iterdir())
    assert {b"class8\xe9/4.png", b"class9/\xe9.png"} <= set((folder / "test_paths.txt").read_bytes().splitlines())
    isosphere("evaluate", folder, folder=tmp_path)
    isosphere("embed", folder, root, "--out", "e.npy", folder=tmp_path)
    assert b"/class9/\xe9.png\tclass9" in (tmp_path / "e.paths.txt").read_bytes()
    isosphere("report", folder, folder=tmp_path)
    isosphere("figure", "gallery", folder, folder=tmp_path)


def test_what_a_loss_warns_of_is_a_line_of_ours_and_a_batch_of_one_class_is_refused(photos, tmp_path):
    words = ("train", "photos", photos, *PHOTOS.split(), "--loss", "Triplet")
    done = isosphere(*words, "--batches.size", "4", "--batches.per_class", "1", folder=tmp_path)
    warned = {line for line in done.stderr.splitlines() if "all labels" in line}
    assert len(warned) == 1 and warned.pop().startswith("isosphere: ")
    refused = refusal(*words, "--batches.size", "3", "--batches.per_class", "3", folder=tmp_path)
    assert has(refused, Incompatible) and "batches.size" in endings.words_of(refused)


def test_an_unreadable_image_is_named_and_skipped_only_on_request(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    broken = tmp_path / "photos" / "class2" / "1.png"
    broken.write_bytes(broken.read_bytes()[:60])
    error = refusal("train", "./photos", "--out", "run", *PHOTOS.split(), folder=tmp_path)
    assert "class2/1.png" in str(error) and not (tmp_path / "run").exists()
    done = isosphere(
        "train", "./photos", "--out", "run", *PHOTOS.split(), "--data.skip_unreadable", "true", folder=tmp_path
    )
    assert "class2/1.png" in done.stderr and (tmp_path / "run" / "result.json").exists()
