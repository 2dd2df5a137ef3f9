"""usearch: what it finds against exact search, added and removed, mapped, in half precision and int8."""

import shutil

import numpy as np
import pytest
import torch

from blobs import blobs, made
from commands import isosphere, refusal
from isosphere import gallery, load_gallery
from isosphere.errors import BadArgument, DamagedFile
from isosphere.gallery.engines import add_engine, use_engine
from isosphere.gallery.engines.usearch_index import Usearch


@pytest.mark.parametrize("name", ["usearch", "usearch-int8"])
def test_it_finds_what_exact_search_finds_after_each_change(name, tmp_path):
    rows, labels = blobs(30, 20, 0.2, dim=32)
    made(tmp_path / "g", rows[:500], labels[:500])
    measured = add_engine(tmp_path / "g", name, {})
    assert measured.k == 10 and measured.images == 500 and measured.recall > 0.97
    gallery.add(tmp_path / "g", rows[500:], [f"{row}.jpg" for row in range(500, 600)], labels[500:])
    left = gallery.remove(tmp_path / "g", [f"{row}.jpg" for row in range(0, 100, 2)])
    fast = load_gallery(tmp_path / "g", "cpu", engine=name)
    assert isinstance(fast.engine, Usearch) and fast.manifest == left.manifest and len(fast) == 550
    found, exact = (its.search(rows[100:400], 10) for its in (fast, left))
    shared = [len({*one} & {*other}) for one, other in zip(found.indices.tolist(), exact.indices.tolist(), strict=True)]
    assert np.mean(shared) / 10 > 0.97
    same = found.indices == exact.indices
    np.testing.assert_array_equal(found.scores[same], exact.scores[same])  # scored by the gallery itself
    index = fast.engine._read(view=False)
    assert sorted(np.asarray(index.keys).tolist()) == sorted(fast.ids.tolist())
    assert str(index.dtype).endswith("I8" if name.endswith("int8") else "F16")


def test_a_filter_is_searched_exactly_and_all_can_be_asked_for(tmp_path):
    rows, labels = blobs(10, 6, 0.2)
    made(tmp_path / "g", rows, labels)
    add_engine(tmp_path / "g", "usearch", {})
    fast, exact = load_gallery(tmp_path / "g", "cpu", engine="usearch"), load_gallery(tmp_path / "g", "cpu")
    for k, where in ((4, ["class2", "class5"]), (99, None), (3, np.arange(60) > 40)):
        found, wanted = fast.search(rows[:9], k, where), exact.search(rows[:9], k, where)
        np.testing.assert_array_equal(found.indices, wanted.indices)
        assert found.paths == wanted.paths


def test_a_late_or_damaged_index_is_refused(tmp_path):
    rows, labels = blobs(5, 4, 0.1)
    made(tmp_path / "g", rows, labels)
    with pytest.raises(BadArgument):
        load_gallery(tmp_path / "g", engine="usearch")
    with pytest.raises(BadArgument):
        load_gallery(tmp_path / "g", engine="faiss")
    add_engine(tmp_path / "g", "usearch", {})
    opened = load_gallery(tmp_path / "g", "cpu")
    file = tmp_path / "g" / "usearch.index"
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    use_engine(opened, "usearch")
    with pytest.raises(DamagedFile):
        opened.search(rows[:1])
    file.unlink()
    with pytest.raises(DamagedFile):
        opened.search(rows[:1])
    file.write_bytes(whole)
    assert opened.search(rows[:1], 3).indices.shape == (1, 3)
    opened.manifest.engines["usearch"]["data"] = "data-0"
    with pytest.raises(BadArgument):
        use_engine(opened, "usearch")


def test_the_command_makes_it_keeps_it_up_to_date_and_searches_by_it(trained, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos", ignore=shutil.ignore_patterns("class9"))
    words = ("index", trained, "photos", "--out", "gallery")
    said = isosphere(*words, "--engine", "usearch", folder=tmp_path).stdout
    assert "usearch: recall@10 " in said and "over 45 of the images" in said
    shutil.copytree(photos / "class9", tmp_path / "photos" / "class9")
    assert "over 50 of the images" in isosphere(*words, folder=tmp_path).stdout
    assert "recall" not in isosphere(*words, folder=tmp_path).stdout
    search = ("search", "gallery", "photos/class9/1.png", "--k", 50)
    found = isosphere(*search, "--engine", "usearch", folder=tmp_path)
    assert found.stdout == isosphere(*search, folder=tmp_path).stdout
    for options in (("--engine", "annoy"), ("--engine", "usearch", "--url", "http://x"), ("--url", "http://x")):
        assert isinstance(refusal(*words, *options, folder=tmp_path), BadArgument)


def test_a_projected_gallery_keeps_its_projection_in_the_engine(tmp_path):
    rows, labels = blobs(20, 10, 0.2, dim=32)
    kept = gallery.create(tmp_path / "g", rows, [f"{row}" for row in range(200)], labels, dim=8, quantize="int8")
    measured = add_engine(tmp_path / "g", "usearch", {})
    fast = load_gallery(tmp_path / "g", "cpu", "usearch")
    assert measured.recall > 0.95 and fast.search(rows[:3], 2).scores[:, 0].min() > 0.99
    assert torch.equal(kept.vectors[:], load_gallery(tmp_path / "g").vectors[:])
