"""Galleries under abuse: killed at any point, images that vanish, bombs and files that are no images, two at once."""

import multiprocessing
import os
import shutil
import signal
import struct
import threading
import warnings
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isosphere import load_gallery
from isosphere.errors import Held, NotAGallery, NotFound, UnreadableImages, UnreadableImagesWarning
from isosphere.gallery import commit, index, journal, reading, rows, update
from isosphere.inference import load
from raised import raised, warned


@pytest.fixture(scope="module")
def model(trained):
    return load(trained, "cpu")


def same(one: Path, other: Path) -> None:
    left, right = load_gallery(one, "cpu"), load_gallery(other, "cpu")
    assert left.labels == right.labels and [*map(os.path.basename, left.paths)] == [*map(os.path.basename, right.paths)]
    np.testing.assert_allclose(left.vectors[:], right.vectors[:], atol=2e-3)
    assert [left.thumbnail(row) for row in range(len(left))] == [right.thumbnail(row) for row in range(len(right))]


def killed(monkeypatch, module, name: str, call: int, before: bool, work) -> None:
    """Do the work in a process that kills itself at a call of a function, before or after that has run."""
    real, calls = getattr(module, name), []

    def dies(*values, **options):
        calls.append(name)
        found = None if before and len(calls) == call else real(*values, **options)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in a process with threads
        patch.setattr(module, name, dies)
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join(120)
    assert process.exitcode == -signal.SIGKILL


POINTS = {
    "while reading": (reading, "seen", 30, True),
    "before a part is whole": (journal.files, "replacing", 2, True),
    "after a part": (journal.Journal, "write", 2, False),
    "before the folder": (commit, "write_folder", 1, True),
    "within the folder": (rows, "scales", 1, True),
    "before the manifest": (commit, "write_manifest", 1, True),
    "after the manifest": (commit, "write_manifest", 1, False),
    "before the end": (journal.Journal, "end", 1, True),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_call_loses_nothing_and_the_next_one_goes_on(point, model, trained, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "PART", 16)
    monkeypatch.setattr(update, "batches", partial(reading.batches, size=8))
    whole, out, place = tmp_path / "whole", tmp_path / "g", tmp_path / "photos"
    shutil.copytree(photos, place, ignore=shutil.ignore_patterns("class[789]"))
    index(model, trained, place, whole)
    killed(monkeypatch, *POINTS[point], lambda: index(model, trained, place, out))
    done = point in ("after the manifest", "before the end")
    if done:
        same(whole, out)
    else:
        with raised(NotAGallery):
            load_gallery(out)
    read: list[str] = []
    real = reading.seen
    monkeypatch.setattr(reading, "seen", lambda path, *more: read.append(path) or real(path, *more))
    found = index(model, trained, place, out)
    assert (found.added, found.kept) == ((0, 35) if done else (35, 0))
    late = point not in ("while reading", "before a part is whole", "after a part")
    assert len(read) < 35 and (not read) == late
    same(whole, out)
    # And when it is brought up to date: what was there stays, until all is there.
    shutil.copytree(photos / "class8", place / "class8")
    index(model, trained, place, whole)
    if point in ("before the folder", "within the folder", "before the manifest"):
        killed(monkeypatch, *POINTS[point], lambda: index(model, trained, place, out))
        assert len(load_gallery(out, "cpu")) == 35
    index(model, trained, place, out)
    same(whole, out)
    assert sorted(path.name.partition("-")[0] for path in out.iterdir()) == ["data", "manifest.json"]


def bomb(path: Path, side: int) -> None:
    """A PNG of a few bytes that says it has side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_what_is_no_image_is_named_and_left_out_and_tried_again(model, trained, photos, tmp_path):
    place = tmp_path / "photos"
    shutil.copytree(photos / "class1", place)
    good = (photos / "class1" / "0.png").read_bytes()
    bomb(place / "bomb.png", 60_000)
    for name, data in (("text.jpg", b"no image"), ("empty.png", b""), ("cut.png", good[: len(good) // 2])):
        (place / name).write_bytes(data)
    (place / "script.gif").write_text("<script>window.hacked = 1</script>")
    os.mkfifo(place / "pipe.png")  # opening it would wait for ever
    (place / "gone.png").symlink_to("nowhere.png")
    bad = {"bomb.png", "text.jpg", "empty.png", "cut.png", "script.gif"}
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = index(model, trained, place, tmp_path / "g")
        assert {os.path.basename(str(one.path)) for one in found.unreadable} - {"gone.png"} == bad
        assert any(isinstance(its.message, UnreadableImagesWarning) for its in caught)
        assert len(load_gallery(tmp_path / "g", "cpu")) == 5
    (place / "text.jpg").write_bytes(good)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert index(model, trained, place, tmp_path / "g").added == 1


def test_a_folder_without_any_image_that_can_be_read_makes_no_gallery(model, trained, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"no image")
    with raised(UnreadableImages):
        index(model, trained, tmp_path / "photos", tmp_path / "g")
    with raised(NotAGallery):
        load_gallery(tmp_path / "g")


def test_images_that_vanish_on_the_way_are_left_out(model, trained, photos, tmp_path, monkeypatch):
    place = tmp_path / "photos"
    shutil.copytree(photos, place)
    real = reading.seen

    def vanishing(path, *more):
        if path.endswith("3.png"):
            os.unlink(path)
        return real(path, *more)

    monkeypatch.setattr(reading, "seen", vanishing)
    with warned({UnreadableImagesWarning: 10}):
        assert index(model, trained, place, tmp_path / "g").added == 40
    monkeypatch.setattr(reading, "seen", real)
    kept = load_gallery(tmp_path / "g", "cpu")
    shutil.rmtree(place)  # the gallery is still searched, and has its small pictures
    found = kept.search(photos / "class2" / "1.png", 3)
    assert found.paths[0] and kept.thumbnail(int(found.indices[0, 0]))[:4] == b"RIFF"
    with raised(NotFound):
        index(model, trained, place, tmp_path / "g")
    same(tmp_path / "g", tmp_path / "g")
    assert len(load_gallery(tmp_path / "g", "cpu")) == 40


def test_of_two_calls_one_is_refused(model, trained, photos, tmp_path, monkeypatch):
    inside, go_on = threading.Event(), threading.Event()
    real = update._embed_new

    def waits(*values):
        inside.set()
        go_on.wait(60)
        return real(*values)

    monkeypatch.setattr(update, "_embed_new", waits)
    first = threading.Thread(target=lambda: index(model, trained, photos / "class1", tmp_path / "g"))
    first.start()
    assert inside.wait(60)
    with raised(Held, path=str(tmp_path / "g")):
        index(model, trained, photos / "class2", tmp_path / "g")
    go_on.set()
    first.join()
    assert load_gallery(tmp_path / "g", "cpu").classes == ["class1"]


def test_a_gallery_is_read_whole_while_it_changes(model, trained, photos, tmp_path):
    place, ends, wrong = tmp_path / "photos", threading.Event(), []
    shutil.copytree(photos, place, ignore=shutil.ignore_patterns("class[5-9]"))
    index(model, trained, place, tmp_path / "g")

    def read() -> None:
        while not ends.is_set():
            try:
                held = load_gallery(tmp_path / "g", "cpu")
                assert len(held.labels) == len(held.vectors) == len(held) and len(held) in (20, 25)
                assert held.search(held.vectors[:2], 3).indices.shape == (2, 3) and held.thumbnail(len(held) - 1)
            except Exception as error:  # told at the end
                wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        shutil.move(place / "class4", tmp_path / "class4")
        index(model, trained, place, tmp_path / "g")
        shutil.move(tmp_path / "class4", place / "class4")
        index(model, trained, place, tmp_path / "g")
    ends.set()
    reader.join()
    assert wrong == []


def test_names_of_files_may_be_anything(model, trained, photos, tmp_path):
    place = tmp_path / "photos"
    place.mkdir()
    names = ["<img src=x onerror=alert(1)>.png", "new\nline.png", "..hidden.png", "a b&c'\".png"]
    names.append(os.fsdecode(b"\xff.png"))
    for number, name in enumerate(names):
        Image.new("RGB", (20, 20), (40 * number, 9, 200)).save(place / name)
    index(model, trained, place, tmp_path / "g")
    held = load_gallery(tmp_path / "g", "cpu")
    shown = {name for name in names if name[0] != "."}  # hidden files are no images of a folder
    assert {os.path.basename(path) for path in held.paths} == shown
    assert all(os.path.exists(path) for path in held.paths)
