"""Approximate indexes of a gallery, each in a file: usearch on this machine, Qdrant on others.

An engine holds a gallery's unit vectors by the rows' own numbers. Whoever changes a gallery brings its engines up to
date. What an engine finds is scored again with the gallery's vectors.
"""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.report.retrievals import spread

from ..commit import held
from ..gallery import Gallery, load_gallery
from ..manifest import write_manifest

ENGINES = {"usearch": "usearch_index", "usearch-int8": "usearch_index", "qdrant": "qdrant"}
SAMPLE = 1000  # of a gallery's images, by which recall is measured
Progress = Callable[[int, int], None]


class Engine(Protocol):
    """An index of the vectors of a gallery."""

    def sync(self, gallery: Gallery, progress: Progress | None = None) -> None:
        """Remove what the gallery no longer has, and add what is new."""

    def search(self, queries: Tensor, k: int, labels: list[str] | None) -> np.ndarray:
        """Numbers of rows (Q, k), -1 for none, of the nearest to unit vectors (Q, D); only these `labels`, if given."""

    filters: bool
    """Whether it searches some labels only."""
    spare: int
    """How many times as many rows as wanted it is asked for; the gallery's own vectors choose among them."""


class Recalled(NamedTuple):
    """The share of the k nearest that an engine finds, over so many of the gallery's images."""

    recall: float
    k: int
    images: int


def open_engine(gallery: Gallery, name: str, options: dict[str, Any] | None = None) -> Engine:
    """An engine of a gallery by its name, with the options that it was made with or these."""
    if name not in ENGINES:
        raise BadArgument("engine", name, " or ".join(ENGINES))
    known = gallery.manifest.engines.get(name)
    if known is None and options is None:
        made = f"one of this gallery; `isosphere index --engine {name}` makes it"
        raise BadArgument("engine", name, made)
    module = import_module(f"{__name__}.{ENGINES[name]}")
    return module.opened(gallery, name, options if options is not None else known)


def check_engine(name: str | None, url: str | None) -> None:
    """Refuse an engine that cannot be made, before long work."""
    if name is None and url is not None:
        raise BadArgument("url", url, "given with the engine qdrant only")
    if name is not None:
        if name not in ENGINES:
            raise BadArgument("engine", name, " or ".join(ENGINES))
        import_module(f"{__name__}.{ENGINES[name]}").check(url)


def use_engine(gallery: Gallery, name: str) -> Engine:
    """Let a gallery search by this engine. One that does not have the gallery's last change is refused."""
    gallery.engine = open_engine(gallery, name)
    if gallery.manifest.engines[name].get("data") != gallery.manifest.data:
        raise BadArgument("engine", name, "up to date with the gallery; run `isosphere index` again")
    return gallery.engine


def add_engine(folder: str | Path, name: str, options: dict[str, Any], progress: Progress | None = None) -> Recalled:
    """Make an engine of a gallery, or bring it up to date, and measure it against exact search."""
    with held(Path(folder)):
        gallery = load_gallery(folder)
        engine = open_engine(gallery, name, options)
        engine.sync(gallery, progress)
        engines = gallery.manifest.engines | {name: options | {"data": gallery.manifest.data}}
        write_manifest(Path(folder), replace(gallery.manifest, engines=engines))
    return recall(gallery, engine)


def sync_engines(folder: str | Path, progress: Progress | None = None) -> dict[str, Recalled]:
    """Bring all engines of a gallery up to date; those that were not, with their recall."""
    manifest = load_gallery(folder).manifest
    late = {name: its for name, its in manifest.engines.items() if its.get("data") != manifest.data}
    return {name: add_engine(folder, name, its, progress) for name, its in late.items()}


def recall(gallery: Gallery, engine: Engine, k: int = 10) -> Recalled:
    """How many of the k nearest, by exact search, an engine finds for some of the gallery's own images."""
    rows = torch.tensor(spread(len(gallery), SAMPLE))
    exact = gallery.nearest(gallery.vectors[rows], k).indices
    found = gallery.by_engine(engine, gallery.vectors[rows], exact.shape[1], None).indices
    shared = (exact[:, :, None] == found[:, None, :]).any(2)
    return Recalled(float(shared.float().mean()), exact.shape[1], len(rows))
