"""Downloads from a server in a thread that serves ranges or not, breaks off or not; and the archives they bring."""

import dataclasses
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from isosphere import cli, locks
from isosphere.data import download, retrieval
from isosphere.data.download import fetch_archive, fetch_folder, unpack
from isosphere.errors import DownloadFailed, FolderExists, Held, UnsafeFile
from raised import raised

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content` at any path and notes each request's Range and how many bytes its answer had.

    `breaks` holds, for one request after the other, after how many bytes the line is cut, or an error to answer with.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges_work, self.breaks, self.shows_length = CONTENT, True, [], True
        self.asked: list[str | None] = []
        self.sent: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/files/archive.tgz"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server, asked = self.server, self.headers["Range"]
        server.asked.append(asked)
        broken = server.breaks.pop(0) if server.breaks else None
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges_work else 0
        code = 416 if start >= len(server.content) else 206 if start else 200
        if broken in (404, 429, 503) or code == 416:
            server.sent.append(0)
            return self.send_error(broken or code)
        body = server.content[start:]
        self.send_response(code)
        if server.shows_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[:broken]
        server.sent.append(len(body))  # before the client can have read all of it
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "BACKOFF", 0.0)
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_download_arrives_whole_and_is_not_repeated(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "archive.tgz"
    assert fetch_archive(server.url, target, MD5) == target and target.read_bytes() == CONTENT
    assert fetch_archive(server.url, target, MD5) == target
    assert server.asked == [None] and names(tmp_path) == {"new/archive.tgz"}


def test_a_part_is_continued_at_its_last_byte(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.tgz.part").write_bytes(CONTENT[:123_457])
    assert fetch_archive(server.url, tmp_path / "a.tgz", MD5).read_bytes() == CONTENT
    assert server.asked == ["bytes=123457-"] and server.sent == [300_000 - 123_457]


def test_a_part_that_is_complete_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "a.tgz.part").write_bytes(CONTENT)
    assert fetch_archive("http://127.0.0.1:9/a.tgz", tmp_path / "a.tgz", MD5).read_bytes() == CONTENT
    assert names(tmp_path) == {"a.tgz"}


def test_a_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges_work = False
    (tmp_path / "a.tgz.part").write_bytes(b"x" * 1000)
    assert fetch_archive(server.url, tmp_path / "a.tgz", MD5).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"] and server.sent == [300_000]


def test_an_address_that_is_not_http_starts_over(tmp_path: Path) -> None:
    """A file's address takes the same way as FTP's: neither has a status nor ranges."""
    (tmp_path / "source").write_bytes(CONTENT)
    (tmp_path / "a.tgz.part").write_bytes(b"x" * 1000)
    assert fetch_archive((tmp_path / "source").as_uri(), tmp_path / "a.tgz", MD5).read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [b"x" * 300_000, CONTENT + b"x"])
def test_a_part_that_is_too_long_starts_over(server: Server, wrong: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tgz.part").write_bytes(wrong)
    assert fetch_archive(server.url, tmp_path / "a.tgz", MD5).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(wrong)}-", None]


def test_a_line_that_drops_again_and_again_is_taken_up_each_time(server: Server, tmp_path: Path) -> None:
    server.breaks = [30_000] * 7 + [503, 429]  # more than RETRIES, but each brings something new
    assert fetch_archive(server.url, tmp_path / "a.tgz", MD5).read_bytes() == CONTENT
    assert server.asked == [None, *(f"bytes={30_000 * n}-" for n in (1, 2, 3, 4, 5, 6, 7, 7, 7))]
    assert sum(server.sent) == len(CONTENT)


def test_attempts_that_bring_nothing_new_come_to_an_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ranges_work, server.breaks, waits = False, [1000] * 99, []
    monkeypatch.setattr(download, "BACKOFF", 1.0)
    monkeypatch.setattr(download.time, "sleep", waits.append)
    with raised(DownloadFailed, url=server.url) as caught:
        fetch_archive(server.url, tmp_path / "a.tgz", MD5)
    assert "1,000 of 300,000 bytes" in caught.value.reason
    assert len(server.asked) == 1 + download.RETRIES and waits == [1, 2, 4, 8]
    assert (tmp_path / "a.tgz.part").read_bytes() == CONTENT[:1000]  # kept for the next time


def test_a_silent_server_is_given_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    with Server() as silent:  # it listens, but nobody answers
        with raised(DownloadFailed, url=silent.url) as caught:
            fetch_archive(silent.url, tmp_path / "a.tgz", MD5)
        assert "timed out" in caught.value.reason


def test_an_address_that_is_gone_is_not_asked_twice(server: Server, tmp_path: Path) -> None:
    server.breaks = [404]
    with raised(DownloadFailed, url=server.url) as caught:
        fetch_archive(server.url, tmp_path / "a.tgz", MD5)
    assert "404" in caught.value.reason
    assert len(server.asked) == 1


@pytest.mark.parametrize("answers", [[404], [503] * (1 + download.RETRIES)])
def test_a_refused_download_leaves_nothing(server: Server, tmp_path: Path, answers: list[int]) -> None:
    server.breaks = [*answers, *answers]
    with raised(DownloadFailed) as caught:
        fetch_archive(server.url, tmp_path / "new" / "deep" / "a.tgz", MD5)
    assert str(answers[0]) in caught.value.reason
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()  # what was there stays
    with raised(DownloadFailed):
        fetch_archive(server.url, tmp_path / "old" / "a.tgz", MD5)
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


@pytest.mark.parametrize("shows_length", [True, False])
def test_a_wrong_checksum_deletes_the_file(server: Server, shows_length: bool, tmp_path: Path) -> None:
    server.content, server.shows_length = CONTENT[:-1], shows_length
    with raised(DownloadFailed, url=server.url) as caught:
        fetch_archive(server.url, tmp_path / "a.tgz", MD5)
    assert hashlib.md5(CONTENT[:-1]).hexdigest() in caught.value.reason and MD5 in caught.value.reason
    assert names(tmp_path) == set()


def test_two_processes_do_not_write_one_file(server: Server, tmp_path: Path) -> None:
    with locks.hold(tmp_path / "a.tgz.lock"), pytest.raises(Held) as held:
        fetch_archive(server.url, tmp_path / "a.tgz", MD5)
    assert held.value.path == str(tmp_path / "a.tgz.lock")
    assert server.asked == []


def test_a_full_disk_is_no_dropped_line(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download._Begun, "append", full)
    with pytest.raises(OSError) as caught:
        fetch_archive(server.url, tmp_path / "a.tgz", MD5)
    assert caught.value.errno == 28
    assert len(server.asked) == 1


def tarred(path: Path, files: dict[str, bytes], odd: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        if odd is not None:
            archive.addfile(odd)
    return path


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Birds/empty/", b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("make", [tarred, zipped])
def test_the_folder_of_that_name_or_the_whole_archive(make, tmp_path: Path) -> None:
    archive = make(tmp_path / "archive", {"Birds/a/1.jpg": CONTENT, "Birds/list.txt": b"1", "./more.txt": b"2"})
    assert unpack(archive, tmp_path / "Birds") == tmp_path / "Birds"
    assert names(tmp_path / "Birds") == {"a/1.jpg", "list.txt"}
    assert (tmp_path / "Birds/a/1.jpg").read_bytes() == CONTENT
    unpack(archive, tmp_path / "deep" / "other")
    assert names(tmp_path / "deep") == {"other/Birds/a/1.jpg", "other/Birds/list.txt", "other/more.txt"}
    with raised(FolderExists, folder=tmp_path / "Birds"):
        unpack(archive, tmp_path / "Birds")
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "Birds", "deep"}


@pytest.mark.parametrize("make", [tarred, zipped])
@pytest.mark.parametrize("name", ["../outside.txt", "Birds/../../outside.txt", "/outside.txt"])
def test_members_that_point_outside_are_refused(make, name: str, tmp_path: Path) -> None:
    archive = make(tmp_path / "archive", {"Birds/list.txt": b"1", name: b"2"})
    with raised(UnsafeFile, path=archive) as caught:
        unpack(archive, tmp_path / "in" / "Birds")
    assert name in caught.value.reason
    assert names(tmp_path) == {"archive"} and list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    odd = tarfile.TarInfo("Birds/odd")
    odd.type, odd.linkname = kind, "/etc"
    archive = tarred(tmp_path / "archive", {"Birds/list.txt": b"1"}, odd)
    with raised(UnsafeFile, path=archive) as caught:
        unpack(archive, tmp_path / "Birds")
    assert "Birds/odd" in caught.value.reason
    assert {path.name for path in tmp_path.iterdir()} == {"archive"}


def test_killed_while_unpacking_leaves_no_folder_and_the_next_run_repairs(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "archive", {f"Birds/{number}.jpg": b"1" * 100 for number in range(9)})
    code = (
        "import os, signal, sys; from isosphere.data import download; copy, count = download.shutil.copyfileobj, []\n"
        "def dying(*words):\n"
        "    copy(*words); count.append(1)\n"
        "    if len(count) == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        "download.shutil.copyfileobj = dying\n"
        "download.unpack(sys.argv[1], sys.argv[2])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, archive, tmp_path / "Birds"])
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "Birds").exists() and len(names(tmp_path / "Birds.partial")) == 5
    os.rename(tmp_path / "Birds.partial" / "Birds" / "0.jpg", tmp_path / "Birds.partial" / "Birds" / "old.jpg")
    unpack(archive, tmp_path / "Birds")
    assert names(tmp_path) == {"archive"} | {f"Birds/{number}.jpg" for number in range(9)}


def cub(path: Path) -> Path:
    """A miniature of the official archive: two training and two test classes, and a file next to the folder."""
    files = {f"CUB_200_2011/images/{label:03d}.Bird/{n}.jpg": b"pixels" for label in (1, 2, 3, 4) for n in (1, 2)}
    rows = [name.removeprefix("CUB_200_2011/images/") for name in files]
    files["CUB_200_2011/images.txt"] = "".join(f"{i} {row}\n" for i, row in enumerate(rows)).encode()
    labels = "".join(f"{i} {int(row[:3])}\n" for i, row in enumerate(rows))
    files["CUB_200_2011/image_class_labels.txt"] = labels.encode()
    return tarred(path, files | {"attributes.txt": b"1 has_bill_shape"})


@pytest.fixture
def small_cub(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for benchmarks, and CUB-200-2011 at the server's address with the miniature's size and checksum."""
    server.content = cub(tmp_path / "made.tgz").read_bytes()
    source = dataclasses.replace(
        retrieval.SOURCES["cub200"],
        counts=retrieval.Counts(2, 2, 4, 4),
        archive=server.url,
        md5=hashlib.md5(server.content).hexdigest(),
    )
    monkeypatch.setitem(retrieval.SOURCES, "cub200", source)
    return tmp_path / "data"


def datasets(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["isosphere", "datasets", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0


def test_the_command_downloads_checks_unpacks_and_shows(
    server: Server, small_cub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    server.breaks = [1, 2]
    assert datasets(monkeypatch, small_cub, "--get", "cub200") == 0
    printed = capsys.readouterr().out
    assert "CUB-200-2011  " in printed and "complete" in printed and printed.count("not installed") == 3
    assert [path.name for path in small_cub.iterdir()] == ["CUB_200_2011"]
    assert server.asked == [None, "bytes=1-", "bytes=3-"]
    assert datasets(monkeypatch, small_cub, "--get", "cub200") == 0  # complete: not asked for again
    assert len(server.asked) == 3
    (small_cub / "CUB_200_2011/images/001.Bird/1.jpg").unlink()
    assert datasets(monkeypatch, small_cub, "--get", "cub200") == 2
    printed = capsys.readouterr().err
    assert "3 training images" in printed and str(small_cub / "CUB_200_2011") in printed and len(server.asked) == 3


def test_the_command_says_in_one_line_what_went_wrong(
    server: Server, small_cub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    server.content = server.content[:-1] + b"x"
    assert datasets(monkeypatch, small_cub, "--get", "cub200") == 1
    assert datasets(monkeypatch, small_cub, "--get", "cars196") == 2
    assert datasets(monkeypatch, small_cub, "--get", "inshop") == 2
    assert datasets(monkeypatch, small_cub, "--get", "cub") == 2
    wrong, cars, inshop, unknown = capsys.readouterr().err.splitlines()
    assert server.url in wrong and names(small_cub) == set()
    assert "ai.stanford.edu" in cars and "cars_annos.mat" in cars
    assert "mmlab.ie.cuhk.edu.hk" in inshop and "list_eval_partition.txt" in inshop
    assert "cub200, cars196, sop, inshop" in unknown


def test_an_archive_is_kept_until_it_is_unpacked(server: Server, tmp_path: Path) -> None:
    server.content = tarred(tmp_path / "made", {"Birds/list.txt": b"1", "../out": b"2"}).read_bytes()
    md5 = hashlib.md5(server.content).hexdigest()
    for _ in range(2):
        with raised(UnsafeFile):
            fetch_folder(server.url, tmp_path / "Birds", md5)
    assert names(tmp_path) == {"made", "archive.tgz"} and len(server.asked) == 1


def test_addresses_and_checksums_go_together() -> None:
    assert {name for name, source in retrieval.SOURCES.items() if source.archive} == {"cub200", "sop"}
    assert all(bool(source.archive) == (len(source.md5) == 32) for source in retrieval.SOURCES.values())
