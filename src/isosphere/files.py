"""Writing files: the old one stays until the new one is whole, links are followed, devices are refused."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from isosphere import errors

LINKS = 40  # that the system follows


@contextmanager
def replacing(path: str | Path, durable: bool = False) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends without an error.

    `durable` waits until it is on the disk, so that it also survives a power cut.
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
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(target.parent)


def write(path: str | Path, content: str | bytes, unencodable: str = "strict") -> None:
    """Write text as UTF-8, or bytes; `unencodable` is the `errors` of `str.encode`."""
    with replacing(path) as file:
        file.write(content.encode(errors=unencodable) if isinstance(content, str) else content)


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
