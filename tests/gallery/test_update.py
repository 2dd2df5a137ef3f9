"""`isosphere index`: a gallery is what its images are, however many calls made it."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import isosphere
from isosphere import load_gallery, load_run
from isosphere.sphere import directions


def made(trained, images, out, folder) -> str:
    return isosphere("index", trained, images, "--out", out, folder=folder).stdout


def same(one: Path, other: Path) -> None:
    """Two galleries hold the same images; batches of another size may round another way."""
    left, right = load_gallery(one), load_gallery(other)
    assert [Path(path).name for path in left.paths] == [Path(path).name for path in right.paths]
    assert left.labels == right.labels and left.vectors.dtype == right.vectors.dtype == np.float16
    np.testing.assert_allclose(left.vectors, right.vectors, atol=2e-3)
    assert [left.thumbnail(row) for row in range(len(left))] == [right.thumbnail(row) for row in range(len(right))]


def test_a_gallery_has_what_the_run_embeds(trained, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    assert "50 images (50 embedded, 0 removed, 0 kept)" in made(trained, "photos", "gallery", tmp_path)
    gallery = load_gallery(tmp_path / "gallery", "cpu")
    files = sorted((tmp_path / "photos").rglob("*.png"))
    assert [Path(path).resolve() for path in gallery.paths] == files
    assert gallery.labels == [path.parent.name for path in files] and gallery.labeled
    wanted = directions(load_run(trained, "cpu").embed(files))
    np.testing.assert_allclose(gallery.vectors, wanted, atol=1e-3)
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
    assert load_gallery(tmp_path / "gallery").classes == ["class0", "class1", "class2", "other"]
