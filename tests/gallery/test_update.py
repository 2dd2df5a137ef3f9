"""`isosphere index`: a gallery is what its images are, however many calls made it."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import has, isosphere, refusal
from isosphere import load_gallery, load_run
from isosphere.errors import DamagedFile, FolderExists, Incompatible, NotAGallery, OtherModel, OtherVersion, UnknownName
from isosphere.gallery.manifest import MANIFEST
from isosphere.sphere import directions
from raised import raised
from tiny import PHOTOS


def made(trained, images, out, folder) -> str:
    return isosphere("index", trained, images, "--out", out, folder=folder).stdout


def same(one: Path, other: Path) -> None:
    """Two galleries hold the same images; batches of another size may round another way."""
    left, right = load_gallery(one), load_gallery(other)
    assert [Path(path).name for path in left.paths] == [Path(path).name for path in right.paths]
    assert left.labels == right.labels
    np.testing.assert_allclose(left.vectors[:], right.vectors[:], atol=2e-3)
    assert [left.thumbnail(row) for row in range(len(left))] == [right.thumbnail(row) for row in range(len(right))]


def test_a_gallery_has_what_the_run_embeds(trained, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    assert "50 images (50 embedded, 0 removed, 0 kept)" in made(trained, "photos", "gallery", tmp_path)
    gallery = load_gallery(tmp_path / "gallery", "cpu")
    files = sorted((tmp_path / "photos").rglob("*.png"))
    assert [Path(path).resolve() for path in gallery.paths] == files
    assert gallery.labels == [path.parent.name for path in files] and gallery.labeled
    wanted = directions(load_run(trained, "cpu").embed(files))
    np.testing.assert_allclose(gallery.vectors[:], wanted, atol=1e-3)
    found = gallery.search([files[7], files[30]], 50)
    for query, row in enumerate((7, 30)):
        place = found.indices[query].tolist().index(row)
        assert found.scores[query, place] == pytest.approx(1, abs=1e-3)
        assert found.labels[query][place] == gallery.labels[row]
        assert found.paths[query][place] == gallery.paths[row]
        assert sorted(found.indices[query].tolist()) == list(range(50))
    assert gallery.thumbnail(3)[:4] == b"RIFF"


def test_an_updated_gallery_is_as_one_made_anew(trained, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    made(trained, "photos", "gallery", tmp_path)
    before = load_gallery(tmp_path / "gallery")
    assert "50 images (0 embedded, 0 removed, 50 kept)" in made(trained, "photos", "gallery", tmp_path)
    assert load_gallery(tmp_path / "gallery").manifest == before.manifest
    shutil.rmtree(tmp_path / "photos" / "class2")
    shutil.copy(photos / "class2" / "1.png", tmp_path / "photos" / "class0" / "new.png")
    shutil.copy(photos / "class5" / "0.png", tmp_path / "photos" / "class4" / "3.png")  # other pixels
    os.rename(tmp_path / "photos" / "class9", tmp_path / "photos" / "class1b")
    assert "46 images (7 embedded, 11 removed, 39 kept)" in made(trained, "photos", "gallery", tmp_path)
    made(trained, "photos", "anew", tmp_path)
    same(tmp_path / "gallery", tmp_path / "anew")
    assert len(before.vectors) == 50 and before.thumbnail(49)[:4] == b"RIFF"  # what is open stays
    assert len([*(tmp_path / "gallery").glob("data-*")]) == 1


def test_a_second_folder_is_added_and_labels_of_a_list_may_change(trained, photos, tmp_path):
    made(trained, photos / "class0", "gallery", tmp_path)
    lines = ["path,label", *(f"{path},{path.parent.name}" for path in sorted(photos.rglob("*.png"))[5:15])]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    assert "15 images (10 embedded" in made(trained, "list.csv", "gallery", tmp_path)
    (tmp_path / "list.csv").write_text("\n".join([*lines[:-1], lines[-1].replace(",class2", ",other")]))
    said = made(trained, "list.csv", "gallery", tmp_path)
    assert "15 images (0 embedded, 0 removed, 15 kept, 1 of them with another label)" in said
    gallery = load_gallery(tmp_path / "gallery")
    assert gallery.classes == ["class0", "class1", "class2", "other"]
    assert [*map(Path, gallery.paths)] == sorted(photos.rglob("*.png"))[:15]
    remove = ("index", trained, photos / "class0", "--out", "gallery", "--remove")
    assert "10 images (0 embedded, 5 removed, 10 kept)" in isosphere(*remove, folder=tmp_path).stdout
    assert load_gallery(tmp_path / "gallery").paths == gallery.paths[5:]
    assert has(refusal(*remove[:2], tmp_path, *remove[3:], folder=tmp_path), UnknownName)
    made(trained, photos / "class0", "gallery", tmp_path)
    assert load_gallery(tmp_path / "gallery").paths == gallery.paths


@pytest.mark.parametrize("options", [(), ("--dim", 8), ("--dim", 8, "--whiten"), ("--quantize", "int8"),
                                     ("--dim", 8, "--quantize", "binary")], ids=str)  # fmt: skip
def test_smaller_vectors_are_kept_so_by_later_calls(options, trained, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos", ignore=shutil.ignore_patterns("class9"))
    isosphere("index", trained, "photos", "--out", "gallery", *options, folder=tmp_path)
    before = load_gallery(tmp_path / "gallery")
    shutil.copytree(photos / "class9", tmp_path / "photos" / "class9")
    isosphere("index", trained, "photos", "--out", "gallery", folder=tmp_path)
    gallery = load_gallery(tmp_path / "gallery", "cpu")
    dim = 8 if "--dim" in options else 16
    stored = options[-1] if "--quantize" in options else "float16"
    assert (gallery.manifest.dim, gallery.manifest.width, gallery.manifest.stored) == (dim, 16, stored)
    assert gallery.kept.codes.nbytes == 50 * {"float16": 2 * dim, "int8": dim, "binary": dim // 8}[stored]
    assert torch.equal(before.vectors[:], gallery.vectors[:][:45])
    files = sorted((tmp_path / "photos").rglob("*.png"))
    unit = directions(load_run(trained, "cpu").embed(files))
    if gallery.projection is not None:
        unit = directions((unit - gallery.projection.mean) @ gallery.projection.matrix)
    torch.testing.assert_close(gallery.embed(files), unit, rtol=1e-3, atol=1e-3)
    close = {"float16": 0.99, "int8": 0.99, "binary": 0.5}[stored]
    assert float((gallery.vectors[:].float() * unit).sum(1).mean()) > close
    for option in (("--dim", 4), ("--quantize", "int8" if stored != "int8" else "binary")):
        words = ("index", trained, "photos", "--out", "gallery", *option)
        assert has(refusal(*words, folder=tmp_path), Incompatible)


def test_what_is_no_gallery_is_refused(trained, photos, tmp_path):
    words = ("index", trained, photos / "class0", "--out", "gallery")
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "mine.txt").write_text("mine")
    assert has(refusal(*words, folder=tmp_path), FolderExists)
    with raised(NotAGallery, file=MANIFEST):
        load_gallery(tmp_path / "gallery")
    (tmp_path / "gallery" / "mine.txt").unlink()
    isosphere(*words, folder=tmp_path)
    held = json.loads((tmp_path / "gallery" / MANIFEST).read_text())

    def written(values) -> None:
        (tmp_path / "gallery" / MANIFEST).write_text(values if isinstance(values, str) else json.dumps(values))

    for values, kind in (
        ("{", DamagedFile), ("[]", DamagedFile), ({}, DamagedFile), (held | {"data": "../photos"}, DamagedFile),
        (held | {"model": {"run": 3}}, DamagedFile), (held | {"stored": "int4"}, DamagedFile),
        (held | {"version": 99}, OtherVersion), (held | {"normalized": False}, DamagedFile),
    ):  # fmt: skip
        written(values)
        with pytest.raises(kind):
            load_gallery(tmp_path / "gallery")
    written(held)
    folder = tmp_path / "gallery" / held["data"]
    for name in ("vectors.npy", "names.json", "columns.npz", "thumbnails.bin"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DamagedFile):
            load_gallery(tmp_path / "gallery")
        (folder / name).write_bytes(whole)
    assert len(load_gallery(tmp_path / "gallery")) == 5


def test_another_model_or_preprocessing_is_refused(trained, photos, tmp_path):
    words = ("index", trained, photos / "class0", "--out", "gallery")
    isosphere(*words, folder=tmp_path)
    isosphere("train", photos, "--out", "other", "--seed", "4", *PHOTOS.split(), folder=tmp_path)
    again = ("index", "other", photos / "class0", "--out", "gallery")
    assert has(refusal(*again, folder=tmp_path), OtherModel)
    opened = load_gallery(tmp_path / "gallery", "cpu")
    with raised(OtherModel):
        opened.use(tmp_path / "other")
    shutil.copytree(trained, tmp_path / "moved")
    opened.use(tmp_path / "moved")
    assert opened.search(photos / "class0" / "1.png", 1).scores[0, 0] > 0.99
    held = json.loads((tmp_path / "gallery" / MANIFEST).read_text())
    held["model"]["preprocessing"]["shorter"] = 30
    (tmp_path / "gallery" / MANIFEST).write_text(json.dumps(held))
    assert has(refusal(*words, folder=tmp_path), OtherModel)
