"""`isosphere embed`: embeddings, labels and paths of other images."""

import shutil

import numpy as np
import pytest
from PIL import Image

from commands import has, isosphere, refusal
from isosphere import load_run, runs
from isosphere.cli import endings
from isosphere.errors import BadArgument, NoFolder, NotAPlainFile, UnknownOption
from tiny import FIELDS


def test_embed_and_inspect(trained, photos):
    done = isosphere("embed", trained, photos, "--out", "e.npy", folder=trained.parent)
    assert done.stdout.split() == ["e.npy", "e.labels.npy", "e.paths.txt"]
    embeddings = np.load(trained.parent / "e.npy")
    labels = np.load(trained.parent / "e.labels.npy")
    assert embeddings.shape == (50, 16) and labels.tolist() == [f"class{n // 5}" for n in range(50)]
    paths = (trained.parent / "e.paths.txt").read_text().splitlines()
    assert paths[7].endswith("class1/2.png\tclass1")
    shown = isosphere("inspect", "e.npy", "e.labels.npy", folder=trained.parent).stdout
    for word in ("R@1", "MAP@R", "NMI", "norm decile", "coefficient of variation", "SEC"):
        assert word in shown
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


def test_embed_leaves_out_what_cannot_be_read_if_asked(trained, photos, tmp_path):
    shutil.copytree(photos / "class3", tmp_path / "some")
    (tmp_path / "some" / "1.png").write_bytes(b"no picture")
    words = ("embed", trained, tmp_path / "some", "--out", tmp_path / "e.npy")
    assert "1.png" in str(refusal(*words, folder=tmp_path)) and not (tmp_path / "e.npy").exists()
    isosphere(*words, "--data.skip_unreadable", "true", folder=tmp_path)
    assert len(np.load(tmp_path / "e.npy")) == 4
    assert has(refusal(*words, "--model.dim", "4", folder=tmp_path), UnknownOption, option="--model.dim")
    assert has(refusal(*words, "--featurs", folder=tmp_path), UnknownOption, near=("--features",))


@pytest.mark.parametrize(
    ("out", "kind"),
    [("e.csv", BadArgument), ("gone/e.npy", NoFolder), ("device.npy", NotAPlainFile), ("folder.npy", NotAPlainFile)],
)
def test_files_that_cannot_be_written_are_refused_before_the_run_is_read(out, kind, tmp_path):
    (tmp_path / "device.npy").symlink_to("/dev/null")
    (tmp_path / "folder.npy").mkdir()
    assert has(refusal("embed", "nowhere", "photos", "--out", out, folder=tmp_path), kind)


def test_links_are_followed_and_a_failure_keeps_the_old_file(trained, photos, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "e.npy").symlink_to("deep/mine.npy")
    isosphere("embed", trained, photos / "class3", "--out", "e.npy", folder=tmp_path)
    before = (tmp_path / "deep" / "mine.npy").read_bytes()
    assert (tmp_path / "e.npy").is_symlink() and len(np.load(tmp_path / "e.npy")) == 5
    refusal("embed", trained, "nowhere", "--out", "e.npy", folder=tmp_path)
    assert (tmp_path / "deep" / "mine.npy").read_bytes() == before


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
        shown = endings.words_of(refusal(*words, folder=tmp_path))
        assert "class3/1.png" in shown and "class4/2.png" in shown and "--data.skip_unreadable true" in shown
        isosphere(*words, "--data.skip_unreadable", "true", folder=tmp_path)
    kept = [path for path in sorted(photos.glob("*/*.png")) if path not in bad]
    wanted = load_run(trained, "cpu").embed(kept)  # seen as the run's own images are
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_embedded_rows_and_their_paths_agree_whatever_files_are_called(trained, tmp_path):
    (tmp_path / "photos" / "cl\nass").mkdir(parents=True)
    for number, name in enumerate(["0.png", "1\n.png", "2\u2028.png", "3\t.png", "4.png"]):
        Image.new("RGB", (24, 24), (50 * number, 0, 0)).save(tmp_path / "photos" / "cl\nass" / name)
    isosphere("embed", trained, "photos", "--out", "e.npy", "--device", "cpu", folder=tmp_path)
    rows = runs.read_paths(tmp_path / "e.paths.txt")
    assert len(rows) == len(np.load(tmp_path / "e.npy")) == 5
    assert all((tmp_path / path).is_file() and label == "cl\nass" for path, label in rows)
