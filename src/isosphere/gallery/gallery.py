"""A gallery that is open: unit vectors of images with paths, labels and thumbnails, and what is nearest to others."""

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isosphere import distributed
from isosphere.errors import BadArgument, NoModel, OtherModel, UnknownName
from isosphere.inference import Trained, fingerprint, for_other_images, load
from isosphere.metrics.nearest import Nearest, nearest, ranked
from isosphere.metrics.neighbors import checked_embeddings, directions
from isosphere.recipes import options

from .codes import decode, read_projection
from .manifest import Manifest, read_manifest
from .rows import Folder

if TYPE_CHECKING:
    from .engines import Engine

Where = str | Collection[str] | np.ndarray | Tensor | None
"""Rows that are searched: those of a label or of several, or a mask, bool (N,)."""
BATCH = 4096  # rows that are searched for at once
RETRIES = 5  # to open a gallery that is being replaced


class Found(NamedTuple):
    """What was found for each query, best first: cosines (Q, k), row numbers (Q, k), their paths and labels."""

    scores: np.ndarray
    indices: np.ndarray
    paths: list[list[str]]
    labels: list[list[str]]


class Kept:
    """Rows as they are kept, which `scales` (N,) make unit vectors: what `nearest` searches."""

    def __init__(self, codes: Tensor, scales: Tensor, stored: str, dim: int) -> None:
        self.codes, self.scales, self.stored, self.dim = codes, scales, stored, dim

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        kept = self.codes[rows if isinstance(rows, slice) else rows.to(self.codes.device)]
        return decode(kept, self.stored, self.dim)

    def on(self, device: torch.device) -> "Kept":
        """The same on a device, if that is a GPU with room for them."""
        if device.type != "cuda" or self.codes.nbytes > torch.cuda.mem_get_info(device)[0] / 2:
            return self
        return Kept(self.codes.to(device), self.scales.to(device), self.stored, self.dim)


class Vectors:
    """Unit vectors (N, D), float32, read when they are asked for: `vectors[3:9]`, or by a tensor of rows."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return self.kept[rows].float() * self.kept.scales[rows, None]


class Gallery:
    """Images that were indexed: `vectors[i:j]` are their directions (N, D), `labels` and `paths` have N, too.

    `thumbnail(i)` is a small WebP. `isosphere.load_gallery` opens a gallery. What is open stays as it is when the
    folder is indexed again.
    """

    def __init__(self, folder: Path, manifest: Manifest, held: Folder, device: str | torch.device = "auto") -> None:
        self.folder, self.manifest, self.device = folder, manifest, device
        self._held = held
        self.labels, self.ids, self.thumbnail = held.rows.labels, held.rows.ids, held.thumbnail
        codes, scales = torch.from_numpy(held.vectors), torch.from_numpy(held.scales)  # codes stay in their file
        self.kept = Kept(codes, scales, manifest.stored, manifest.dim)
        self.vectors = Vectors(self.kept)
        self.projection = read_projection(held.folder)
        self.engine: Engine | None = None  # None searches exactly
        self._model: Trained | None = None

    def __len__(self) -> int:
        return self.manifest.count

    def __repr__(self) -> str:
        return f"Gallery({str(self.folder)!r}, {len(self)} images of {len(self.classes)} classes)"

    @cached_property
    def paths(self) -> list[str]:
        """The files as they can be opened from here, whether they are still there or not."""
        homes = [*(str(home_of(self.folder, source)) for source in self.manifest.sources), ""]  # the last for -1
        places = zip(self._held.rows.sources.tolist(), self._held.rows.paths, strict=True)
        joined = [os.path.join(homes[source], path) for source, path in places]
        return [os.path.normpath(path) if os.pardir in path else path for path in joined]  # those of a CSV

    @property
    def names(self) -> list[str]:
        """The files as seen from the folder or CSV that was indexed, which says nothing of this machine."""
        return self._held.rows.paths

    @cached_property
    def classes(self) -> list[str]:
        """The labels that there are, each once, in the order in which they first stand."""
        return list(dict.fromkeys(self.labels))

    @cached_property
    def codes(self) -> np.ndarray:
        """The label of each row as a number of `classes`, int64 (N,)."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        return np.asarray([numbers[label] for label in self.labels], np.int64)

    @property
    def labeled(self) -> bool:
        """Whether labels say anything: images all of one class have none."""
        return len(self.classes) > 1

    @cached_property
    def torch_device(self) -> torch.device:
        """Where products are computed."""
        return distributed.find_device(str(self.device))

    @property
    def model(self) -> Trained:
        """The model that embedded the images, loaded when it is first needed."""
        if self._model is None:
            self.use(None)
        assert self._model is not None
        return self._model

    def use(self, model: Trained | str | Path | None) -> None:
        """Take this run as the one that embedded the images, as where it has moved; refused if it is another."""
        made_by = self.manifest.model
        if made_by is None:
            raise NoModel(self.folder)
        place = home_of(self.folder, made_by.run) if model is None else model
        trained = place if isinstance(place, Trained) else load(place, self.device)
        if fingerprint(trained.model) != made_by.hash:
            raise OtherModel(self.folder, "the weights differ")
        changes = {f"data.{name}": value for name, value in made_by.preprocessing.items()}
        data = for_other_images(trained.recipe)
        if data.data.framed:
            changes.pop("data.size", None)
        self._model = replace(trained, recipe=options.override(data, changes))

    def embed(self, images: Any) -> Tensor:
        """Unit vectors (Q, D) of images as the gallery has them: files, PIL images or pixels, as `run.embed` takes."""
        return self._projected(directions(self.model.embed(images)))

    def _projected(self, unit: Tensor) -> Tensor:
        return unit.float() if self.projection is None else self.projection(unit)

    def search(self, images: Any, k: int = 10, where: Where = None) -> Found:
        """The k nearest to each of the images, by cosine. Ties stand in the order of the rows.

        `images` are what `run.embed` takes, or embeddings (Q, D), float, of any length. `where` restricts the search to
        a label, to some labels, or to the rows of a mask, bool (N,). There are fewer than k if fewer can be found.
        """
        queries, engine = self.queries(images), self.engine
        found = self.nearest(queries, k, where) if engine is None else self.by_engine(engine, queries, k, where)
        indices = found.indices.cpu().numpy()
        paths, labels = ([[its[i] for i in row] for row in indices.tolist()] for its in (self.paths, self.labels))
        return Found(found.scores.cpu().numpy(), indices, paths, labels)

    def queries(self, images: Any) -> Tensor:
        """Unit vectors (Q, D) of images or of embeddings."""
        given = torch.as_tensor(images) if isinstance(images, np.ndarray | Tensor) else images
        if not isinstance(given, Tensor) or not given.is_floating_point() or given.ndim > 2:
            return self.embed(images)
        vectors = checked_embeddings(given[None] if given.ndim == 1 else given, "vectors")
        if vectors.shape[1] != self.manifest.width:
            raise BadArgument("vectors", tuple(vectors.shape), f"of shape (Q, {self.manifest.width})")
        return self._projected(directions(vectors))

    def nearest(self, queries: Tensor, k: int, where: Where = None, skip: Tensor | None = None) -> Nearest:
        """Cosines and rows of the k nearest to unit vectors (Q, D); `skip` (Q,) are rows that they do not find.

        It is exact. Only `search` takes the engine, if the gallery has been given one.
        """
        if not len(self):
            raise BadArgument("gallery", str(self.folder), "one with images in it")
        return nearest(queries.to(self.torch_device), self._searched, k, skip, self.chosen(where))

    def by_engine(self, engine: "Engine", queries: Tensor, k: int, where: Where) -> Nearest:
        """What an engine finds, in the order of the gallery's own cosines; a query that finds too few is searched
        exactly, and so are rows that the engine cannot choose.
        """
        labels = [where] if isinstance(where, str) else where
        chosen = self.chosen(where)
        most = len(self) if chosen is None else len(chosen)
        if where is not None and (not engine.filters or isinstance(where, np.ndarray | Tensor)):
            return self.nearest(queries, k, where)
        asked = min(k * engine.spare, most)
        numbers = engine.search(queries, asked, None if labels is None else list(labels))
        place = np.searchsorted(self.ids[self._order], numbers).clip(max=len(self) - 1)
        rows = torch.from_numpy(self._order[place])
        whole = torch.from_numpy((numbers == self.ids[rows.numpy()]).all(1)).to(self.torch_device)
        found = ranked(queries.to(self.torch_device), self._searched, rows.to(self.torch_device))
        found = Nearest(*(its[:, :k].contiguous() for its in found))
        if not whole.all():
            missed = (~whole).nonzero().squeeze(1)
            exact = self.nearest(queries.to(self.torch_device)[missed], k, where)
            found.scores[missed], found.indices[missed] = exact
        return found

    @cached_property
    def _order(self) -> np.ndarray:
        """Rows by their own numbers."""
        return np.argsort(self.ids)

    @cached_property
    def _searched(self) -> Kept:
        return self.kept.on(self.torch_device)

    def neighbors(
        self, k: int, rows: Tensor | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[Tensor, Nearest]]:
        """The k nearest other images of some rows (R,), or of all: a part of the rows, then what is nearest to them."""
        rows = torch.arange(len(self)) if rows is None else rows
        done = 0
        for part in rows.split(BATCH) if len(rows) else ():
            yield part, self.nearest(self.vectors[part], k, skip=part)
            done += len(part)
            if progress is not None:
                progress(done, len(rows))

    def chosen(self, where: Where) -> Tensor | None:
        """The rows that `where` means, ascending; None for all."""
        if where is None:
            return None
        if isinstance(where, np.ndarray | Tensor):
            mask = torch.as_tensor(where)
            if mask.dtype != torch.bool or mask.shape != (len(self),):
                raise BadArgument("where", f"{mask.dtype} {tuple(mask.shape)}", f"labels, or bool ({len(self)},)")
        else:
            names = [where] if isinstance(where, str) else list(where)
            if unknown := [name for name in names if name not in self.classes]:
                raise UnknownName("label", unknown[0], self.classes)
            mask = torch.from_numpy(np.isin(self.codes, [self.classes.index(name) for name in names]))
        if not mask.any():
            raise BadArgument("where", where, "one that leaves a row to search")
        return mask.nonzero().squeeze(1)


def load_gallery(
    folder: str | Path, device: str | torch.device = "auto", engine: str | None = None
) -> Gallery:
    """Open a gallery that `isosphere index` made.

    The model is loaded when images are first searched, on the device: "auto", "cpu" or "cuda". Search is exact without
    an `engine`: "usearch", "usearch-int8" or "qdrant", as `isosphere index` has made it.
    """
    found = _opened(Path(folder), device)
    if engine is not None:
        from .engines import use_engine

        use_engine(found, engine)
    return found


def _opened(folder: Path, device: str | torch.device) -> Gallery:
    for attempt in range(RETRIES):
        manifest = read_manifest(folder)
        try:
            return Gallery(folder, manifest, Folder(folder / manifest.data), device)
        except FileNotFoundError:  # replaced between the two
            if attempt == RETRIES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def home_of(folder: Path, place: str) -> Path:
    """A place that the manifest names, as seen from the current folder if it is below, else absolute."""
    found = Path(os.path.normpath(os.path.join(os.path.realpath(folder), place)))
    here = Path.cwd()
    return found.relative_to(here) if found.is_relative_to(here) else found
