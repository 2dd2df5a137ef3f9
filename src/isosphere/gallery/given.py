"""Vectors that are given, of any model, as a gallery; rows added and removed from Python."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from isosphere.errors import BadArgument, FolderExists, UnknownName
from isosphere.metrics.neighbors import Array, checked_embeddings, directions

from .codes import STORED, Projection, check_kept, encode, needed, read_projection
from .commit import Kept, commit, held
from .engines import sync_engines
from .gallery import Gallery, load_gallery
from .journal import Part
from .manifest import MANIFEST, Manifest, read_manifest
from .rows import Folder, Rows, Store, joined, taken


def create(
    folder: str | Path,
    vectors: Array,
    paths: Sequence[str],
    labels: Sequence[str] | None = None,
    dim: int | None = None,
    whiten: bool = False,
    quantize: str | None = None,
) -> Gallery:
    """A new gallery of embeddings (N, F) of any length, with a path for each, and a label if there are labels.

    It has no model and no small pictures, and is searched with vectors. `dim` and `quantize` are as for `index`.
    """
    check_kept(dim, whiten, quantize)
    folder, part = Path(folder), _part(vectors, paths, labels)
    with held(folder):
        if (folder / MANIFEST).is_file():
            raise FolderExists(folder, "it is a gallery; add to it")
        stored, width = quantize or STORED[0], part.vectors.shape[1]
        projection = needed([part.vectors], dim, whiten, stored)
        manifest = Manifest("data-0", 0, dim or width, width, stored)
        _commit(folder, manifest, [part], projection)
    return load_gallery(folder)


def add(
    folder: str | Path, vectors: Array, paths: Sequence[str], labels: Sequence[str] | None = None
) -> Gallery:
    """The gallery with more rows: embeddings (N, F) as its model gives them, kept as its others are."""
    folder, part = Path(folder), _part(vectors, paths, labels)
    with held(folder):
        manifest = read_manifest(folder)
        if part.vectors.shape[1] != manifest.width:
            raise BadArgument("vectors", tuple(part.vectors.shape), f"of shape (N, {manifest.width})")
        old = Folder(folder / manifest.data)
        _commit(folder, manifest, [old, part], read_projection(old.folder))
    sync_engines(folder)
    return load_gallery(folder)


def remove(folder: str | Path, paths: Collection[str]) -> Gallery:
    """The gallery without the rows of these `paths`, as `gallery.paths` has them.

    `isosphere index` embeds a file again that is still in its folder.
    """
    folder, gone = Path(folder), {os.fspath(path) for path in paths}
    with held(folder):
        gallery = load_gallery(folder)
        if unknown := sorted(gone - {*gallery.paths}):
            raise UnknownName("path", unknown[0], gallery.paths)
        rows = [row for row, path in enumerate(gallery.paths) if path not in gone]
        _commit(folder, gallery.manifest, [Folder(folder / gallery.manifest.data)], gallery.projection, rows)
    sync_engines(folder)
    return load_gallery(folder)


def _part(vectors: Array, paths: Sequence[str], labels: Sequence[str] | None) -> Part:
    """Given rows as `index` would have made them."""
    unit = directions(checked_embeddings(vectors, "vectors"))
    labels = [""] * len(unit) if labels is None else list(labels)
    for name, its in (("paths", paths), ("labels", labels)):
        if len(its) != len(unit) or not all(isinstance(one, str) for one in its):
            raise BadArgument(name, len(its), f"{len(unit)} words, one for each vector")
    none = np.full(len(unit), -1)
    rows = Rows(list(paths), labels, none, none.astype(np.int32), none, none)
    return Part(rows, encode(unit, STORED[0]), [b""] * len(unit))


def _commit(
    folder: Path, manifest: Manifest, parts: list[Folder | Part], projection: Projection | None,
    kept: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Make the rows of these parts, or some of them, the gallery's."""
    rows = joined(part.rows for part in parts)
    places = [(store, row) for store, part in enumerate(parts) for row in range(len(part.rows))]
    stores: list[Store] = [
        Kept(part, manifest.stored, projection) if isinstance(part, Part) else part for part in parts
    ]
    if kept is not None:
        rows, places = taken(rows, kept), [places[row] for row in kept]
    commit(folder, manifest, rows, stores, places, projection)
