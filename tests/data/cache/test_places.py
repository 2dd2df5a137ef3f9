"""Where caches are, how large they may be, and which of them go."""

import os
import shutil
from pathlib import Path

import pytest

from caches import opened, photographs
from isosphere.data import CachedSet, ImageSet
from isosphere.data.cache import places
from isosphere.errors import BadArgument, NoSpace
from raised import raised


def test_the_standard_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOSPHERE_CACHE", "~/here")
    assert places.standard_place() == Path.home() / "here"
    monkeypatch.setenv("ISOSPHERE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    assert places.standard_place() == Path("/there/isosphere")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert places.standard_place() == Path.home() / ".cache" / "isosphere"


def test_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISOSPHERE_CACHE_GB", raising=False)
    assert places.limit() == 100_000_000_000
    monkeypatch.setenv("ISOSPHERE_CACHE_GB", "0.5")
    assert places.limit() == 500_000_000
    for wrong in ("much", "-1", "inf", "nan"):
        monkeypatch.setenv("ISOSPHERE_CACHE_GB", wrong)
        with raised(BadArgument, name="ISOSPHERE_CACHE_GB", value=wrong):
            places.limit()


def three(tmp_path: Path) -> list[CachedSet]:
    """Caches of three folders, the first of which was used last."""
    made = []
    for number, name in enumerate("abc"):
        folder = photographs(tmp_path / name, count=3)
        made.append(opened(ImageSet.folder(folder), tmp_path / "cache"))
        os.utime(made[-1].origin.folder / "manifest.json", (1000 - number, 1000 - number))
    return made


def names(tmp_path: Path) -> list[str]:
    return [Path(cache.source).name for cache in places.caches(tmp_path / "cache")]


def test_caches_are_listed_with_those_used_last_first(tmp_path: Path) -> None:
    (tmp_path / "cache" / "other" / "deep").mkdir(parents=True)
    (tmp_path / "cache" / "other" / "manifest.json").write_text('{"count": 1}')  # none of ours
    kept = three(tmp_path)
    assert names(tmp_path) == ["a", "b", "c"]
    first, *_ = places.caches(tmp_path / "cache")
    about = str(tmp_path / "a"), "Stored(shorter=32)", 3, 1000
    assert (first.source, first.stored, first.images, first.used) == about
    held = sum(path.stat().st_size for path in first.folder.iterdir() if path.is_file())
    assert first.bytes == held and first.in_use
    del kept
    assert not any(cache.in_use for cache in places.caches(tmp_path / "cache"))
    opened(ImageSet.folder(tmp_path / "c"), tmp_path / "cache")
    assert names(tmp_path) == ["c", "a", "b"]


def test_the_oldest_that_nobody_uses_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = three(tmp_path)
    sizes = {Path(cache.source).name: cache.bytes for cache in places.caches(tmp_path / "cache")}
    monkeypatch.setenv("ISOSPHERE_CACHE_GB", str((sum(sizes.values()) + 10) / 1e9))
    places.make_room(first.origin.folder, 5)
    assert names(tmp_path) == ["a", "b", "c"]
    del second
    places.make_room(first.origin.folder, 100)
    assert names(tmp_path) == ["a", "c"], "the oldest is in use, so the next one goes"
    with raised(NoSpace, place=str(tmp_path / "cache"), needed=10**6):
        places.make_room(first.origin.folder, 10**6)
    assert names(tmp_path) == ["a", "c"]
    del third
    with raised(NoSpace, needed=10**6):
        places.make_room(first.origin.folder, 10**6)
    assert names(tmp_path) == ["a"]


def test_a_disk_that_is_full_loses_old_caches_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = three(tmp_path)
    del _

    def usage(path: Path) -> tuple:
        held = sum(cache.bytes for cache in places.caches(tmp_path / "cache"))
        return shutil._ntuple_diskusage(10**12, 0, places.RESERVE + 100_000 - held)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    room = 100_000 - sum(cache.bytes for cache in places.caches(tmp_path / "cache"))
    places.make_room(first.origin.folder, room + 1)
    assert names(tmp_path) == ["a", "b"]


def test_a_user_that_was_killed_uses_nothing(tmp_path: Path) -> None:
    first, *_ = three(tmp_path)
    folder = first.origin.folder
    del first
    (folder / "users" / "123-left").write_text("")
    assert not places.in_use(folder) and not list((folder / "users").iterdir())
    (cache,) = (cache for cache in places.caches(tmp_path / "cache") if cache.folder == folder)
    assert places.remove(cache) and not folder.exists() and not places.remove(cache)
