"""A file lock for every system. It belongs to one process and ends with it, even if the process is killed.

The system's own lock is used where there is one: `fcntl`, or `msvcrt` on Windows. Elsewhere the lock is a file that
only one process can create. It names its holder, and the next process takes it over once the holder has ended.
"""

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from isosphere.errors import Held

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:
    msvcrt = None  # type: ignore[assignment]

POLL = 0.05  # seconds between two attempts
UNSIGNED = 10.0  # seconds after which a lock file without a holder counts as left behind
BYTE = 1 << 30  # the byte that Windows locks; it is far behind the holder's name, which stays readable
_OPEN: set[int] = set()  # files of the locks that this process holds


@contextmanager
def hold(path: str | Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock `path`; where another process holds it, wait for it or raise `Held`.

    The file is made here and removed at the end. It must not be used for anything else.
    """
    path, owner = Path(path), os.getpid()
    file = _take(path)
    while file is None and wait:
        time.sleep(POLL)
        file = _take(path)
    if file is None:
        raise Held(str(path), holder(path))
    try:
        yield
    finally:
        if os.getpid() == owner:  # not a forked copy of it
            _release(path, file)


def wait_until_free(path: str | Path) -> None:
    """Return once no process holds the lock `path`; nothing is made where there is no such file."""
    path = Path(path)
    while path.exists():
        with suppress(Held, FileNotFoundError), hold(path):
            return
        time.sleep(POLL)


def holder(path: str | Path) -> str:
    """Who holds the lock `path`, in words."""
    held = _signature(Path(path))
    if not held:
        return "another process"
    return f"process {held['pid']} on {held['machine']} since {held['since']}"


def _take(path: Path) -> int | None:
    """An open file with the lock, or None where another process has it."""
    take = _take_system_lock if fcntl or msvcrt else _take_created_file
    file = take(path)
    if file is not None:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        signature = {"pid": os.getpid(), "machine": platform.node(), "started": _started(os.getpid()), "since": since}
        try:
            os.ftruncate(file, 0)
            os.write(file, json.dumps(signature).encode())
        except OSError:  # on a full disk
            _release(path, file)
            raise
        _OPEN.add(file)
    return file


def _release(path: Path, file: int) -> None:
    _OPEN.discard(file)
    if not msvcrt:  # before the lock ends, so that it is surely ours
        path.unlink(missing_ok=True)
    os.close(file)
    if msvcrt:  # Windows removes no open file; if the next process has opened it, it stays
        with suppress(OSError):
            path.unlink()


def _take_system_lock(path: Path) -> int | None:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                os.lseek(file, BYTE, os.SEEK_SET)
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
                os.lseek(file, 0, os.SEEK_SET)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except FileNotFoundError:  # the holder before us has removed it: make a new one
            pass
        except OSError:
            os.close(file)
            return None
        os.close(file)


def _take_created_file(path: Path) -> int | None:
    """The lock without help of the system; it is taken over from a process that has ended.

    The one who makes a second file, named after the ended process, may remove the first. So no two take it over.
    """
    with suppress(FileExistsError):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    held = _signature(path)
    if not _has_ended(path, held):
        return None
    claim = path.with_name(f"{path.name}.{held.get('pid')}-{held.get('started')}")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if _age(claim) > UNSIGNED:
            claim.unlink(missing_ok=True)
        return None
    if _signature(path) == held:
        path.unlink(missing_ok=True)
    claim.unlink(missing_ok=True)
    return _take_created_file(path)


def _has_ended(path: Path, held: dict[str, Any]) -> bool:
    if not held:  # it is being written, or its maker ended at once
        return _age(path) > UNSIGNED
    if held["machine"] != platform.node():  # which cannot be asked
        return False
    try:
        os.kill(held["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _started(held["pid"]) != held["started"]  # its number may have been given again


def _signature(path: Path) -> dict[str, Any]:
    """What the holder has written; empty where it has not yet."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return held if {"pid", "machine", "started", "since"} <= held.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _started(pid: int) -> str:
    """When a process began, in the system's own count; empty where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _close_copies() -> None:
    for file in _OPEN:
        os.close(file)
    _OPEN.clear()


if hasattr(os, "register_at_fork"):  # else a worker that outlives its parent would keep the lock
    os.register_at_fork(after_in_child=_close_copies)
