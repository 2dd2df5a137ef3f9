"""A cache gets what it lacks and no more: files that come, change and go, kills, damage, two processes, no space."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from caches import opened, photographs, stored_of
from isosphere import locks
from isosphere.data import CachedSet, ImageSet, workers
from isosphere.data.cache import cached, filling, opening, places
from isosphere.data.cache.store import RECORD, Store, manifest
from isosphere.data.fits import Stored
from isosphere.errors import (
    DiskFull,
    NoCache,
    NoSpace,
    NotCachedWarning,
    Option,
    UnreadableImages,
    UnreadableImagesWarning,
)
from raised import raised


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return photographs(tmp_path / "photos")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the files that are decoded from now on, without those that the size is estimated by."""
    seen, decode = [], filling.decode
    monkeypatch.setattr(filling, "decode", lambda data, name: (seen.append(Path(name).name), decode(data, name))[1])
    monkeypatch.setattr(filling, "_estimate", lambda chunks: 0)
    yield seen


def files_of(place: Path) -> Path:
    """The folder of the only cache."""
    (folder,) = (path for path in place.iterdir() if path.is_dir())
    return folder


def is_right(store: CachedSet, images: ImageSet) -> bool:
    return all(torch.equal(store[i], stored_of(images, i, 32)) for i in range(len(images)))


# ---------------------------------------------------------------- files that come, change and go


def test_only_what_has_changed_is_decoded_again(folder: Path, place: Path, decoded: list[str]) -> None:
    opened(ImageSet.folder(folder), place)
    assert sorted(decoded) == [f"{number}.png" for number in range(10)]
    decoded.clear()
    opened(ImageSet.folder(folder), place)
    assert decoded == []
    os.utime(folder / "class0" / "0.png", (1, 1))
    Image.new("RGB", (50, 60), (200, 100, 50)).save(folder / "class1" / "4.png")
    shutil.copy(folder / "class1" / "1.png", folder / "class2" / "new.png")
    (folder / "class2" / "5.png").unlink()
    images = ImageSet.folder(folder)
    assert is_right(opened(images, place), images) and sorted(decoded) == ["0.png", "4.png", "new.png"]
    decoded.clear()
    os.rename(folder / "class2" / "8.png", folder / "class2" / "9.png")
    images = ImageSet.folder(folder)
    assert is_right(opened(images, place), images) and decoded == ["9.png"]


def test_a_part_of_the_files_leaves_the_others_in_the_cache(folder: Path, place: Path, decoded: list[str]) -> None:
    images = ImageSet.folder(folder)
    part, whole = opened(images.of_classes([0]), place), opened(images, place)
    assert len(decoded) == 10 and len(part) == 4 and is_right(whole, images)
    opened(images.of_classes([2]), place)
    assert len(decoded) == 10


def test_each_size_and_source_has_a_cache(folder: Path, place: Path, decoded: list[str], tmp_path: Path) -> None:
    images = ImageSet.folder(folder)
    opened(images, place, 32)
    opened(images, place, 24)
    opened(ImageSet.folder(shutil.copytree(folder, tmp_path / "copy")), place, 32)
    assert len(decoded) == 30 and len(places.caches(place)) == 3
    (tmp_path / "link").symlink_to(folder)
    opened(ImageSet.folder(tmp_path / "link"), place, 32)
    assert len(decoded) == 30, "a folder is the same by any path"


def test_a_list_of_files_anywhere(folder: Path, place: Path, tmp_path: Path, decoded: list[str]) -> None:
    rows = "photos/class0/0.png,a", f"{folder}/class1/1.png,a"
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(rows))
    for _ in range(2):
        images = ImageSet.csv(tmp_path / "list.csv")
        store = cached(images, Stored(32), tmp_path / "list.csv", str(place))
        assert is_right(store, images) and len(decoded) == 2


def test_much_that_nobody_can_use_is_taken_out(folder: Path, place: Path, decoded: list[str]) -> None:
    images = ImageSet.folder(folder)
    opened(images, place)
    before = (files_of(place) / "pixels.bin").stat().st_size
    shutil.rmtree(folder / "class0")
    (folder / "class1" / "1.png").unlink()
    decoded.clear()
    rest = ImageSet.folder(folder)
    user = opened(rest, place)
    assert (files_of(place) / "pixels.bin").stat().st_size == before, "nothing is missing, so nothing is written"
    shutil.copy(folder / "class2" / "2.png", folder / "class2" / "new.png")
    more = ImageSet.folder(folder)
    assert is_right(opened(more, place), more) and decoded == ["new.png"]
    assert (files_of(place) / "pixels.bin").stat().st_size > before, "a cache that is in use only grows"
    del user
    shutil.copy(folder / "class2" / "2.png", folder / "class2" / "newer.png")
    last = ImageSet.folder(folder)
    assert is_right(opened(last, place), last) and decoded == ["new.png", "newer.png"]
    assert (files_of(place) / "pixels.bin").stat().st_size < before
    assert [path.name for path in place.iterdir()] == [files_of(place).name]


# ---------------------------------------------------------------- images that cannot be read


def broken(folder: Path) -> list[Path]:
    (folder / "class1" / "4.png").write_bytes(b"nothing")
    cut = folder / "class2" / "8.png"
    cut.write_bytes(cut.read_bytes()[:300])
    return [folder / "class1" / "4.png", cut]


def test_unreadable_files_are_all_named_and_the_others_kept(folder: Path, place: Path, decoded: list[str]) -> None:
    bad = list(map(str, broken(folder)))
    with raised(UnreadableImages, total=10, remedies=(Option("data.skip_unreadable", True),)) as caught:
        cached(ImageSet.folder(folder), Stored(32), folder, str(place))
    assert [failure.path for failure in caught.value.failures] == bad
    decoded.clear()
    with pytest.warns(UnreadableImagesWarning) as warned:
        store = cached(ImageSet.folder(folder), Stored(32), folder, str(place), skip_unreadable=True)
    assert warned[0].message.count == 2 and sorted(decoded) == ["4.png", "8.png"]
    assert store.note == "2 of 10 images are unreadable" and not set(store.paths) & set(bad)
    assert is_right(store, store.images)


def test_a_file_that_vanishes_before_it_is_decoded(folder: Path, place: Path) -> None:
    images = ImageSet.folder(folder)
    gone = Path(images.paths[3])
    gone.unlink()
    with raised(UnreadableImages, total=10) as caught:
        cached(images, Stored(32), folder, str(place))
    assert [failure.path for failure in caught.value.failures] == [str(gone)]


# ---------------------------------------------------------------- kills and damage


def cut_pixels(files: Path) -> None:
    os.truncate(files / "pixels.bin", (files / "pixels.bin").stat().st_size * 6 // 10)


def half_a_record(files: Path) -> None:
    os.truncate(files / "records.bin", 6 * RECORD.itemsize + 5)


def other_manifest(files: Path) -> None:
    (files / "manifest.json").write_text((files / "manifest.json").read_text().replace("shorter=32", "shorter=33"))


def flipped_record(files: Path) -> None:
    data = bytearray((files / "records.bin").read_bytes())
    data[3 * RECORD.itemsize + 9] ^= 1
    (files / "records.bin").write_bytes(data)


DAMAGE = {
    cut_pixels: range(3, 6), half_a_record: [4], flipped_record: [1], other_manifest: [10],
    lambda files: os.truncate(files / "names.bin", 30): range(5, 11),
    lambda files: (files / "records.bin").write_bytes(b"something else" * 100): [10],
    lambda files: (files / "manifest.json").unlink(): [10],
    lambda files: (files / "manifest.json").write_text('{"count": -1, "source": 3}'): [10],
    lambda files: (files / "pixels.bin").unlink(): [10],
    lambda files: [path.write_bytes(b"") for path in files.glob("*.*")]: [10],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_cache_is_repaired_from_what_is_whole(folder: Path, place: Path, decoded: list, damage) -> None:
    images = ImageSet.folder(folder)
    opened(images, place)
    decoded.clear()
    damage(files_of(place))
    assert is_right(opened(images, place), images) and len(decoded) in DAMAGE[damage]
    decoded.clear()
    assert is_right(opened(images, place), images) and not decoded


SCRIPT = """
import sys, time
from pathlib import Path
from isosphere.data import ImageSet
from isosphere.data.cache import filling, opening
from isosphere.data.fits import Stored
decode, filling.CHUNK = filling.decode, 1
filling.decode = lambda *given: (time.sleep(0.2), decode(*given))[1]
opening.opened(ImageSet.folder(sys.argv[1]), Stored(32), sys.argv[1], Path(sys.argv[2]), workers=0)
"""


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_while_caching(folder: Path, place: Path, decoded: list[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, folder, place], stderr=subprocess.DEVNULL)
    size = 3 * RECORD.itemsize
    wait_for(lambda: sum(path.stat().st_size for path in place.glob("*/records.bin")) >= size)
    process.send_signal(signal.SIGKILL)
    process.wait()
    images = ImageSet.folder(folder)
    assert is_right(opened(images, place), images)
    assert 0 < len(decoded) <= 7, "it goes on where the other was stopped"


def test_interrupted_while_caching(folder: Path, place: Path, decoded: list[str], monkeypatch) -> None:
    images, decode = ImageSet.folder(folder), filling.decode

    def interrupted(*given: object) -> torch.Tensor:
        if len(decoded) == 6:
            raise KeyboardInterrupt
        return decode(*given)

    monkeypatch.setattr(filling, "CHUNK", 2)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(filling, "decode", interrupted)
        opened(images, place)
    decoded.clear()
    assert is_right(opened(images, place), images) and len(decoded) == 4


def test_two_processes_decode_an_image_once(folder: Path, place: Path, decoded: list[str], monkeypatch, capsys) -> None:
    monkeypatch.setattr(opening, "MOMENT", 0.1)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, folder, place])
    wait_for(lambda: list(place.glob("*/records.bin")))
    images = ImageSet.folder(folder)
    assert is_right(opened(images, place), images) and decoded == []
    assert process.wait() == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and f"process {process.pid}" in said[0] and str(folder) in said[0]


def test_threads_of_one_process_wait_for_each_other(folder: Path, place: Path, decoded: list[str]) -> None:
    images = ImageSet.folder(folder)
    threads = [threading.Thread(target=opened, args=(images, place)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decoded) == 10


def test_threads_do_the_work_where_processes_are_not_forked(folder: Path, place: Path, monkeypatch) -> None:
    images = ImageSet.folder(folder)
    monkeypatch.setattr(filling, "CHUNK", 1)
    monkeypatch.setattr(workers, "get_start_method", lambda allow_none: "spawn")
    monkeypatch.setattr(workers, "DataLoader", lambda *given, **how: pytest.fail("processes would be spawned"))
    assert is_right(opened(images, place, workers=2), images)


# ---------------------------------------------------------------- no cache


def test_without_a_cache_files_are_taken(folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOSPHERE_CACHE", str(place))
    images = ImageSet.folder(folder)
    assert cached(images, Stored(32), folder, "none") is images and not place.exists()
    assert isinstance(cached(images, Stored(32), folder), CachedSet) and place.is_dir()


def no_folder(place: Path) -> None:
    place.parent.mkdir(exist_ok=True, parents=True)
    place.write_text("a file")


def no_writing(place: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    place.mkdir()
    place.chmod(0o500)


@pytest.mark.parametrize("spoiled", [no_folder, no_writing])
def test_a_place_where_nothing_can_be_written(folder: Path, place: Path, spoiled, monkeypatch) -> None:
    spoiled(place)
    images = ImageSet.folder(folder)
    monkeypatch.setenv("ISOSPHERE_CACHE", str(place))
    with pytest.warns(NotCachedWarning) as warned:
        assert cached(images, Stored(32), folder) is images
    assert len(warned) == 1 and str(place) in str(warned[0].message)
    with raised(NoCache, place=str(place), option=Option("data.cache", "none")):
        cached(images, Stored(32), folder, str(place))


def test_a_system_that_knows_no_locks_or_files(folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hold(*given: object, **how: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(place))

    monkeypatch.setattr(locks, "hold", hold)
    with raised(NoCache, place=str(place)):
        cached(ImageSet.folder(folder), Stored(32), folder, str(place))


def test_a_disk_that_is_too_small_is_known_before(folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = ImageSet.folder(folder)
    sizes = 3 * sum(int(np.prod(stored_of(images, i, 32).shape[1:])) for i in range(10))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, places.RESERVE + 5000))
    with raised(NoSpace, place=str(place), free=5000) as caught:
        cached(images, Stored(32), folder, str(place))
    assert sizes * 0.8 < caught.value.needed < sizes * 1.2 + 10 * 200
    assert (files_of(place) / "pixels.bin").stat().st_size == 0
    monkeypatch.setenv("ISOSPHERE_CACHE", str(place))
    with pytest.warns(NotCachedWarning):
        assert cached(images, Stored(32), folder) is images


FULL = """
import resource, sys
from pathlib import Path
from isosphere.data import ImageSet
from isosphere.data.cache import cached
from isosphere.data.fits import Stored
from isosphere.errors import NoSpace
images, part = ImageSet.folder(sys.argv[1]), ImageSet.folder(sys.argv[1]).subset(range(4))
whole = cached(part, Stored(32), sys.argv[1], sys.argv[2])
size = whole.file.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9000, size + 9000))
try:
    cached(images, Stored(32), sys.argv[1], sys.argv[2])
except NoSpace as error:
    assert error.needed > 9000 and whole.file.stat().st_size == size, (error, whole.file.stat().st_size, size)
    print("full")
"""


def test_a_disk_that_becomes_full_takes_nothing_that_was_there(folder: Path, place: Path, decoded: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, folder, place], capture_output=True, text=True)
    assert done.stdout.strip() == "full", done.stderr
    images = ImageSet.folder(folder)
    assert is_right(opened(images, place), images) and len(decoded) == 6
    assert manifest(files_of(place))["count"] == 10


def test_a_disk_that_is_full_when_a_cache_is_sealed_leaves_it_out(folder: Path, place: Path, monkeypatch) -> None:
    """Its pixels fit, its manifest does not."""

    def full(*_: object) -> None:
        raise DiskFull("manifest.json", 500, 20)

    monkeypatch.setattr(Store, "seal", full)
    images = ImageSet.folder(folder)
    with raised(NoSpace, place=str(place), needed=500, free=20):
        cached(images, Stored(32), folder, str(place))
    monkeypatch.setenv("ISOSPHERE_CACHE", str(place))
    with pytest.warns(NotCachedWarning):
        assert cached(images, Stored(32), folder) is images
