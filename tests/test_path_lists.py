"""Lists of paths keep their rows whatever names hold, and pages show no picture from outside of a run's data."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from isosphere import runs
from isosphere.runs.places import is_inside
from written import write_run

NAMES = ["a.png", "a\nb.png", "\n", "tab\there", "cr\r", "line\u2028sep", "nel\x85", '"quoted"', "", " ", "back\\slash",
         "caf\udce9.png", '"', "[1]", '"\udce9\n']  # fmt: skip


def test_names_come_back_and_plain_ones_are_plain(tmp_path):
    rows = [[name, str(number)] for number, name in enumerate(NAMES)]
    runs.write_paths(tmp_path / "paths.txt", rows)
    assert runs.read_paths(tmp_path / "paths.txt") == rows
    text = (tmp_path / "paths.txt").read_bytes().decode(errors="surrogateescape")
    assert len(text.splitlines()) == len(rows) and text.startswith("a.png\t0\n") and "caf\udce9.png\t" in text


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.text(max_size=9), min_size=1, max_size=3), min_size=1, max_size=5))
def test_any_names_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    runs.write_paths(path, rows)
    assert runs.read_paths(path) == rows


def test_a_list_of_before_is_read(tmp_path):
    (tmp_path / "paths.txt").write_bytes(b'a/0.png\r\nb/"1".png\n"odd.png\n"7"\n')
    assert runs.read_paths(tmp_path / "paths.txt") == [["a/0.png"], ['b/"1".png'], ['"odd.png'], ["7"]]


# ---------------------------------------------------------------- pictures of a page


@pytest.fixture
def stranger(tmp_path) -> Path:
    """A run folder next to its data, as it is unpacked from an archive; a secret lies above both."""
    run = write_run(tmp_path / "unpacked" / "run", 0.5, 0)
    (run / "test_thumbnails.npz").unlink()
    (run / "run.json").write_text(json.dumps({"seen_from": ".."}))
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["data"] = {"kind": "Folder", "root": "photos"}
    (run / "recipe.json").write_text(json.dumps(recipe))
    (tmp_path / "unpacked" / "photos").mkdir()
    for place in ("unpacked/photos/own.png", "secret.png"):
        Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / place)
    (tmp_path / "unpacked" / "photos" / "link.png").symlink_to(tmp_path / "secret.png")
    return run


@pytest.mark.parametrize(("path", "shown"), [
    ("own.png", True), ("photos/own.png", True), ("../secret.png", False), ("../../secret.png", False),
    ("SECRET", False), ("link.png", False), ("photos/../../secret.png", False),
])  # fmt: skip
def test_a_strangers_run_shows_no_picture_from_outside_of_its_data(path, shown, stranger):
    path = path.replace("SECRET", str(stranger.parents[1] / "secret.png"))
    held = runs.read(stranger)
    (stranger / runs.PATHS).write_text(f"{path}\n" * len(held.embedded.labels))
    images = runs.read_test_images(held)
    if shown:
        assert images.image(0, 8).getpixel((0, 0)) == (200, 0, 0)
    else:
        with pytest.raises(OSError):
            images.image(0, 8)


@pytest.mark.parametrize(("data", "path", "inside"), [
    ({"root": "photos"}, "unpacked/photos/link.png", False), ({"root": "/"}, "secret.png", False),
    ({}, "secret.png", False), ({}, "unpacked/photos/own.png", True), ({"root": "ALL"}, "secret.png", True),
    ({"root": "photos", "pairs_root": "ALL"}, "secret.png", True),
    ({"root": 7, "distractors": [7]}, "secret.png", False),
    ({"root": "photos", "distractors": ["ALL:0.5"]}, "secret.png", True),
])  # fmt: skip
def test_inside_of_the_data(data, path, inside, stranger, monkeypatch):
    """A root that the recipe names is its data, wherever it is; the page shows the name."""
    monkeypatch.chdir(stranger)
    above = stranger.parents[1]
    named = json.loads(json.dumps(data).replace("ALL", str(above)))
    assert is_inside(above / path, named, stranger) == inside


def test_links_in_ones_own_data_may_lead_anywhere(stranger, tmp_path):
    farm = tmp_path / "farm"
    farm.mkdir()
    (farm / "link.png").symlink_to(tmp_path / "secret.png")
    assert is_inside(farm / "link.png", {"root": str(farm)}, stranger)
