"""Writing files: the old one stays until the new one is whole, links are followed, devices are refused."""

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from isosphere import errors

LINKS = 40  # that the system follows
FULL = (errno.ENOSPC, errno.EDQUOT)
SOME = 2**16  # bytes: with less than these free a disk counts as full, where an error does not say why


@contextmanager
def replacing(path: str | Path, durable: bool = False, size: int = 0) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends without an error.

    `durable` waits until it is on the disk, so that it also survives a power cut. `size` is how many bytes it will
    have, if known, for the error of a full disk.
    """
    target = writable(path)
    temporary = target.with_name(f".{secrets.token_hex(6)}.tmp")  # in the same folder, so on the same file system
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        full, written = is_full(error, target.parent), temporary.stat().st_size if temporary.exists() else 0
        temporary.unlink(missing_ok=True)
        if full:
            raise _disk_full(path, max(size, written + 1)) from error
        raise
    if durable:
        _sync_folder(target.parent)


def write(path: str | Path, content: str | bytes, unencodable: str = "strict") -> None:
    """Write text as UTF-8, or bytes; `unencodable` is the `errors` of `str.encode`."""
    whole = content.encode(errors=unencodable) if isinstance(content, str) else content
    with replacing(path, size=len(whole)) as file:
        file.write(whole)


def read_json(path: str | Path) -> Any:
    """What a JSON file holds; one that cannot be read is `DamagedFile`, with its name."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.DamagedFile(path, error.strerror or str(error)) from error
    except RecursionError:
        raise errors.DamagedFile(path, "it is nested without end") from None
    except ValueError as error:
        raise errors.DamagedFile(path, str(error)) from error


@contextmanager
def on_disk(path: str | Path, size: int = 0) -> Iterator[None]:
    """In here so many bytes are written below `path`; a full disk is `DiskFull`."""
    try:
        yield
    except errors.DiskFull:
        raise
    except Exception as error:
        if is_full(error, Path(path)):
            raise _disk_full(path, size) from error
        raise


def is_full(error: BaseException | None, path: Path) -> bool:
    """Whether a full disk is behind an error. torch and numpy raise their own, the latter without a number."""
    if isinstance(error, OSError) and error.errno is None and not isinstance(error, errors.IsosphereError):
        return _free(path) < SOME
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def _disk_full(path: str | Path, needed: int) -> errors.DiskFull:
    return errors.DiskFull(str(path), needed, _free(Path(path)))


def _free(path: Path) -> int:
    """Bytes that may be written there, or in the first folder above that exists."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def writable(path: str | Path) -> Path:
    """The file that writing to `path` would replace, behind any links. It must be a plain file.

    Commands call it before they begin long work.
    """
    if _of_the_system(Path(path)):
        raise errors.NotAPlainFile(str(path))
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise errors.NoFolder(str(path), str(target.parent))
    if target.is_symlink() or (target.exists() and not target.is_file()):  # a link here: a circle of them
        raise errors.NotAPlainFile(str(path))
    return target


def leftovers(folder: Path) -> list[Path]:
    """Files in a folder that processes which were killed were writing. Hold the folder's lock to remove them."""
    return [path for path in folder.glob(".*.tmp") if re.fullmatch(r"\.[0-9a-f]{12}\.tmp", path.name)]


def _of_the_system(path: Path) -> bool:
    """Whether a path, or a link on its way, is below /dev or /proc. /dev/stdout leads to a file that is open."""
    for _ in range(LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if any(map(path.is_relative_to, ("/dev", "/proc"))) and not path.is_relative_to("/dev/shm"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / os.readlink(path)
    return False  # a circle of links


def _sync_folder(folder: Path) -> None:
    """Make a rename last; only POSIX can open a folder."""
    if os.name == "posix":
        held = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)
