"""Files are replaced whole or not at all, through links, and never where a device, a folder or a pipe is."""

import errno
import os
import stat

import pytest

from isosphere import errors, files, locks
from raised import raised


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_written_and_replaced(tmp_path):
    files.write(tmp_path / "a", "text \u20ac")
    assert (tmp_path / "a").read_bytes() == "text \u20ac".encode()
    files.write(tmp_path / "a", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff" and names(tmp_path) == ["a"]
    files.write(tmp_path / "a", b"caf\xe9".decode(errors="surrogateescape"), "surrogateescape")
    assert (tmp_path / "a").read_bytes() == b"caf\xe9"


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path):
    (tmp_path / "usual").write_text("")
    files.write(tmp_path / "new", "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    files.write(tmp_path / "new", "")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@pytest.mark.parametrize("old", ["old", None], ids=["link to a file", "link to nothing"])
def test_a_link_stays_and_its_target_is_written(old, tmp_path):
    (tmp_path / "else").mkdir()
    if old is not None:
        (tmp_path / "else" / "target").write_text(old)
    (tmp_path / "middle").symlink_to("else/target")
    (tmp_path / "link").symlink_to("middle")
    files.write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "middle").is_symlink()
    assert (tmp_path / "else" / "target").read_text() == "new" and names(tmp_path / "else") == ["target"]


def special(kind, path):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/null")
    else:
        path.symlink_to(path.name)


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "circle"])
def test_what_is_not_a_plain_file_is_refused_and_stays(kind, tmp_path):
    path = tmp_path / "special"
    special(kind, path)
    before = os.lstat(path)
    with pytest.raises(errors.NotAPlainFile) as refused:
        files.write(path, "new")
    assert refused.value.path == str(path) and os.lstat(path) == before and names(tmp_path) == ["special"]
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="open files have no paths here")
@pytest.mark.parametrize("behind_a_link", [False, True], ids=["named", "behind a link"])
@pytest.mark.parametrize("kind", ["file", "pipe"])
@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_an_open_file_named_by_its_number_is_refused_and_stays(name, kind, behind_a_link, tmp_path):
    (tmp_path / "log").write_text("line\n")
    ends = [os.open(tmp_path / "log", os.O_WRONLY)] if kind == "file" else list(os.pipe())
    path = name.format(ends[-1])
    if behind_a_link:
        (tmp_path / "link").symlink_to(path)
        path = str(tmp_path / "link")
    try:
        with pytest.raises(errors.NotAPlainFile) as refused:
            files.write(path, "new")
    finally:
        for end in ends:
            os.close(end)
    assert refused.value.path == path and (tmp_path / "log").read_text() == "line\n"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(errors.NoFolder) as refused:
        files.write(tmp_path / "gone" / "a", "new")
    assert refused.value.folder == str(tmp_path / "gone") and not names(tmp_path)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("old", ["old", None])
def test_a_write_that_fails_leaves_what_was_there(old, durable, tmp_path):
    if old is not None:
        (tmp_path / "a").write_text(old)
    with pytest.raises(OSError) as failed, files.replacing(tmp_path / "a", durable) as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "no space left")
    assert failed.value.errno == errno.ENOSPC
    assert names(tmp_path) == (["a"] if old else []) and (old is None or (tmp_path / "a").read_text() == old)


def test_a_full_disk_at_the_last_moment_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        files.write(tmp_path / "a", "new")
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"


# ---------------------------------------------------------------- a full disk


def of_torch() -> Exception:
    error = RuntimeError("unexpected pos 704 vs 598")
    error.__context__ = OSError(errno.ENOSPC, "No space left on device")
    return error


FULL = [OSError(errno.ENOSPC, "No space"), OSError(errno.EDQUOT, "Quota"), of_torch(), OSError("9 requested")]


@pytest.mark.parametrize("error", FULL, ids=["disk", "quota", "torch", "numpy"])
def test_a_full_disk_is_called_that_with_bytes_needed_and_free(error, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_free", lambda path: 100)
    (tmp_path / "a").write_text("old")
    for size, needed in ((0, 4), (50, 50)):
        with raised(errors.DiskFull, path=tmp_path / "a", needed=needed, free=100):
            with files.replacing(tmp_path / "a", size=size) as file:
                file.write(b"new")
                file.flush()
                raise error
        with raised(errors.DiskFull, path=tmp_path / "b", needed=size, free=100), files.on_disk(tmp_path / "b", size):
            raise error
    assert (tmp_path / "a").read_text() == "old" and names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [OSError(errno.EFBIG, "File too large"), OSError("9 requested"), RuntimeError("no")])
def test_other_errors_are_no_full_disk(error, tmp_path):
    for writing in (files.replacing(tmp_path / "a"), files.on_disk(tmp_path / "a")):
        with pytest.raises(type(error)) as caught, writing:
            raise error
        assert caught.value is error
    assert names(tmp_path) == []


def test_a_full_disk_leaves_no_lock(tmp_path, monkeypatch):
    def fail(file: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(os, "write", fail)
        with locks.hold(tmp_path / "lock"):
            pass
    assert names(tmp_path) == []
    with locks.hold(tmp_path / "lock"):
        assert names(tmp_path) == ["lock"]
