"""What docs/guides/search.md tells to type runs in its order, also in other databases."""

import shutil
import tempfile

import pytest

from commands import isosphere
from isosphere import load_gallery
from test_readme import ROOT, blocks, commands

PAGE = ROOT / "docs" / "guides" / "search.md"


@pytest.fixture(scope="module")
def home(trained, photos, tmp_path_factory):
    """A folder with the run, the images and the gallery of the page."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copytree(photos, folder / "my_photos")
    shutil.copytree(trained, folder / "runs" / "my_photos-seed0", ignore=shutil.ignore_patterns(".lock*"))
    shutil.copy(photos / "class3" / "1.png", folder / "photo.jpg")
    isosphere("index", "runs/my_photos-seed0", "my_photos", "--out", "gallery", folder=folder)
    return folder


def test_the_commands_run(home):
    found = commands(PAGE, prose=False)
    for words in found:
        isosphere(*words, folder=home)
    named = {"index", "search", "duplicates", "label-issues", "cluster", "classify", "calibrate", "sizes", "parquet"}
    assert {words[0] for words in found} == named
    for name in ("found.html", "copies.html", "issues.html", "clusters.csv", "same.html", "gallery.parquet"):
        assert (home / name).stat().st_size > 500


def python(home, monkeypatch, *wanted: str) -> dict:
    """The names after the blocks that have one of these words, in the page's folder."""
    monkeypatch.chdir(home)
    names: dict = {}
    for part in blocks(PAGE, "python"):
        if any(word in part for word in wanted):
            exec(part, names)
    return names


def test_the_python_runs(home, monkeypatch):
    names = python(home, monkeypatch, "load_gallery", "create(")
    assert names["found"].indices.shape == (1, 5) and set(names["found"].labels[0]) <= {"class3", "class4"}
    assert names["unit"].norm(dim=1).tolist() == pytest.approx([1] * 3, abs=1e-5) and len(names["clip"]) == 100


def exact(home, k=5, where=None) -> list[str]:
    return load_gallery(home / "gallery", "cpu").search([home / "photo.jpg"], k, where).paths[0]


@pytest.mark.extras
def test_postgresql_with_pgvector_takes_the_file(home, monkeypatch):
    import pgserver

    isosphere("parquet", "gallery", "--out", "gallery.parquet", folder=home)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the path of its socket must be short
        server = pgserver.get_server(folder)
        try:
            monkeypatch.setattr("builtins.address", server.get_uri(), raising=False)
            names = python(home, monkeypatch, "load_gallery", "psycopg")
            assert sorted(path for path, in names["nearest"]) == sorted(exact(home))
        finally:
            server.cleanup()


@pytest.mark.extras
def test_lancedb_takes_the_file(home, monkeypatch):
    isosphere("parquet", "gallery", "--out", "gallery.parquet", folder=home)
    names = python(home, monkeypatch, "load_gallery", "lancedb")
    assert sorted(row["path"] for row in names["nearest"]) == sorted(exact(home, where="class3"))
