"""`isosphere evaluate`: a trained run on its own test classes and on other images."""

import json
import shutil

import numpy as np
import pytest
import torch

from commands import has, isosphere, refusal
from isosphere import load_run
from isosphere.errors import (
    BadCheckpoint,
    BadUsage,
    DamagedFile,
    NoCheckpoint,
    NoTestPart,
    SingleImages,
    TooFewClasses,
    UnknownOption,
)
from isosphere.train.measure import measure_run
from numbers_in import numbers


def test_evaluate_gives_the_last_metrics_again(trained):
    result = json.loads((trained / "result.json").read_text())["last"]
    done = isosphere("evaluate", trained, folder=trained.parent)
    assert f"{100 * result['recall@1']:.1f}" in done.stdout and f"{100 * result['nmi']:.1f}" in done.stdout


def test_evaluate_refuses_images_of_which_each_is_alone_in_its_class(trained, photos, tmp_path):
    for number in range(3):
        (tmp_path / "some" / f"class{number}").mkdir(parents=True)
        shutil.copy(photos / f"class{number}" / "1.png", tmp_path / "some" / f"class{number}")
    assert has(refusal("evaluate", trained, "--data", "some", folder=tmp_path), SingleImages, place="some", classes=3)


def test_evaluate_on_other_images(trained, photos):
    shown = isosphere("evaluate", trained, "--data", photos, folder=trained.parent).stdout
    assert "all 10 classes" in shown and "5 have" in " ".join(shown.split())
    error = refusal("evaluate", trained, "--data", photos / "class3", folder=trained.parent)
    assert has(error, ValueError) and str(photos / "class3") in str(error)


def test_evaluate_on_other_images_with_a_split_measures_its_test_part(trained, photos, tmp_path):
    for number in range(6):
        shutil.copytree(photos / f"class{number}", tmp_path / "some" / ("train", "test")[number % 2] / f"class{number}")
    rows = [f"{f},{f.parent.name},{f.parent.parent.name}\n" for f in sorted((tmp_path / "some").glob("*/*/*"))]
    (tmp_path / "some.csv").write_text("path,label,split\n" + "".join(rows))
    run = load_run(trained, "cpu")
    wanted = measure_run(run, str(tmp_path / "some" / "test"))["last"]
    for name in ("some", "some.csv"):
        found = measure_run(run, str(tmp_path / name))
        assert found["last"] == pytest.approx(wanted)
        assert found["tested"].startswith(f"all 3 classes of the test part of {tmp_path / name}; 2 have the name")
        shown = isosphere("evaluate", trained, "--data", name, folder=tmp_path).stdout
        assert f"all 3 classes of the test part of {name}; 2 have" in " ".join(shown.split())
    isosphere("embed", trained, "some", "--out", "e.npy", folder=tmp_path)
    assert len(np.load(tmp_path / "e.npy")) == 30, "embedded are all"
    (tmp_path / "tests.csv").write_text("path,label,split\n" + "".join(row for row in rows if ",test" in row))
    assert measure_run(run, str(tmp_path / "tests.csv"))["tested"].startswith(f"all 3 classes of {tmp_path}/tests.csv")
    (tmp_path / "trains.csv").write_text("path,label,split\n" + "".join(row for row in rows if ",train" in row))
    assert has(refusal("evaluate", trained, "--data", "trains.csv", folder=tmp_path), NoTestPart, place="trains.csv")
    for number in (3, 5):
        shutil.rmtree(tmp_path / "some" / "test" / f"class{number}")
    error = refusal("evaluate", trained, "--data", "some", folder=tmp_path)
    assert has(error, TooFewClasses, found=1) and "some" in error.place


def test_evaluate_says_which_tested_classes_were_trained_on(trained, photos, tmp_path):
    assert json.loads((trained / "result.json").read_text())["tested"] == "test classes, never seen in training"
    shown = isosphere("evaluate", trained, "--data.train_fraction", "0.2", folder=tmp_path).stdout
    assert ["3", "8"] == numbers(shown.split("; ")[1])[:2] and "never seen" not in shown
    shutil.copytree(photos, tmp_path / "grown")
    shutil.copytree(photos / "class9", tmp_path / "grown" / "class00")
    shutil.copytree(photos / "class9", tmp_path / "grown" / "class01")
    shown = isosphere("evaluate", trained, "--data.root", "grown", folder=tmp_path).stdout
    assert ["1", "6"] == numbers(shown.split("; ")[1])[:2], "class4, which two new ones have moved"
    shown = isosphere("evaluate", trained, "--data.root", "grown", folder=tmp_path).stderr
    assert "grown" in shown and "not what" in shown
    assert "not what" not in isosphere("evaluate", trained, folder=tmp_path).stderr


def test_damaged_run_folders(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    saved = torch.load(run / "checkpoint.pt", weights_only=True)
    saved["model"].pop("head.1.weight")
    torch.save(saved, run / "checkpoint.pt")
    assert has(refusal("evaluate", run, folder=tmp_path), BadCheckpoint)
    (run / "checkpoint.pt").write_text("junk\n")
    assert has(refusal("evaluate", run, folder=tmp_path), BadCheckpoint)
    (run / "recipe.json").write_text("{")
    assert has(refusal("train", "--resume", run, folder=tmp_path), DamagedFile, path=run / "recipe.json")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("nowhere", NoCheckpoint),
        ("runs/a ./others", BadUsage),
        ("nowhere --probe --data ./others", BadUsage),
        ("nowhere --model.dim 4", UnknownOption),
        ("nowhere --loop.steps 4", UnknownOption),
        ("", BadUsage),
    ],
)
def test_bad_input(words, kind, tmp_path):
    assert has(refusal("evaluate", *words.split(), folder=tmp_path), kind) and not list(tmp_path.iterdir())
