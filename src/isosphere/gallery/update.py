"""Bring a gallery up to date with a folder or a CSV: embed what is new, drop what is gone, keep the rest.

The gallery that is there stays until the new one is whole. An updated gallery holds what one made anew would hold.
"""

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from isosphere.data.columns import Naming
from isosphere.data.images import ImageSet, open_images
from isosphere.data.lists import some
from isosphere.errors import (
    BadArgument,
    Incompatible,
    Option,
    OtherModel,
    UnknownName,
    UnreadableImage,
    UnreadableImages,
    UnreadableImagesWarning,
)
from isosphere.inference import (
    Trained,
    described_preprocessing,
    evaluating,
    fingerprint,
    naming,
    progress_bar,
    workers,
)
from isosphere.metrics.neighbors import directions

from .codes import STORED, check_kept, encode, needed, read_projection
from .commit import Kept, commit, held
from .journal import Journal, Part
from .manifest import MANIFEST, Manifest, ModelOf, read_manifest
from .reading import Seen, batches, framing, stacked
from .rows import Folder, Rows, Store, joined, taken

Key = tuple[int, str, int, int]  # source, path, size and time: what makes an image the same


@dataclass(frozen=True)
class Changes:
    """How many images were embedded, dropped, labeled anew and kept, and those that cannot be read."""

    added: int
    removed: int
    relabeled: int
    kept: int
    unreadable: tuple[UnreadableImage, ...] = ()


def index(
    trained: Trained,
    run: Path,
    images: str | Path,
    out: str | Path,
    dim: int | None = None,
    whiten: bool = False,
    quantize: str | None = None,
) -> Changes:
    """Make the gallery `out` of a folder's or CSV's images, or bring it up to date with them.

    Images of other folders, indexed before, stay. Files of the same size and time are taken for unchanged. What cannot
    be read is left out with a warning, and tried again next time. A call that was stopped, even killed, goes on where
    it was. `dim` keeps fewer numbers, by principal components of these images. `quantize` is "int8" or "binary". Both
    are for a new gallery, which stays as it was made.
    """
    out, root = Path(out), os.path.realpath(images)
    if trained.recipe.data.transformed:
        raise BadArgument("run", str(run), "one that takes files, as a dataset gave this one its tensors")
    check_kept(dim, whiten, quantize)
    with held(out):
        home = os.path.realpath(out)
        made_by = ModelOf(
            os.path.relpath(os.path.realpath(run), home),
            fingerprint(trained.model),
            described_preprocessing(trained.recipe.data),
        )
        before = read_manifest(out) if (out / MANIFEST).is_file() else None
        source, sources = os.path.relpath(root, home), [] if before is None else before.sources
        number = sources.index(source) if source in sources else len(sources)
        if before is not None:
            _check(out, before, made_by, dim, quantize)
        old = Folder(out / before.data) if before else None
        rows, listed = _listed(Path(images), number, replace(naming(trained.recipe.data), group_regex=""))
        journal = Journal.begin(out, made_by.hash)
        failures = _embed_new(trained, rows, listed, Path(images), old, journal)
        merged, places, changes = _merged(rows, number, old, journal)
        if old is None or (changes.added, changes.removed, changes.relabeled) != (0, 0, 0):
            if before is None:
                stored, width = quantize or STORED[0], journal.parts[0].vectors.shape[1]
                projection = needed((part.vectors for part in journal.parts), dim, whiten, stored)
                before = Manifest("data-0", 0, dim or width, width, stored)
            else:
                projection = read_projection(out / before.data)
            stores: list[Store] = [*([old] if old else [])]
            stores += [Kept(part, before.stored, projection) for part in journal.parts]
            sources = [*sources, source][: max(len(sources), number + 1)]
            commit(out, replace(before, sources=sources, model=made_by), merged, stores, places, projection)
        journal.end()
    if failures:
        text = f"{len(failures)} of {len(rows)} images are unreadable and left out: {some(map(str, failures))}"
        warnings.warn(UnreadableImagesWarning(text, len(failures), [one.path for one in failures]), stacklevel=2)
    return replace(changes, unreadable=tuple(failures))


def forget(images: str | Path, out: str | Path) -> Changes:
    """Take the images of a folder or CSV out of the gallery `out`, whether they are still there or not."""
    out, source = Path(out), os.path.relpath(os.path.realpath(images), os.path.realpath(out))
    before = read_manifest(out)
    if source not in before.sources:
        raise UnknownName("folder or list in this gallery", str(images), before.sources)
    with held(out):
        before = read_manifest(out)
        old = Folder(out / before.data)
        kept = np.flatnonzero(old.rows.sources != before.sources.index(source)).tolist()
        if len(kept) < len(old.rows):
            rows, places = taken(old.rows, kept), [(0, row) for row in kept]
            commit(out, before, rows, [old], places, read_projection(old.folder))
    return Changes(0, len(old.rows) - len(kept), 0, len(kept))


def _check(folder: Path, before: Manifest, model: ModelOf, dim: int | None, quantize: str | None) -> None:
    """Refuse vectors of two models, of two kinds of preprocessing, or kept in two ways, in one gallery."""
    if before.model is None or before.model.hash != model.hash:
        raise OtherModel(folder, "the weights differ")
    then, now = before.model.preprocessing, model.preprocessing
    if then != now:
        changed = [f"{name} {then.get(name)}, not {now.get(name)}" for name in now if then.get(name) != now[name]]
        raise OtherModel(folder, f"its images were prepared with {', '.join(changed)}")
    kept = f"{folder} keeps {before.dim} numbers of an image as {before.stored}"
    for name, given, its in (("dim", dim, before.dim), ("quantize", quantize, before.stored)):
        if given not in (None, its):
            raise Incompatible((name,), f"{kept}, so index into a new folder", (Option(name, its),))


def _listed(images: Path, number: int, named: Naming) -> tuple[Rows, ImageSet]:
    """What is to be in the gallery of this source, with the state of each file; files that vanish are not listed."""
    found = open_images(str(images), flat=True, whole=True, naming=named)
    kept, states = [], []
    for index, path in enumerate(found.files):
        try:
            state = os.stat(path)
        except OSError:
            continue
        kept.append(index)
        states.append((state.st_size, state.st_mtime_ns))
    found = found.subset(kept)
    paths = [os.path.relpath(path, images) for path in found.files]
    sizes, times = np.asarray(states, np.int64).reshape(-1, 2).T
    labels = [found.classes[label] for label in found.labels.tolist()]
    sources, ids = np.full(len(paths), number, np.int32), np.full(len(paths), -1)
    return Rows(paths, labels, ids, sources, sizes, times), found


def _keys(rows: Rows) -> list[Key]:
    """The key of each row."""
    columns = (rows.sources.tolist(), rows.paths, rows.sizes.tolist(), rows.times.tolist())
    return list(zip(*columns, strict=True))


def _embed_new(
    trained: Trained, rows: Rows, images: ImageSet, home: Path, old: Folder | None, journal: Journal
) -> list[UnreadableImage]:
    """Embed what neither the gallery nor the journal has; returns what cannot be read."""
    known = {key for part in journal.parts for key in _keys(part.rows)}
    known |= set(_keys(old.rows)) if old else set()
    new = [number for number, key in enumerate(_keys(rows)) if key not in known]
    if not new:
        return []
    failures: list[UnreadableImage] = []
    frame, done = framing(trained, images, home), 0
    with evaluating(trained.model), progress_bar("embedding", len(new)) as show:
        for part, read in batches(images.files, new, frame, workers(trained.recipe.loop)):
            good = [(number, one) for number, one in zip(part, read, strict=True) if isinstance(one, Seen)]
            failures += [one for one in read if isinstance(one, UnreadableImage)]
            if good:
                found = directions(trained.embed_seen(stacked([one for _, one in good])))
                vectors = encode(found, STORED[0])
                thumbnails = [one.thumbnail for _, one in good]
                journal.add(Part(taken(rows, [number for number, _ in good]), vectors, thumbnails))
            show(done := done + len(part), len(new))
    journal.write()
    if len(failures) == len(rows):
        raise UnreadableImages(failures, len(rows), remedies=())
    return failures


def _merged(
    rows: Rows, number: int, old: Folder | None, journal: Journal
) -> tuple[Rows, list[tuple[int, int]], Changes]:
    """The rows of the new gallery in order, the store and row of each, and what changes.

    Sources stand in the order in which they came, the images of each as they are listed.
    """
    held = Rows() if old is None else old.rows
    stores = [held] * (old is not None) + [part.rows for part in journal.parts]
    found: dict[Key, tuple[int, int]] = {}  # what the gallery has goes before what the journal has
    for store in reversed(range(len(stores))):
        found |= {key: (store, row) for row, key in enumerate(_keys(stores[store]))}
    keys = _keys(rows)
    chosen = [place for place, key in enumerate(keys) if key in found]
    own, its_places = taken(rows, chosen), [found[keys[place]] for place in chosen]
    pairs = zip(its_places, own.labels, strict=True)
    kept = [label != held.labels[row] for (store, row), label in pairs if old is not None and store == 0]
    parts: list[Rows] = []
    places: list[tuple[int, int]] = []
    for source in range(-1, max([number, *held.sources.tolist()]) + 1):  # -1: vectors that were given
        others = np.flatnonzero(held.sources == source).tolist()
        parts.append(own if source == number else taken(held, others))
        places += its_places if source == number else [(0, row) for row in others]
    before = int((held.sources == number).sum())
    changes = Changes(len(own) - len(kept), before - len(kept), sum(kept), len(held) - before + len(kept))
    return joined(parts), places, changes
