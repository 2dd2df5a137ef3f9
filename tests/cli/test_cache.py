"""`isosphere cache` lists caches and removes them, but none that is in use."""

from pathlib import Path

import pytest

from caches import opened, photographs
from commands import has, isosphere, refusal
from isosphere.data import ImageSet
from isosphere.errors import Held, NotFound


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches of two folders of photographs, one of them in two sizes."""
    monkeypatch.setenv("ISOSPHERE_CACHE", str(tmp_path / "caches"))
    for name, sizes in (("cats", (32, 24)), ("dogs", (32,))):
        images = ImageSet.folder(photographs(tmp_path / name, count=3))
        for size in sizes:
            opened(images, tmp_path / "caches", size)
    return tmp_path / "caches"


def test_caches_are_listed_with_their_source_and_size(place: Path, tmp_path: Path) -> None:
    shown = isosphere("cache", folder=tmp_path).stdout
    folded = "".join(shown.split())
    assert shown.count("Stored(shorter=32)") == 2 and shown.count("Stored(shorter=24)") == 1
    assert "3caches" in folded and "100.00GB" in folded and str(place) in folded
    assert "0 caches" in isosphere("cache", "--place", tmp_path / "none", folder=tmp_path).stdout


def test_caches_are_removed_by_source_or_all_at_once(place: Path, tmp_path: Path) -> None:
    done = isosphere("cache", "--clear", "cats", folder=tmp_path)
    assert "removed 2 caches" in done.stderr and "1 caches" in done.stdout
    assert has(refusal("cache", "--clear", "cats", folder=tmp_path), NotFound, path="cats")
    assert "removed 1 caches" in isosphere("cache", "--clear", folder=tmp_path).stderr
    assert "removed 0 caches" in isosphere("cache", "--clear", folder=tmp_path).stderr and not list(place.iterdir())


def test_a_cache_in_use_stays(place: Path, tmp_path: Path) -> None:
    store = opened(ImageSet.folder(tmp_path / "dogs"), place, 32)
    assert "in use" in isosphere("cache", folder=tmp_path).stdout
    assert has(refusal("cache", "--clear", folder=tmp_path), Held, path=str(store.origin.folder))
    assert [path.name for path in place.iterdir()] == [store.origin.folder.name]
    assert store[0].shape[0] == 3
