"""A set of image files from their cache, which gets what it lacks."""

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from hashlib import blake2b, sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isosphere import locks, terminal
from isosphere.errors import DiskFull, Held, InputError, IsosphereError, NoCache, NoSpace, NotCachedWarning

from ..images import ImageSet
from ..readable import readable_images, without
from ..recordio import RecordSet
from ..split import Set
from .filling import Chunks, Encoded, FirstStage, fill
from .images import CachedSet, Origin
from .places import NONE, Use, in_use, lock_of, make_room, standard_place
from .store import STAMP, About, Store

MOMENT = 2.0  # seconds to wait for another process in silence
DEAD = 0.25  # share of a cache that nobody can use any more, above which it is written anew


class Opened(NamedTuple):
    """Where the readable images of a set are, in its order, and the errors of the others by index."""

    origin: Origin
    failures: dict[int, InputError]


def cached(
    images: ImageSet, stored: FirstStage, source: str | Path, cache: str = "auto", skip_unreadable: bool | None = False
) -> CachedSet | ImageSet:
    """The images of a folder or list from their cache, after this first stage.

    `cache` is a folder for caches, `auto` for the usual one, or `none` to decode files at each step. Where nothing can
    be cached, `auto` says so and takes the files. Unreadable ones are an error, or left out. With `skip_unreadable`
    None they cannot be left out, and without a cache nobody looks for them.
    """
    found = opened_or_none(images, stored, source, cache)
    if found is not None:
        return CachedSet(without(images, found.failures, skip_unreadable), stored, found.origin)
    return images if skip_unreadable is None else readable_images(images, skip_unreadable)


def placed(images: Set, device: torch.device) -> "Set | CachedSet":
    """Images of a cache where they train best on this device; others as they are."""
    return images.placed(device) if isinstance(images, CachedSet) else images


def opened_or_none(
    images: ImageSet | RecordSet,
    stored: FirstStage,
    source: str | Path,
    cache: str = "auto",
    landmarks: Tensor | None = None,
) -> Opened | None:
    """The images in their cache, made or updated; None where there shall be none, or where `auto` finds no way."""
    given = cache not in ("auto", "")
    if cache == "none":
        return None
    try:
        return opened(images, stored, source, Path(cache) if given else standard_place(), landmarks)
    except (NoCache, NoSpace) as error:
        if given:
            raise
        warnings.warn(NotCachedWarning(f"images are decoded at each step: {error}"), stacklevel=3)
        return None


def opened(
    images: ImageSet | RecordSet,
    stored: FirstStage,
    source: str | Path,
    place: Path,
    landmarks: Tensor | None = None,
    workers: int | None = None,
) -> Opened:
    """The images in their cache below this place. Other processes that ask for the same cache wait."""
    source = Path(source)
    about = About(os.path.realpath(source), _named(stored))
    folder = place / f"{Path(about.source).name}-{sha256(repr(about).encode()).hexdigest()[:12]}"
    names, failures = [os.fsencode(name) for name in images.keys(source)], {}
    stamps = _stamps(images, landmarks)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _held(lock_of(folder), about.source):
            store = Store.open(folder, about)
            rows = store.find(names, stamps)
            if (rows < 0).any():
                _compact(store, images, source, names, rows)
                rows = store.find(names, stamps)
                chunks = Chunks(images, np.flatnonzero(rows < 0).tolist(), stored, landmarks)
                failures = fill(store, chunks, names, stamps, workers)
                rows = store.find(names, stamps)
            store.seal()
            use = Use(folder)
    except DiskFull as error:
        raise NoSpace(str(place), error.needed, error.free, "the disk is full", NONE) from error
    except OSError as error:
        if isinstance(error, IsosphereError):
            raise
        raise NoCache(str(place), f"{error.strerror} ({error.filename})", NONE) from error
    there = np.flatnonzero(rows >= 0)
    return Opened(Origin(store, rows[there], Chunks(images, there.tolist(), stored, landmarks), use), failures)


def _named(stored: FirstStage) -> str:
    """A first stage by its fields, without those that are as usual."""
    its = ((field, getattr(stored, field.name)) for field in fields(stored))  # type: ignore[arg-type]
    return f"{type(stored).__name__}({', '.join(f'{f.name}={value!r}' for f, value in its if value != f.default)})"


def _stamps(images: Encoded, landmarks: Tensor | None) -> np.ndarray:
    """What each image is made from, STAMP (N,): its file's size and time, and its landmarks."""
    stamps = np.zeros(len(images), STAMP)
    stamps["size"], stamps["time"] = images.stamps().T
    if landmarks is not None:
        digests = (blake2b(its.tobytes(), digest_size=8).digest() for its in landmarks.numpy())
        stamps["extra"] = np.frombuffer(b"".join(digests), "<u8")
    return stamps


def _compact(store: Store, images: Encoded, source: Path, names: Sequence[bytes], rows: np.ndarray) -> None:
    """Write a cache anew if much of it is of files that have changed or are gone. One that others use stays."""
    sizes = store.sizes
    kept = rows[rows >= 0]
    if not len(sizes) or in_use(store.folder) or sizes.sum() - sizes[kept].sum() <= DEAD * sizes.sum():
        return
    asked, latest = set(names), dict(zip(store.names, range(len(store.names)), strict=True))
    others = [row for name, row in latest.items() if name not in asked and images.is_there(os.fsdecode(name), source)]
    kept = np.union1d(kept, [row for row in others if store.records["size"][row] >= 0]).astype(np.int64)
    if sizes.sum() - sizes[kept].sum() > DEAD * sizes.sum():
        with suppress(NoSpace):  # it stays as it is, which is no harm
            make_room(store.folder, 3 * int(sizes[kept].sum()))
            store.compact(kept)


@contextmanager
def _held(lock: Path, source: str) -> Iterator[None]:
    """Hold a cache's lock. Whoever has to wait for more than a moment says so."""
    begin = time.monotonic()
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locks.hold(lock, wait=time.monotonic() - begin > MOMENT))
                break
            except Held as error:
                time.sleep(locks.POLL)
                if time.monotonic() - begin > MOMENT and os.environ.get("LOCAL_RANK", "0") == "0":
                    terminal.say(f"isosphere: waiting for {error.holder}, which caches the images of {source}")
        yield
