"""usearch (HNSW): millions of images on one machine, in a file that is mapped, in half precision or int8."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument, DamagedFile, need
from isosphere.report.retrievals import spread

if TYPE_CHECKING:
    from ..gallery import Gallery
    from . import Progress

WANTED = 0.95  # recall@10 for which a search looks at more of the graph
EXPANSIONS = (64, 128, 256, 512, 1024)
SPARE = 4  # for int8, which rounds more than the gallery may
SAMPLE = 200  # images by which the expansion is chosen
BATCH = 16384


class Usearch:
    """A file next to the gallery's data. `expansion` is how many nodes a search keeps in view."""

    filters = False

    def __init__(self, path: Path, kind: str, options: dict[str, Any]) -> None:
        self.path, self.kind, self.options = path, kind, options
        self.spare = SPARE if kind == "i8" else 1
        self.index: Any = None

    def search(self, queries: Tensor, k: int, labels: list[str] | None) -> np.ndarray:
        """Numbers of rows (Q, k), -1 for none."""
        if self.index is None:
            self.index = self._read(view=True)
        self.index.expansion_search = max(self.options.get("expansion", EXPANSIONS[0]), k)
        found = self.index.search(queries.cpu().float().numpy(), k, threads=torch.get_num_threads())
        keys = np.atleast_2d(found.keys).astype(np.int64)
        counts = np.atleast_1d(getattr(found, "counts", [keys.shape[1]]))
        return np.where(np.arange(keys.shape[1]) < counts[:, None], keys, -1)

    def sync(self, gallery: "Gallery", progress: "Progress | None" = None) -> None:
        """Remove and add what has changed, write the file anew, and choose the expansion."""
        module = need("usearch.index", "search", "this engine")
        if self.path.is_file():
            index = self._read(view=False)
            held = np.asarray(index.keys).astype(np.int64)
        else:
            index = module.Index(ndim=gallery.manifest.dim, metric="cos", dtype=self.kind)
            held = np.zeros(0, np.int64)
        gone = np.setdiff1d(held, gallery.ids)
        if len(gone):
            index.remove(gone.astype(np.uint64), threads=torch.get_num_threads())
        new = np.flatnonzero(~np.isin(gallery.ids, held))
        for start in range(0, len(new), BATCH):
            rows = new[start : start + BATCH]
            vectors = gallery.vectors[torch.from_numpy(rows)].numpy()
            index.add(gallery.ids[rows].astype(np.uint64), vectors, threads=torch.get_num_threads())
            if progress is not None:
                progress(min(start + BATCH, len(new)), len(new))
        temporary = self.path.with_name(f".{secrets.token_hex(6)}.tmp")
        try:
            index.save(str(temporary))
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        self.index = index
        self._choose(gallery)

    def _choose(self, gallery: "Gallery") -> None:
        """The least expansion that finds enough; the largest where none does."""
        rows = torch.tensor(spread(len(gallery), SAMPLE))
        queries = gallery.vectors[rows]
        exact = gallery.nearest(queries, 10).indices
        for expansion in EXPANSIONS:
            self.options["expansion"] = expansion
            found = gallery.by_engine(self, queries, exact.shape[1], None).indices
            if (exact[:, :, None] == found[:, None, :]).any(2).float().mean() >= WANTED:
                return

    def _read(self, view: bool) -> Any:
        module = need("usearch.index", "search", "this engine")
        try:
            index = module.Index.restore(str(self.path), view=view)
        except Exception as error:  # usearch raises RuntimeError and others on damaged files
            raise DamagedFile(self.path, f"{type(error).__name__}: {error}") from error
        if index is None:
            raise DamagedFile(self.path, "it is not there, or no index of usearch")
        return index


def check(url: str | None) -> None:
    """Refuse what cannot be made."""
    need("usearch.index", "search", "this engine")
    if url is not None:
        raise BadArgument("url", url, "given with the engine qdrant only")


def opened(gallery: "Gallery", name: str, options: dict[str, Any]) -> Usearch:
    """The engine of this name; int8 where the gallery keeps no more, or if asked."""
    need("usearch.index", "search", "this engine")
    small = name.endswith("-int8") or gallery.manifest.stored != "float16"
    return Usearch(gallery.folder / f"{name}.index", "i8" if small else "f16", options)
