"""Where caches are, which there are, and how they make room for others."""

import os
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from isosphere import locks
from isosphere.errors import BadArgument, Held, NoSpace, Option

from .store import MANIFEST, MOVED, PARTS, manifest

LIMIT = 100.0  # gigabytes of all caches of a place, unless ISOSPHERE_CACHE_GB says another
RESERVE = 1 << 30  # bytes of the disk that caches leave free, as a run writes checkpoints there, too
NONE = Option("data.cache", "none")  # what does without
USERS = "users"  # the folder of a cache in which each process that uses it holds a lock


class Cache(NamedTuple):
    """One cache as it is listed: its folder, what it is of, images, bytes, when it was used, whether it is in use."""

    folder: Path
    source: str
    stored: str
    images: int
    bytes: int
    used: float
    in_use: bool

    def is_of(self, source: str) -> bool:
        """Whether it is of this folder or list, which may be gone."""
        return os.path.realpath(source) == self.source or self.folder.name == source


def standard_place() -> Path:
    """`$ISOSPHERE_CACHE`, else `isosphere` in `$XDG_CACHE_HOME`, else in `~/.cache`."""
    if given := os.environ.get("ISOSPHERE_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "isosphere"


def limit() -> int:
    """Bytes that all caches of a place may have."""
    given = os.environ.get("ISOSPHERE_CACHE_GB") or LIMIT
    try:
        size = float(given)
    except ValueError:
        size = -1.0
    if not 0 <= size < float("inf"):
        raise BadArgument("ISOSPHERE_CACHE_GB", given, "a number of gigabytes")
    return int(size * 1e9)


def caches(place: Path) -> list[Cache]:
    """All caches of a place, those used last first."""
    folders = (path.parent for path in place.glob(f"*/{MANIFEST}"))
    found = [_cache(folder) for folder in folders if folder.suffix not in MOVED]
    return sorted(filter(None, found), key=lambda cache: -cache.used)


def _cache(folder: Path) -> Cache | None:
    held = manifest(folder)
    with suppress(OSError, KeyError):  # removed meanwhile, or none of ours
        size = sum((folder / name).stat().st_size for name in PARTS)
        about = str(held["source"]), str(held["stored"]), held["count"]
        return Cache(folder, *about, size, (folder / MANIFEST).stat().st_mtime, in_use(folder))
    return None


def in_use(folder: Path) -> bool:
    """Whether a process has the cache open."""
    for user in (folder / USERS).glob("*"):
        try:
            with locks.hold(user):  # of a process that was killed; it goes with this
                pass
        except Held:
            return True
    return False


class Use:
    """While it lives, its process uses the cache in a folder, which nobody removes then."""

    def __init__(self, folder: Path) -> None:
        (folder / USERS).mkdir(exist_ok=True)
        held = ExitStack()
        held.enter_context(locks.hold(folder / USERS / f"{os.getpid()}-{token_hex(4)}"))
        now = time.time()
        os.utime(folder / MANIFEST, (now, now))
        weakref.finalize(self, held.close)

    def __reduce__(self) -> tuple:  # in a worker process, whose parent has it
        return object, ()


def remove(cache: Cache) -> bool:
    """Remove a cache, unless it is in use."""
    with suppress(Held, FileNotFoundError), locks.hold(lock_of(cache.folder)):
        if not in_use(cache.folder):
            shutil.rmtree(cache.folder)
            return True
    return False


def lock_of(folder: Path) -> Path:
    """The lock of a cache. Who changes it, or begins to use it, holds this."""
    return folder.with_name(f"{folder.name}.lock")


def make_room(folder: Path, needed: int) -> None:
    """Room for so many more bytes in a cache: others of its place go if they must, the oldest first, none in use."""
    place, most = folder.parent, limit()
    others = _removable(place, folder)
    while True:
        held = sum(cache.bytes for cache in caches(place))
        free = shutil.disk_usage(place).free - RESERVE
        if needed <= min(free, most - held):
            return
        if not any(map(remove, others)):
            left, why = min((most - held, "by ISOSPHERE_CACHE_GB"), (free, "on the disk"))
            raise NoSpace(str(place), needed, max(0, left), why, NONE)


def _removable(place: Path, folder: Path) -> Iterator[Cache]:
    return (cache for cache in reversed(caches(place)) if cache.folder != folder)
