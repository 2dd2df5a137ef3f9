"""The command line as a user meets it: what works, and one clear line with exit code 2 for what cannot."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import isosphere
from isosphere import cli, load_run
from isosphere.data import images
from isosphere.train.measure import measure_run
from tiny import TINY

FIELDS = [word for key, value in TINY.items() for word in (f"--{key}", value)]
PHOTOS = "--data.size 16 --data.shorter 20 --model.dim 16 --batches.size 12 --batches.per_class 3 --loop.steps 4"


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Ten classes of five small pictures."""
    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for label in range(10):
        (root / f"class{label}").mkdir()
        color = generator.integers(0, 255, 3)
        for number in range(5):
            noise = generator.integers(0, 30, (24, 28, 3))
            pixels = (color // 2 + noise).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class{label}" / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory) -> Path:
    """A run on the photographs: the whole walk of a user."""
    folder = tmp_path_factory.mktemp("walk")
    done = isosphere("train", photos, "--out", "run", "--seed", "3", *PHOTOS.split(), folder=folder)
    assert "run folder: run" in done.stdout and "R@1" in done.stdout
    return folder / "run"


def test_a_run_folder_holds_the_whole_story(trained):
    names = {entry.name for entry in trained.iterdir()}
    assert names == {
        "recipe.json", "run.json", "metrics.jsonl", "checkpoint.pt", "result.json", "test_embeddings.npz",
        "test_paths.txt",
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


def test_evaluate_gives_the_last_metrics_again(trained):
    result = json.loads((trained / "result.json").read_text())["last"]
    done = isosphere("evaluate", trained, folder=trained.parent)
    assert f"{100 * result['recall@1']:.1f}" in done.stdout and f"{100 * result['nmi']:.1f}" in done.stdout


def test_evaluate_refuses_images_of_which_each_is_alone_in_its_class(trained, photos, tmp_path):
    for number in range(3):
        (tmp_path / "some" / f"class{number}").mkdir(parents=True)
        shutil.copy(photos / f"class{number}" / "1.png", tmp_path / "some" / f"class{number}")
    told = isosphere("evaluate", trained, "--data", "some", folder=tmp_path, code=2).stderr
    assert "some has one image of each class: an image is looked for by another of its class" in told


def test_embed_and_inspect(trained, photos):
    done = isosphere("embed", trained, photos, "--out", "e.npy", folder=trained.parent)
    assert done.stdout.split() == ["e.npy", "e.labels.npy", "e.paths.txt"]
    embeddings = np.load(trained.parent / "e.npy")
    labels = np.load(trained.parent / "e.labels.npy")
    assert embeddings.shape == (50, 16) and labels.tolist() == [f"class{n // 5}" for n in range(50)]
    paths = (trained.parent / "e.paths.txt").read_text().splitlines()
    assert paths[7].endswith("class1/2.png\tclass1")
    told = isosphere("inspect", "e.npy", "e.labels.npy", folder=trained.parent).stdout
    for word in ("R@1", "MAP@R", "NMI", "norm decile", "coefficient of variation", "SEC"):
        assert word in told
    flat = isosphere("embed", trained, photos / "class3", "--out", "flat.npy", folder=trained.parent)
    assert np.load(trained.parent / "flat.npy").shape == (5, 16) and flat.stdout
    np.testing.assert_allclose(np.load(trained.parent / "flat.npy"), embeddings[15:20], rtol=1e-4, atol=1e-5)


def test_embed_takes_all_parts_of_a_split(trained, photos, tmp_path):
    for number, part in enumerate(("train", "val", "test")):
        shutil.copytree(photos / f"class{number}", tmp_path / "parts" / part / f"class{number}")
    done = isosphere("embed", trained, "parts", "--out", "e.npy", folder=tmp_path)
    lines = (tmp_path / "e.paths.txt").read_text().splitlines()
    assert len(np.load(tmp_path / "e.npy")) == 15 and "left out" not in done.stderr
    assert {line.partition("\t")[2] for line in lines} == {"class0", "class1", "class2"}
    told = " ".join(isosphere("embed", "--help", folder=tmp_path).stdout.replace("│", " ").split())
    assert "A line of OUT.paths.txt is an image's path, a tab and its label." in told


def test_a_run_embeds_files_in_python_and_features_on_the_command_line(trained, photos):
    isosphere("embed", trained, photos / "class3", "--out", "f.npy", "--features", folder=trained.parent)
    isosphere("embed", trained, photos / "class3", "--out", "g.npy", folder=trained.parent)
    run, files = load_run(trained, "cpu"), sorted((photos / "class3").iterdir())
    for name, features in (("f.npy", True), ("g.npy", False)):
        found = run.embed(files, features)
        np.testing.assert_allclose(found.numpy(), np.load(trained.parent / name), rtol=1e-4, atol=1e-5)
    assert np.load(trained.parent / "f.npy").shape[1] == run.model.backbone.num_features != 16
    assert run.embed(str(files[0])).shape == (1, 16)
    with pytest.raises(ValueError, match="no images to embed"):
        run.embed([])


@pytest.mark.parametrize("features", [False, True])
def test_a_run_embeds_images_in_memory_as_it_does_their_files(features, trained, photos, tmp_path):
    run, files = load_run(trained, "cpu"), sorted((photos / "class3").iterdir())
    wanted = run.embed(files, features)
    opened = [Image.open(file) for file in files]
    pixels = np.stack([np.asarray(image) for image in opened])  # (5, 24, 28, 3)
    mirrored = np.ascontiguousarray(pixels[..., ::-1, :])[..., ::-1, :]  # a view that torch cannot take as it is
    for given in (opened, pixels, mirrored, list(pixels), torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())):
        torch.testing.assert_close(run.embed(given, features), wanted)
    for one in (opened[0], pixels[0], torch.from_numpy(pixels[0]).permute(2, 0, 1)):
        torch.testing.assert_close(run.embed(one, features), wanted[:1])
    # PIL's are seen as their files: of any size, upright, without alpha.
    turned = Image.Exif()
    turned[0x0112] = 6
    opened[1].resize((40, 22)).save(tmp_path / "turned.png", exif=turned)
    opened[2].convert("RGBA").resize((17, 30)).save(tmp_path / "alpha.png")
    odd = [tmp_path / "turned.png", files[3], tmp_path / "alpha.png"]
    torch.testing.assert_close(run.embed([Image.open(file) for file in odd], features), run.embed(odd, features))


def test_a_run_decodes_files_in_threads_a_batch_at_a_time(trained, photos, monkeypatch):
    """Not in processes, which some platforms start by running the caller's script again."""
    run, files, decoders = load_run(trained, "cpu"), sorted((photos / "class3").iterdir()), set()

    def decode(file: str) -> torch.Tensor:
        decoders.add((os.getpid(), threading.current_thread()))
        return images.decode(file)

    wanted = run.embed(files)
    monkeypatch.setattr(images.ImageSet, "__getitem__", lambda its, index: decode(its.paths[index]))
    torch.testing.assert_close(run.embed(files * 60), wanted.repeat(60, 1))
    assert decoders and (os.getpid(), threading.main_thread()) not in decoders
    assert {process for process, _ in decoders} == {os.getpid()}


def test_what_is_no_image_in_memory_is_refused(trained, photos):
    run, file = load_run(trained, "cpu"), photos / "class3" / "1.png"
    for told, pixels in {
        "float32 (3, 8, 8)": torch.zeros(2, 3, 8, 8), "uint8 (1, 8, 8)": np.zeros((2, 1, 8, 8), np.uint8),
        "uint8 (8, 8)": np.zeros((8, 8), np.uint8), "uint8 (2, 8, 8)": np.zeros((2, 8, 8), np.uint8),
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=f"uint8, from 0 to 255, an image .* not {re.escape(told)}"):
            run.embed(pixels)
    for empty in (np.zeros((0, 8, 3), np.uint8), torch.zeros(2, 3, 8, 0, dtype=torch.uint8), Image.new("RGB", (0, 8))):
        with pytest.raises(ValueError, match="an image in memory has no pixels"):
            run.embed(empty)
    with pytest.raises(TypeError, match="in memory is one of PIL or an array of pixels, not str"):
        run.embed([Image.open(file), str(file)])


def test_embed_leaves_out_what_cannot_be_read_if_asked(trained, photos, tmp_path):
    shutil.copytree(photos / "class3", tmp_path / "some")
    (tmp_path / "some" / "1.png").write_bytes(b"no picture")
    words = ("embed", trained, tmp_path / "some", "--out", tmp_path / "e.npy")
    assert "1.png" in isosphere(*words, folder=tmp_path, code=2).stderr and not (tmp_path / "e.npy").exists()
    isosphere(*words, "--data.skip_unreadable", "true", folder=tmp_path)
    assert len(np.load(tmp_path / "e.npy")) == 4
    done = isosphere(*words, "--model.dim", "4", folder=tmp_path, code=2)
    assert "no option --model.dim" in done.stderr
    done = isosphere(*words, "--featurs", folder=tmp_path, code=2)
    assert "no option --featurs; did you mean --features?" in done.stderr


@pytest.mark.parametrize("kind", ["photographs", "characters"])
def test_other_images_that_cannot_be_read_are_all_named_with_what_helps(kind, trained, photos, tmp_path):
    """Whatever a run was trained on: its own data may have nothing to skip."""
    if kind == "characters":
        trained = tmp_path / "run"
        isosphere("train", "rendered", "--out", trained, *FIELDS, "--loop.steps", "1", folder=tmp_path)
    bad = [photos / "class3" / "1.png", photos / "class4" / "2.png"]
    shutil.copytree(photos, tmp_path / "some")
    for file in bad:
        (tmp_path / "some" / file.relative_to(photos)).write_bytes(b"no picture")
    embedded, measured = ("embed", trained, "some", "--out", "e.npy"), ("evaluate", trained, "--data", "some")
    for words in (embedded, measured):
        told = isosphere(*words, folder=tmp_path, code=2).stderr
        assert "2 of 50 images are unreadable" in told and "class3/1.png" in told and "class4/2.png" in told
        assert told.endswith("; repair or remove them, or add --data.skip_unreadable true\n")
        isosphere(*words, "--data.skip_unreadable", "true", folder=tmp_path)
    kept = [path for path in sorted(photos.glob("*/*.png")) if path not in bad]
    wanted = load_run(trained, "cpu").embed(kept)  # seen as the run's own images are
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_resume_goes_on_from_the_folder_alone_and_a_finished_run_stays_as_it_is(trained):
    before = {file.name: file.read_bytes() for file in trained.iterdir()}
    done = isosphere("train", "--resume", trained, folder=trained.parent)
    assert "R@1" in done.stdout
    assert done.stderr.startswith("isosphere: already finished at step 4; nothing was trained\n")
    assert {file.name: file.read_bytes() for file in trained.iterdir()} == before
    done = isosphere("train", "--resume", trained, "--loop.steps", "120", folder=trained.parent, code=2)
    told = "another recipe: loop.steps 4 -> 120; schedules depend on the length: train a new run\n"
    assert done.stderr.endswith(told)


def test_evaluate_on_other_images(trained, photos):
    told = isosphere("evaluate", trained, "--data", photos, folder=trained.parent).stdout
    assert "all 10 classes of" in told and "5 have the name of one trained on" in " ".join(told.split())
    assert "retrieval among other images" in " ".join(isosphere("evaluate", "--help", folder=trained).stdout.split())
    done = isosphere("evaluate", trained, "--data", photos / "class3", folder=trained.parent, code=2)
    told = "holds no class folder; give a folder that holds one folder of images per class, or train without classes"
    assert told in " ".join(done.stderr.split())


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
    assert "only test images" in " ".join(isosphere("evaluate", "--help", folder=tmp_path).stdout.split())
    isosphere("embed", trained, "some", "--out", "e.npy", folder=tmp_path)
    assert len(np.load(tmp_path / "e.npy")) == 30, "embedded are all"
    (tmp_path / "tests.csv").write_text("path,label,split\n" + "".join(row for row in rows if ",test" in row))
    assert measure_run(run, str(tmp_path / "tests.csv"))["tested"].startswith(f"all 3 classes of {tmp_path}/tests.csv")
    (tmp_path / "trains.csv").write_text("path,label,split\n" + "".join(row for row in rows if ",train" in row))
    told = isosphere("evaluate", trained, "--data", "trains.csv", folder=tmp_path, code=2).stderr
    assert "trains.csv gives a split without a test image: leave out the split to measure on all" in told
    for number in (3, 5):
        shutil.rmtree(tmp_path / "some" / "test" / f"class{number}")
    told = isosphere("evaluate", trained, "--data", "some", folder=tmp_path, code=2).stderr
    assert "the test part of some holds one class only" in told


@pytest.mark.parametrize(
    "spread, told", [(0.1, "the norms hardly spread"), (0.2, r"turns 1.5 times (Adam) or 2.2 times (SGD) as far")]
)
def test_inspect_says_whether_sec_could_matter(spread, told, tmp_path):
    unit = np.random.default_rng(0).normal(size=(40, 8))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.save(tmp_path / "e.npy", 5 * unit * np.where(np.arange(40) % 2, 1 - spread, 1 + spread)[:, None])
    np.save(tmp_path / "y.npy", np.arange(40) // 4)
    shown = " ".join(isosphere("inspect", "e.npy", "y.npy", folder=tmp_path).stdout.split())
    assert f"coefficient of variation {spread:.3f}" in shown and told in shown


def test_inspect_reads_nothing_from_the_rounding_of_normalized_norms(tmp_path):
    raw = np.random.default_rng(0).normal(size=(40, 8))
    np.save(tmp_path / "e.npy", (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(40) // 4)
    shown = isosphere("inspect", "e.npy", "y.npy", folder=tmp_path).stdout
    assert "R@1" in shown and "these embeddings are normalized already" in " ".join(shown.split())
    assert "AUROC" not in shown and "errors" not in shown


def test_inspect_tells_of_norms_where_there_are_no_classes(tmp_path):
    lengths = np.arange(1.0, 41)  # 20.5 on average, and (40 ** 2 - 1) / 12 the variance
    np.save(tmp_path / "e.npy", np.eye(8)[np.arange(40) % 8] * lengths[:, None])
    np.save(tmp_path / "same.npy", np.zeros(40, int))
    np.save(tmp_path / "names.npy", np.array(["cat", "dog"] * 20))
    for words, told in (((), "no labels"), (("same.npy",), "one class only")):
        shown = isosphere("inspect", "e.npy", *words, folder=tmp_path).stdout
        flowing = " ".join(shown.split())
        assert f"40 embeddings, {told}: metrics and errors, which need labels of classes, are left out" in flowing
        assert not any(word in shown for word in ("R@1", "MAP@R", "NMI", "AUROC"))
        assert "mean 20.5, variance 133.3" in flowing and "SEC could matter" in flowing
        rows = [line.split()[1::2] for line in shown.splitlines() if line[:1] == "│"]
        assert [row[0] for row in rows] == [str(number) for number in range(1, 11)]
        assert rows[0][1:] == ["1", "4.9", "4"] and rows[-1][1:] == ["36.1", "40", "4"]
    both = isosphere("inspect", "e.npy", "names.npy", folder=tmp_path).stdout
    assert "40 embeddings, 2 classes" in both and "R@1" in both and "left out" not in both
    help_text = " ".join(isosphere("inspect", "--help", folder=tmp_path).stdout.split())
    assert "integers or names" in help_text


def test_inspect_of_odd_files(tmp_path):
    generator = np.random.default_rng(0)
    np.save(tmp_path / "e.npy", generator.normal(size=(12, 4)).astype(">f4"))  # as another machine may write it
    np.save(tmp_path / "names.npy", np.array(["cat", "dog", "owl"] * 4))
    np.save(tmp_path / "half.npy", np.arange(12) / 2)
    np.save(tmp_path / "short.npy", np.arange(5))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "zero.npy", np.zeros((12, 4)))
    np.savez(tmp_path / "many.npz", a=np.zeros(3), b=np.zeros(3))
    (tmp_path / "empty.npy").touch()
    (tmp_path / "paths.txt").write_text("a/0.png\ta\n" * 12)
    np.save(tmp_path / "one.npy", np.zeros(5, int))
    bad = generator.normal(size=(12, 4))
    bad[7, 1] = np.nan
    np.save(tmp_path / "nan.npy", bad)
    assert "12 embeddings, 3 classes" in isosphere("inspect", "e.npy", "names.npy", folder=tmp_path).stdout
    assert "all embeddings are zero" in isosphere("inspect", "zero.npy", "names.npy", folder=tmp_path).stdout
    np.save(tmp_path / "whole.npy", np.arange(12.0) % 3)
    assert "12 embeddings, 3 classes" in isosphere("inspect", "e.npy", "whole.npy", folder=tmp_path).stdout
    np.save(tmp_path / "lost.npy", np.array([0, 1, np.nan, -np.inf] * 3, dtype=np.float16))
    for words, message in {
        ("e.npy", "half.npy"): "integers, not torch.float64: give each class a whole number, or a word",
        ("e.npy", "lost.npy"): "integers, not torch.float16",
        ("e.npy", "short.npy"): "12",
        ("objects.npy", "names.npy"): "objects.npy is not a plain .npy array",
        ("many.npz", "names.npy"): "many.npz holds the arrays a, b: it is not clear which are the embeddings",
        ("empty.npy", "names.npy"): "empty.npy is not a plain .npy array",
        ("e.npy", "paths.txt"): "paths.txt is not a plain .npy array",
        ("e.npy", "one.npy"): "labels must have shape (12,)",
        ("nan.npy", "names.npy"): "row 7",
        ("nan.npy",): "row 7",
        ("short.npy",): "embeddings must have shape (N, D)",
    }.items():
        done = isosphere("inspect", *words, folder=tmp_path, code=2)
        assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "pickle" not in done.stderr


@pytest.mark.parametrize(
    "names, told",
    [
        (("embeddings", "labels"), "embeddings, labels"),
        (("X", "y"), "embeddings (X), labels (y)"),
        (("features", "targets"), "embeddings (features), labels (targets)"),
        ((), "embeddings (arr_0), labels (arr_1)"),
    ],
)
def test_inspect_of_one_archive_tells_what_two_files_do(names, told, tmp_path):
    arrays = np.random.default_rng(0).normal(size=(40, 8)), np.array(["cat", "dog", "owl", "hen"] * 10)
    for name, array in zip(("e.npy", "y.npy"), arrays, strict=True):
        np.save(tmp_path / name, array)
    np.savez(tmp_path / "both.npz", *(() if names else arrays), **dict(zip(names, arrays, strict=False)))
    wanted = isosphere("inspect", "e.npy", "y.npy", folder=tmp_path).stdout
    shown = isosphere("inspect", "both.npz", folder=tmp_path).stdout
    assert shown == f"both.npz holds {told}\n{wanted}" and "40 embeddings, 4 classes" in wanted


def test_inspect_of_archives(trained, tmp_path):
    generator = np.random.default_rng(0)
    embeddings, labels = generator.normal(size=(40, 8)), np.arange(40) // 4
    np.save(tmp_path / "y.npy", labels)
    objects = np.array([{}] * 40, dtype=object)
    for name, arrays in {
        "alone": {"vectors": embeddings}, "ids": {"x": embeddings, "[ids]": labels}, "none": {},
        "unknown": {"vectors": embeddings, "ids": labels}, "two": {"embeddings": embeddings, "y": labels, "Y": labels},
        "own": {"embeddings": embeddings, "features": embeddings[:9], "labels": labels, "y": labels[:9]},
        "objects": {"embeddings": embeddings, "labels": objects}, "turned": {"arr_0": labels, "arr_1": embeddings},
        "every": {f"image{number}": embeddings[number] for number in range(40)},
    }.items():  # fmt: skip
        np.savez(tmp_path / f"{name}.npz", **arrays)
    torch.save({"embeddings": torch.ones(4, 2)}, tmp_path / "torch.pt")
    whole = (tmp_path / "own.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:300])
    (tmp_path / "damaged.npz").write_bytes(whole[:400] + bytes([whole[400] ^ 255]) + whole[401:])
    for words, told in {
        ("alone.npz",): "alone.npz holds embeddings (vectors) 40 embeddings, no labels",
        ("ids.npz",): "ids.npz holds embeddings (x); not used: [ids] 40 embeddings, no labels",
        ("ids.npz", "y.npy"): "ids.npz holds embeddings (x); not used: [ids] 40 embeddings, 10 classes",
        ("own.npz",): "own.npz holds embeddings, labels; not used: features, y 40 embeddings, 10 classes",
    }.items():
        assert " ".join(isosphere("inspect", *words, folder=tmp_path).stdout.split()).startswith(told)
    unclear, plain = "it is not clear which are the", "is not a plain .npy array or .npz of numbers or names"
    for name, told in {
        "unknown.npz": f"unknown.npz holds the arrays vectors, ids: {unclear} embeddings; call them embeddings",
        "two.npz": f"two.npz holds the arrays embeddings, y, Y: {unclear} labels; call them labels",
        "none.npz": f"none.npz holds the arrays (none): {unclear} embeddings",
        "every.npz": f"image18, image19 and 20 more: {unclear} embeddings",
        "objects.npz": f"labels of objects.npz {plain}",
        "turned.npz": "embeddings must have shape (N, D) with N and D at least 1, not (40,)",
        "torch.pt": "torch.pt is an archive, as .pt is, but not of np.savez: save one array with np.save",
        "cut.npz": f"cut.npz {plain}",
        "damaged.npz": f"embeddings of damaged.npz {plain}",
    }.items():
        done = isosphere("inspect", name, folder=tmp_path, code=2)
        assert told in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    help_text = " ".join(isosphere("inspect", "--help", folder=tmp_path).stdout.replace("│", "").split())
    assert "or a .npz also of labels" in help_text


def test_inspect_of_a_runs_own_archive_tells_its_norms_and_metrics(trained):
    last = json.loads((trained / "result.json").read_text())["last"]
    shown = " ".join(isosphere("inspect", "run/test_embeddings.npz", folder=trained.parent).stdout.split())
    assert "run/test_embeddings.npz holds embeddings (embeddings x scale), labels; not used: classes" in shown
    assert f"{100 * last['recall@1']:.2f}" in shown and "25 embeddings, 5 classes" in shown
    mean = float(re.search(r"norms: mean ([\d.e+-]+),", shown).group(1))
    assert mean == pytest.approx(last["norm_mean"], rel=2e-3)


def test_damaged_run_folders(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    saved = torch.load(run / "checkpoint.pt", weights_only=True)
    saved["model"].pop("head.1.weight")
    torch.save(saved, run / "checkpoint.pt")
    assert "does not fit the model of its recipe" in isosphere("evaluate", run, folder=tmp_path, code=2).stderr
    (run / "checkpoint.pt").write_text("junk\n")
    assert "not a checkpoint that can be read safely" in isosphere("evaluate", run, folder=tmp_path, code=2).stderr
    (run / "recipe.json").write_text("{")
    assert "recipe.json is not a recipe" in isosphere("train", "--resume", run, folder=tmp_path, code=2).stderr


def test_the_command_alone_shows_its_help(tmp_path):
    done = isosphere(folder=tmp_path, code=2)
    assert "Train embeddings that lie on one sphere" in done.stdout + done.stderr and "isosphere:" not in done.stderr


def test_the_command_tells_its_version(tmp_path):
    assert isosphere("--version", folder=tmp_path).stdout == f"isosphere {version('isosphere')}\n"
    assert "--version" in isosphere("--help", folder=tmp_path).stdout


def test_the_demo_compares_two_runs(tmp_path):
    done = isosphere("demo", "--steps", "1", folder=tmp_path)
    for word in ("demo-rendered ", "demo-rendered-sec ", "R@8", "MAP@R", "NMI", "F1", "variance"):
        assert word in done.stdout
    for name in ("demo-rendered", "demo-rendered-sec"):
        assert f"run folder: runs/{name}" in done.stdout and (tmp_path / "runs" / name / "result.json").exists()
    page = (tmp_path / "runs" / "demo-report.html").read_text(encoding="utf-8")
    assert "open in a browser: runs/demo-report.html" in done.stdout and "2 runs compared" in page


@pytest.mark.parametrize(
    "words, message",
    [
        ("train rendred", "did you mean rendered?"),
        ("train", "name a recipe or a folder of images"),
        ("train rendered --loss.margn 0.5", "no option --loss.margn; did you mean --loss.margin?"),
        ("train rendered --loss.margin high", "loss.margin: 'high' is not float"),
        ("train rendered --seed", "argument --seed"),
        ("train rendered 3", "unexpected '3': rendered has no data.root"),
        ("train photos nowhere else", "unexpected 'else'"),
        ("train photos-sec nowhere", "no such folder or file: nowhere"),
        ("train photos a --data.root b", "name the images once: a, or --data.root b"),
        ("evaluate runs/a ./others", "unexpected './others'"),
        ("train nowhere/photos", "neither a recipe nor a path"),
        ("train photos --data.root nowhere", "no such folder or file: nowhere"),
        ("train photos", "data.root is empty"),
        ("train cub200-ms . --model.freeze_bn false", "test/); `isosphere datasets . --get cub200` downloads it"),
        ("train cars196-ms . --model.freeze_bn false", "or 196 class folders; see http://ai.stanford.edu"),
        ("train rendered --model.backbone resnet51", "no backbone 'resnet51' in timm or torchvision"),
        ("train rendered --model.weights gone.pth", "no weight file gone.pth"),
        ("train rendered --model.freeze_bn true", "freeze_bn needs trained statistics to keep"),
        ("train rendered --data.classes 20 --batches.size 120", "are 10 to train on: use --batches.size 40 or less"),
        ("train rendered --device tpu", "device is auto, cpu or cuda, not tpu"),
        ("train --resume nowhere", "nowhere is not a run folder"),
        ("evaluate nowhere", "no checkpoint nowhere/checkpoint.pt: nowhere is not a run folder"),
        ("inspect nowhere.npy nowhere.npy", "no such file: nowhere.npy"),
        ("recipes renderd", "did you mean rendered?"),
        ("embed nowhere photos --out e.csv", "--out must be a .npy file, not"),
        ("embed nowhere photos --out gone/e.npy", "there is no folder"),
        ("train rendered --optimizer.lr -1", "optimizer: lr must be above 0, not -1.0"),
        ("train rendered --loop.clip 0", "loop: clip must be above 0, not 0.0"),
        ("train rendered --data.shift -3", "data: shift must be at least 0, not -3"),
        ("train rendered --model.dim 0", "model: dim must be at least 1, not 0"),
        ("train rendered --seed -1", "recipe: seed must be at least 0, not -1"),
        ("train rendered --loss NTXent", "NTXent needs --batches.per_class 2, or --batches.views 2"),
        ("train rendered --model.backbone crossvit_9_240", "cannot take images of 32 x 32 pixels"),
        ("train rendered --model.backbone squeezenet1_0", "squeezenet1_0 has no linear classifier"),
        ("train rendered --resume nowhere", "goes on with the folder's own recipe: leave out rendered"),
        ("train --resume nowhere --out here", "leave out --out"),
        ("trian", "no command trian; did you mean train?"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(words, message, tmp_path):
    done = isosphere(*words.split(), folder=tmp_path, code=2)
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not list(tmp_path.iterdir())


def test_datasets_says_what_is_installed_and_where_to_get_the_rest(tmp_path):
    (tmp_path / "data" / "CUB_200_2011" / "images" / "001.Albatross").mkdir(parents=True)
    (tmp_path / "data" / "CUB_200_2011" / "images.txt").write_text("1 001.Albatross/a.jpg\n")
    (tmp_path / "data" / "CUB_200_2011" / "image_class_labels.txt").write_text("1 1\n")
    told = " ".join(isosphere("datasets", folder=tmp_path).stdout.split())
    assert "CUB-200-2011" in told and "cars196" in told and "not installed" in told and "http" in told
    joined = isosphere("datasets", folder=tmp_path).stdout
    assert "--get sop" in joined and "--get cars196" not in joined and "--get inshop" not in joined
    assert "CIFAR-100: isosphere train simclr-cifar10 --data.download true" in told
    (tmp_path / "data").rename(tmp_path / "my[data]")
    assert "my[data]/CUB_200_2011" in isosphere("datasets", "my[data]", folder=tmp_path).stdout.replace("\n", "")


def test_recipes_are_listed_by_group_by_beginning_and_by_field(tmp_path):
    overview = isosphere("recipes", folder=tmp_path).stdout
    assert "paper-inshop-ms" not in overview and "NAME-sec-relative" in overview and "cub200-ms-sec" not in overview
    assert "cub200-ms-sec-relative" in isosphere("recipes", "cub200-m", folder=tmp_path).stdout
    assert "--constraint.eta" in isosphere("recipes", "rendered-sec", folder=tmp_path).stdout


def test_a_run_is_never_overwritten(trained):
    done = isosphere("train", "rendered", "--out", "run", *FIELDS, folder=trained.parent, code=2)
    assert "run is not empty" in done.stderr


def test_a_run_folder_is_not_a_file(photos, tmp_path):
    (tmp_path / "ok.csv").write_text("path,label\n")
    done = isosphere("train", photos, "--out", "ok.csv", folder=tmp_path, code=2)
    assert "ok.csv" in done.stderr


def test_a_path_is_the_root_whatever_the_data_are_said_to_be(photos, tmp_path):
    done = isosphere("train", photos, "--data", "Faces", folder=tmp_path, code=2)
    assert "data.pairs_root is empty" in done.stderr and not list(tmp_path.iterdir())


def test_a_recipe_takes_the_path_of_the_images_and_the_run_is_called_as_it_is(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "closing[x]")
    words = [*PHOTOS.split(), "--loop.save_embeddings", "false", "--constraint.eta", "0", "--loss", "ArcFace"]
    done = isosphere("train", "photos-sec", *words, "./closing[x]", folder=tmp_path)
    assert "run folder: runs/closing[x]-arcface-seed0" in done.stdout
    assert done.stdout.count("closing[x]-arcface-seed0") == 2, "in the table, too"
    recipe = json.loads((tmp_path / "runs" / "closing[x]-arcface-seed0" / "recipe.json").read_text())
    assert recipe["data"]["root"] == "./closing[x]" and recipe["claim"].endswith("ArcFace loss: no constraint")


def test_evaluate_says_which_tested_classes_were_trained_on(trained, photos, tmp_path):
    assert json.loads((trained / "result.json").read_text())["tested"] == "test classes, never seen in training"
    told = isosphere("evaluate", trained, "--data.train_fraction", "0.2", folder=tmp_path).stdout
    assert "test images; 3 of 8 classes were trained on" in told and "never seen" not in told
    shutil.copytree(photos, tmp_path / "grown")
    shutil.copytree(photos / "class9", tmp_path / "grown" / "class00")
    shutil.copytree(photos / "class9", tmp_path / "grown" / "class01")
    told = isosphere("evaluate", trained, "--data.root", "grown", folder=tmp_path).stdout
    assert "test images; 1 of 6 classes were trained on" in told, "class4, which two new ones have moved"
    told = isosphere("evaluate", trained, "--data.root", "grown", folder=tmp_path).stderr
    assert "grown is not what this run was trained on: other training classes" in " ".join(told.split())
    assert "not what" not in isosphere("evaluate", trained, folder=tmp_path).stderr


def test_a_run_is_evaluated_from_any_folder(photos, tmp_path):
    project, other = tmp_path / "project", tmp_path / "other"
    shutil.copytree(photos, project / "photos")
    other.mkdir()
    isosphere("train", "./photos", *PHOTOS.split(), folder=project)
    run = project / "runs" / "photos-sec-seed0"
    result = json.loads((run / "result.json").read_text())["last"]
    for name in ("class0", "class1"):  # others that have the same name are not taken for them
        shutil.copytree(photos / name, other / "photos" / name)
        shutil.copytree(photos / name, tmp_path / "photos" / name)
        shutil.copytree(photos / name, project / "runs" / "photos" / name)
    (project / "runs" / "photos" / "recipe.json").write_text("{}")  # a run of that name
    assert f"{100 * result['recall@1']:.1f}" in isosphere("evaluate", run, folder=other).stdout
    isosphere("train", "./photos", *PHOTOS.split(), "--out", "../other/deep/run", folder=project)
    assert f"{100 * result['recall@1']:.1f}" in isosphere("evaluate", "deep/run", folder=other).stdout
    shutil.rmtree(other / "photos")
    shutil.rmtree(tmp_path / "photos")
    shutil.rmtree(project / "runs" / "photos")
    (project / "photos").rename(project / "moved")
    done = isosphere("evaluate", run, folder=other, code=2)
    assert f"no such folder or file: ./photos (seen from {other} and from above the run)" in done.stderr
    assert "say where it is now with --data.root" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert "never seen" in isosphere("evaluate", run, "--data.root", project / "moved", folder=other).stdout
    (run / "result.json").unlink()  # one that was broken off
    for folder in (project, other):
        done = isosphere("train", "--resume", run, folder=folder, code=2)
        assert done.stderr.endswith("no such folder or file: ./photos; say where it is now with --data.root\n")
    done = isosphere("train", "--resume", run, "--loop.steps", "120", folder=project, code=2)
    assert "another recipe" in done.stderr and "--data.root" not in done.stderr
    assert "R@1" in isosphere("train", "--resume", run, "--data.root", "moved", folder=project).stdout


def test_names_that_are_not_utf8_go_all_the_way(photos, tmp_path):
    root = tmp_path / b"caf\xe9".decode(errors="surrogateescape")
    shutil.copytree(photos, root)
    (root / "class9" / "0.png").rename(root / "class9" / b"\xe9.png".decode(errors="surrogateescape"))
    (root / "class8").rename(root / b"class8\xe9".decode(errors="surrogateescape"))

    command = [sys.executable, "-m", "isosphere", "train", root, *PHOTOS.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0 and b"run folder: runs/caf\xe9-sec-seed0" in done.stdout, done.stderr
    folder = next((tmp_path / "runs").iterdir())
    assert {b"class8\xe9/0.png", b"class9/\xe9.png"} <= set((folder / "test_paths.txt").read_bytes().splitlines())
    isosphere("evaluate", folder, folder=tmp_path)
    isosphere("embed", folder, root, "--out", "e.npy", folder=tmp_path)
    assert b"/class9/\xe9.png\tclass9" in (tmp_path / "e.paths.txt").read_bytes()
    isosphere("report", folder, folder=tmp_path)
    isosphere("figure", "gallery", folder, folder=tmp_path)


def test_what_a_loss_warns_of_is_a_line_of_ours_and_a_batch_of_one_class_is_refused(photos, tmp_path):
    words = ("train", "photos", photos, *PHOTOS.split(), "--loss", "Triplet")
    done = isosphere(*words, "--batches.size", "4", "--batches.per_class", "1", folder=tmp_path)
    told = {line for line in done.stderr.splitlines() if "all labels" in line}
    assert told == {
        "isosphere: all labels of the batch are different, so this loss is 0: it needs several embeddings of a class"
    }
    done = isosphere(*words, "--batches.size", "3", "--batches.per_class", "3", folder=tmp_path, code=2)
    assert "Triplet compares classes, and a batch of 3 would be of one: use --batches.size 6 or more" in done.stderr


def test_an_unreadable_image_is_named_and_skipped_only_on_request(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    broken = tmp_path / "photos" / "class2" / "1.png"
    broken.write_bytes(broken.read_bytes()[:60])
    done = isosphere("train", "./photos", "--out", "run", *PHOTOS.split(), folder=tmp_path, code=2)
    assert "1 of 50 images are unreadable" in done.stderr and "class2/1.png" in done.stderr
    assert not (tmp_path / "run").exists()
    done = isosphere(
        "train", "./photos", "--out", "run", *PHOTOS.split(), "--data.skip_unreadable", "true", folder=tmp_path
    )
    assert "1 of 50 images are unreadable" in done.stderr and (tmp_path / "run" / "result.json").exists()


def test_torchrun_is_for_training(trained, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which `run` changes
    monkeypatch.setattr(sys, "argv", ["isosphere", "evaluate", str(trained)])
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, told in (("0", "evaluate runs in one process: leave out torchrun"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        assert cli.run() == 2
        err = capsys.readouterr().err
        assert told in err and bool(err) == bool(told)
