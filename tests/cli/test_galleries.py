"""Commands about a gallery: tables, JSON and pages, and what they refuse."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from browser import assert_clean
from commands import has, isosphere, refusal
from isosphere import load_gallery
from isosphere.errors import BadArgument, BadUsage, NotAGallery, NotFound, UnknownName, UnreadableImage
from written import NASTY

NASTY_NAME = NASTY.replace("/", "∕")  # a file's name has no slash


@pytest.fixture(scope="module")
def home(trained, photos, tmp_path_factory):
    """A folder with photographs, of which one is a copy and one has a wrong label, and their gallery."""
    folder = tmp_path_factory.mktemp("galleries")
    shutil.copytree(photos, folder / "photos")
    shutil.copytree(photos / "class8", folder / "photos" / NASTY_NAME)
    shutil.copy(photos / "class3" / "2.png", folder / "photos" / "class7" / f"{NASTY_NAME}.png")
    isosphere("index", trained, "photos", "--out", "gallery", folder=folder)
    return folder


def answer(*words, folder):
    return json.loads(isosphere(*words, "--json", folder=folder).stdout)


def test_search_prints_what_python_finds(home, monkeypatch):
    monkeypatch.chdir(home)
    found = load_gallery("gallery", "cpu").search(["photos/class2/3.png"], 4, "class2")
    (its,) = answer("search", "gallery", "photos/class2/3.png", "--k", 4, "--label", "class2", folder=home)
    assert [one["path"] for one in its["found"]] == found.paths[0] and its["image"] == "photos/class2/3.png"
    np.testing.assert_allclose([one["score"] for one in its["found"]], found.scores[0], atol=1e-4)
    said = isosphere("search", "gallery", "photos/class2/3.png", "--k", 4, "--label", "class2", folder=home).stdout
    assert [re.search(r"photos/class2/\d.png$", line.strip())[0] for line in said.splitlines()[-4:]] == found.paths[0]
    every = answer("search", "gallery", "photos/class1", "photos/class0/1.png", "--k", 1, folder=home)
    assert len(every) == 6 and every[5]["found"][0]["score"] > 0.99


def test_duplicates_finds_the_copies(home):
    found = answer("duplicates", "gallery", "--above", 0.99999, folder=home)
    groups = {frozenset(one["path"] for one in its) for its in found["groups"]}
    copy = {"photos/class3/2.png", f"photos/class7/{NASTY_NAME}.png"}
    assert any(copy <= group for group in groups)
    twins = [{f"photos/{name}/{number}.png" for name in ("class8", NASTY_NAME)} for number in range(5)]
    assert all(any(pair <= group for group in groups) for pair in twins)
    suggested = isosphere("duplicates", "gallery", folder=home)
    assert re.search(r"threshold 0\.\d{4}", suggested.stderr) and "class7" in suggested.stdout


def test_cluster_writes_a_list(home):
    said = isosphere("cluster", "gallery", "--clusters", 4, "--out", "c.csv", folder=home).stdout
    rows = list(csv.DictReader((home / "c.csv").open()))
    assert len(rows) == 56 and {row["cluster"] for row in rows} == set("0123") and "NMI" in said
    assert answer("cluster", "gallery", "--density", folder=home)["how"].startswith("density")


def test_classify_votes_and_knows_what_is_unknown(home, tmp_path):
    (its,) = answer("classify", "gallery", "photos/class2/3.png", "--k", 3, folder=home)
    assert its.keys() == {"image", "label", "share", "score", "nearest"} and its["score"] > 0.99
    Image.new("RGB", (30, 30), "white").save(tmp_path / "white.png")
    (its,) = answer("classify", "gallery", tmp_path / "white.png", "--above", 1.0, folder=home)
    assert its["label"] == "unknown"
    assert "each left out" in isosphere("classify", "gallery", "photos/class2", folder=home).stdout


def test_label_issues_and_calibrate_have_tables(home):
    assert all(its["label"] != its["instead"] for its in answer("label-issues", "gallery", "--k", 4, folder=home))
    assert "labels are doubtful" in isosphere("label-issues", "gallery", "--k", 4, folder=home).stdout
    points = answer("calibrate", "gallery", folder=home)
    assert points[0]["wanted"] is None and 0 <= points[0]["accepts"] <= 1
    assert "equal errors" in isosphere("calibrate", "gallery", folder=home).stdout


PAGES = {
    "search": ("photos/class2/3.png", "photos/class7"),
    "duplicates": ("--above", 0.99999),
    "label-issues": ("--k", 4),
    "cluster": ("--clusters", 4),
    "classify": ("photos/class2",),
    "calibrate": (),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_what_names_say_is_never_code(name, home, browser):
    done = isosphere(name, "gallery", *PAGES[name], "--page", f"{name}.html", folder=home)
    assert done.stdout.strip() == f"{name}.html"
    page = (home / f"{name}.html").read_text(encoding="utf-8")
    assert NASTY_NAME not in page
    assert_clean(browser, home / f"{name}.html")
    assert browser.run("window.hacked") is None and browser.run("document.scripts.length") == 2
    if name != "calibrate":
        assert browser.count(".shelf img") > 0 and browser.count(".shelf img:not([alt])") == 0
        loaded = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
        assert browser.run(loaded)
        assert browser.run("document.body.innerHTML.includes('hacked')") == (name != "classify")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("search photos photos/class2/3.png", NotAGallery),
        ("search gallery photos/class2/3.png --label class77", UnknownName),
        ("search gallery photos/class2/3.png --k 0", BadArgument),
        ("search gallery gone.png", NotFound),
        ("search gallery list.txt", UnreadableImage),
        ("search gallery photos/class2/3.png --page gone/page.html", FileNotFoundError),
        ("duplicates gallery --above 2", BadArgument),
        ("cluster gallery --clusters 0", BadArgument),
        ("cluster gallery --clusters 4 --density", BadUsage),
        ("cluster gallery --above 0.5", BadUsage),
        ("classify gallery photos/class2/3.png --above nan", BadArgument),
        ("search gallery photos/class2/3.png --run nowhere", FileNotFoundError),
    ],
)  # fmt: skip
def test_bad_input(words, kind, home):
    (home / "list.txt").write_text("no picture")
    assert isinstance(refusal(*words.split(), folder=home), kind)


def test_a_gallery_without_labels_is_searched_and_grouped(trained, photos, tmp_path):
    (tmp_path / "flat").mkdir()
    for number, path in enumerate(sorted(photos.rglob("*.png"))[:20]):
        shutil.copy(path, tmp_path / "flat" / f"{number}.png")
    isosphere("index", trained, "flat", "--out", "gallery", folder=tmp_path)
    assert not load_gallery(tmp_path / "gallery").labeled
    (its,) = answer("search", "gallery", "flat/3.png", folder=tmp_path)
    assert its["found"][0]["score"] > 0.99
    isosphere("cluster", "gallery", "--clusters", 3, "--page", "page.html", folder=tmp_path)
    for words in ("cluster gallery", "classify gallery flat/3.png", "label-issues gallery"):
        assert has(refusal(*words.split(), folder=tmp_path), BadArgument)
    refusal("calibrate", "gallery", folder=tmp_path)
