"""Downloads that survive a bad connection: resumed where they stopped, checked by MD5, and unpacked whole."""

import hashlib
import os
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from isosphere import locks
from isosphere.errors import DownloadFailed, FolderExists, UnsafeFile

CHUNK = 1 << 20  # bytes read at once
TIMEOUT = 30.0  # seconds without a byte until the line counts as dropped
RETRIES = 4  # attempts in a row that may bring nothing new before the download is given up
BACKOFF = 1.0  # seconds to wait before the first of them; before each later one twice as long


def fetch_folder(url: str, folder: str | Path, md5: str) -> Path:
    """Download an archive next to `folder`, check it, `unpack` it as `folder` and remove it."""
    folder = Path(folder)
    archive = fetch_archive(url, folder.with_name(PurePosixPath(url).name), md5)
    unpack(archive, folder)
    archive.unlink()
    return folder


def fetch_archive(url: str, target: str | Path, md5: str) -> Path:
    """The file at `url` as `target`, which appears only when it is whole and its MD5 is right.

    An interrupted download goes on after the bytes in `target.part`. It starts over if the server cannot do that; over
    FTP it is not asked to. A file that is there is not downloaded again. A download that brought nothing leaves neither
    a file nor a folder.
    """
    target = Path(target)
    if target.is_file() and _md5(target).hexdigest() == md5:
        return target
    new = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with locks.hold(target.with_name(f"{target.name}.lock")):
            _fetch_held(url, target, md5)
    except BaseException:
        with suppress(OSError):  # the deepest first, up to one in which something lies
            for folder in new:
                folder.rmdir()
        raise
    return target


def _fetch_held(url: str, target: Path, md5: str) -> None:
    part = target.with_name(f"{target.name}.part")
    with open(part, "ab") as file:
        begun = _Begun(file)
        try:
            if begun.digest.hexdigest() != md5:
                _fetch(url, begun)
        except BaseException:
            if begun.size == 0:
                part.unlink()
            raise
    found = begun.digest.hexdigest()
    if found != md5:
        part.unlink()
        raise DownloadFailed(url, f"its MD5 is {found}, not {md5}; the file is deleted, try again")
    os.replace(part, target)


def unpack(archive: str | Path, folder: str | Path) -> Path:
    """Unpack a tar or zip file as `folder`, which appears whole or not at all.

    If the archive has a top folder of that name, that one is taken. The rest is left out. Members that point outside
    are refused, and so are links and devices.
    """
    archive, folder = Path(archive), Path(folder)
    if folder.exists():
        raise FolderExists(folder, f"{archive.name} would be unpacked there")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    partial.mkdir(parents=True)
    try:
        for name, content in _members(archive):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise UnsafeFile(archive, f"has the member {name}, which points outside")
            place = partial / path
            (place if content is None else place.parent).mkdir(parents=True, exist_ok=True)
            if content is not None:
                with content, open(place, "wb") as file:
                    shutil.copyfileobj(content, file, CHUNK)
        inner = partial / folder.name
        (inner if inner.is_dir() else partial).rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """The name and content of each member in the archive's order; a folder's content is None."""
    from rich.progress import track

    label = f"unpacking {archive.name}"
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for entry in track(opened.infolist(), label, transient=True):
                yield entry.filename, None if entry.is_dir() else opened.open(entry)
        return
    with tarfile.open(archive) as opened:
        for entry in track(opened, label, total=None, transient=True):  # how many there are stands nowhere
            if not entry.isfile() and not entry.isdir():
                raise UnsafeFile(archive, f"has the member {entry.name}, which is neither a file nor a folder")
            yield entry.name, opened.extractfile(entry)


class _Dropped(Exception):
    """An attempt failed in a way that the next may not."""


class _Begun:
    """A file that is being downloaded, open for appending, with the MD5 of what it holds."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, _md5(Path(file.name))

    @property
    def size(self) -> int:
        return self.file.tell()

    def append(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)

    def restart(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.digest = hashlib.md5(usedforsecurity=False)


def _fetch(url: str, begun: _Begun) -> None:
    """Append all that is missing, in as many attempts as it takes while they bring something new."""
    furthest, failures = begun.size, 0
    with _progress(PurePosixPath(url).name) as show:
        while True:
            try:
                return _attempt(url, begun, show)
            except _Dropped as error:
                failures = 1 if begun.size > furthest else failures + 1
                furthest = max(furthest, begun.size)
                if failures > RETRIES:
                    raise DownloadFailed(url, f"{error}; to go on, run this again") from error
                time.sleep(BACKOFF * 2 ** (failures - 1))


def _attempt(url: str, begun: _Begun, show: Callable[[int, int | None], None]) -> None:
    """One request for what is missing; it returns when the server has sent its last byte."""
    headers = {"User-Agent": "isosphere"} | ({"Range": f"bytes={begun.size}-"} if begun.size else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416:  # there is nothing after what we have, which has the wrong checksum
            begun.restart()
        elif error.code not in (408, 429) and error.code < 500:
            raise DownloadFailed(url, f"the server answered {error.code} {error.reason}") from error
        raise _Dropped(f"{error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise _Dropped(getattr(error, "reason", error)) from error
    with response:
        if response.status != 206:  # the whole file, asked for or not
            begun.restart()
        length = response.headers["Content-Length"]
        total = begun.size + int(length) if length else None
        for data in _chunks(response):
            begun.append(data)
            show(begun.size, total)
    if total is not None and begun.size < total:
        raise _Dropped(f"the line dropped after {begun.size:,} of {total:,} bytes")


def _chunks(response: Any) -> Iterator[bytes]:
    """What arrives. Writing is elsewhere, so that a full disk is not taken for a lost connection."""
    while True:
        try:
            data = response.read1(CHUNK)
        except (OSError, HTTPException) as error:
            raise _Dropped(error) from error
        if not data:
            return
        yield data


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar with bytes, speed and time left. Call what it yields with the bytes done and the total."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task(f"downloading {name}", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _md5(path: Path) -> "hashlib._Hash":
    """The MD5 of a file, open to more."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest
