"""Own images with labels and cameras in their names: trained, measured by their groups, shown, and split again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import isosphere, refusal
from isosphere import inference, runs
from isosphere.data.images import open_images
from isosphere.data.readable import readable_images
from isosphere.data.split import split_classes
from isosphere.errors import CopiesWarning, NearCopiesWarning, NoMatch, Option
from isosphere.metrics import ranking_metrics, retrieval_metrics
from isosphere.report.retrievals import findable, nearest
from isosphere.train.overlap import copies
from raised import warned
from tiny import PHOTOS

NAMES = ["--data.label_regex", r"^(\d+)_", "--data.group_regex", r"c(\d)"]


@pytest.fixture(scope="module")
def persons(tmp_path_factory):
    """Eight people by two cameras, twice each, 12 x 24 pixels; one file that shows nobody."""
    root = tmp_path_factory.mktemp("persons")
    generator = np.random.default_rng(0)
    cameras = generator.integers(0, 120, (2, 3))
    for person in range(8):
        color = generator.integers(0, 120, 3)
        for shot in range(4):
            pixels = color + cameras[shot % 2] + generator.integers(0, 15, (24, 12, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(root / f"{person:04d}_c{shot % 2}_{shot}.png")
    Image.new("RGB", (12, 24)).save(root / "-1_c1_9.png")
    return root


@pytest.fixture(scope="module")
def run(persons, tmp_path_factory):
    folder = tmp_path_factory.mktemp("by_name")
    done = isosphere("train", "photos", persons, "--out", "run", *PHOTOS.split(), *NAMES, folder=folder)
    assert "rank 1" in done.stdout and "mAP" in done.stdout and "-1_c1_9.png" in done.stderr
    return folder / "run"


def test_matches_of_one_camera_do_not_count(run):
    found = runs.read(run, strict=True)
    held = found.embedded
    parts = torch.from_numpy(held.embeddings), torch.from_numpy(held.labels)
    groups = torch.from_numpy(held.groups)
    wanted = ranking_metrics(*parts, (1, 5, 10), groups)
    assert {name: found.last[name] for name in wanted} == pytest.approx(wanted, abs=0.02)  # half precision
    assert found.last["map@r"] == pytest.approx(retrieval_metrics(*parts, groups=groups)["map@r"], abs=0.02)
    assert any("-1_c1_9.png" in note for note in found.about["notes"])
    hits = nearest(held, range(len(held.labels)), findable(held))
    near = (held.labels[hits.indices] == held.labels[:, None]) & (held.groups[hits.indices] == held.groups[:, None])
    assert not near.any() and np.isfinite(hits.cosines).all() and findable(held) == len(held.labels) - 2


def test_a_run_is_measured_again_and_its_names_mean_the_same_elsewhere(run, persons, tmp_path):
    shown = isosphere("evaluate", run, folder=tmp_path).stdout
    assert "rank 1" in shown and "never seen" in shown
    shown = isosphere("evaluate", run, "--data", persons, folder=tmp_path).stdout
    assert "all 8 classes" in shown and "mAP" in shown
    isosphere("embed", run, persons, "--out", "e.npy", folder=tmp_path)
    assert set(np.load(tmp_path / "e.labels.npy")) == {persons.name, *(f"{person:04d}" for person in range(8))}


def test_a_split_is_taken_again_and_folds_go_through_all_classes(run, persons, tmp_path):
    held = json.loads((run / runs.SPLIT).read_text())
    assert {len(part["classes"]) for part in held.values()} == {4}
    fields = ["train", "photos", persons, *PHOTOS.split(), *NAMES, "--loop.steps", "1", "--out"]
    isosphere(*fields, "same", "--data.split", run / runs.SPLIT, "--data.train_fraction", "0.9", folder=tmp_path)
    assert json.loads((tmp_path / "same" / runs.SPLIT).read_text()) == held
    tested = []
    for fold in "12":
        isosphere(*fields, fold, "--data.folds", "2", "--data.fold", fold, folder=tmp_path)
        tested += json.loads((tmp_path / fold / runs.SPLIT).read_text())["test"]["classes"]
    assert sorted(tested) == [f"{person:04d}" for person in range(8)]


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_tall_images_train_and_are_embedded_as_they_are_tested(persons, tmp_path, fit):
    tall = ["--data.size", "24x12", "--data.shorter", "14", "--data.fit", fit, "--loop.steps", "2"]
    done = isosphere("train", "photos", persons, "--out", "run", *PHOTOS.split(), *NAMES, *tall, folder=tmp_path)
    assert "rank 1" in done.stdout
    found = runs.read(tmp_path / "run", strict=True)
    paths = [persons / line for line in (tmp_path / "run" / runs.PATHS).read_text().splitlines()]
    trained = inference.load_run(tmp_path / "run", "cpu")
    again = trained.embed(paths)
    assert torch.allclose(again, torch.from_numpy(found.embedded.embeddings), atol=0.02)
    assert torch.allclose(trained.embed([Image.open(path) for path in paths]), again, atol=1e-5)
    assert found.values["data"]["size"] == "24x12" and found.values["data"]["fit"] == fit


def test_a_pattern_without_a_match_is_one_line(persons, tmp_path):
    error = refusal("train", persons, *PHOTOS.split(), "--data.label_regex", "person(.)", folder=tmp_path)
    assert isinstance(error, NoMatch) and error.option == Option("data.label_regex") and error.files == 33


@pytest.fixture(scope="module")
def saved_again(tmp_path_factory):
    """Eight classes of three pictures. One training picture is in test twice: saved again, and byte by byte."""
    root = tmp_path_factory.mktemp("again")
    generator = np.random.default_rng(1)
    for part in ("train", "test"):
        for name in range(4):
            folder = root / part / f"{part}{name}"
            folder.mkdir(parents=True)
            for shot in range(3):
                soft = Image.fromarray(generator.integers(0, 255, (6, 6, 3), dtype=np.uint8))
                soft.resize((48, 40), Image.BICUBIC).save(folder / f"{shot}.png")
    source = root / "train" / "train0" / "0.png"
    Image.open(source).save(root / "test" / "test1" / "again.jpg", quality=60)
    (root / "test" / "test2" / "same.png").write_bytes(source.read_bytes())
    return root


def test_copies_and_near_copies_across_the_split_are_noted(saved_again, tmp_path):
    done = isosphere("train", "photos", saved_again, "--out", "run", *PHOTOS.split(), folder=tmp_path)
    told = " ".join(done.stderr.split())
    assert "again.jpg" in told and "same.png" in told
    notes = json.loads((tmp_path / "run" / runs.RESULT).read_text())["notes"]
    assert [note.split()[0] for note in notes] == ["1", "1"] and "byte" in notes[0] and "look" in notes[1]


def test_near_copies_are_warned_of_by_type(saved_again):
    images = readable_images(open_images(str(saved_again)))
    train, test = split_classes(images)
    with warned({CopiesWarning: 1, NearCopiesWarning: 1}) as caught:
        assert len(copies(train, [test])) == 2
    near = next(one.message for one in caught if isinstance(one.message, NearCopiesWarning))
    assert [Path(name).name for name in near.names] == ["again.jpg"]
    assert copies(train, [train]) == () and copies(test, [train.of_classes([1, 2, 3])]) == ()
