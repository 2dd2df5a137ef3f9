"""Images that belong together: near copies, and clusters, by k-means or by density."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from isosphere.errors import BadArgument, NoModel
from isosphere.metrics.clustering import kmeans
from isosphere.metrics.nearest import pairs_above
from isosphere.report.retrievals import spread

from .gallery import Gallery
from .reading import opened

SAMPLE = 256  # images that a threshold is suggested from
FOUND = 0.95  # share of small, compressed copies that the suggested threshold finds
TRIED = 37  # thresholds
PAIRS = 20_000_000  # at most; more are no copies but a threshold that is too low
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Edges:
    """Pairs of rows, i < j, with their cosines, (P,) each."""

    left: np.ndarray
    right: np.ndarray
    cosines: np.ndarray

    def components(self, count: int) -> np.ndarray:
        """A number for each of the rows, the same for those that pairs connect, int64 (N,)."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(len(self.left), bool)
        return connected_components(coo_array((ones, (self.left, self.right)), (count, count)), directed=False)[1]


def edges_above(gallery: Gallery, least: float, progress: Progress | None = None) -> Edges:
    """All pairs of a gallery's rows with a cosine of at least this."""
    parts, count = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))], 0
    for part in pairs_above(gallery.kept, least, gallery.torch_device, progress):
        parts.append(tuple(its.cpu().numpy() for its in part))  # type: ignore[arg-type]
        count += len(part[0])
        if count > PAIRS:
            raise BadArgument("above", least, f"higher: more than {PAIRS:,} pairs are that near")
    return Edges(*(np.concatenate(its) for its in zip(*parts, strict=True)))


def suggested_above(gallery: Gallery) -> float:
    """The cosine that 95 % of copies reach: the gallery's small pictures, embedded and compared with their originals.

    A small picture is what copies usually are: shrunk and compressed again.
    """
    rows = [row for row in spread(len(gallery), SAMPLE) if gallery.thumbnail(row)]
    if gallery.manifest.model is None or not rows:
        raise NoModel(gallery.folder)
    copies = gallery.embed([opened(gallery.thumbnail(row)) for row in rows]).cpu()
    cosines = (copies * gallery.vectors[torch.tensor(rows)]).sum(1)
    return float(cosines.quantile(1 - FOUND))


def duplicates(gallery: Gallery, above: float, progress: Progress | None = None) -> tuple[list[np.ndarray], Edges]:
    """Groups of rows (two or more) that pairs with this cosine or more connect, the nearest first, and all pairs."""
    edges = edges_above(gallery, above, progress)
    member = edges.components(len(gallery))
    nearest = np.full(len(gallery), -np.inf)
    np.maximum.at(nearest, member[edges.left], edges.cosines)
    order = np.argsort(member, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(member[order])) + 1) if len(order) else []
    groups = [group for group in groups if len(group) > 1]
    return sorted(groups, key=lambda group: (-nearest[member[group[0]]], group[0])), edges


def by_means(gallery: Gallery, clusters: int, seed: int = 0) -> np.ndarray:
    """The cluster of each row, int64 (N,), by k-means on directions."""
    return kmeans(gallery.vectors[:].to(gallery.torch_device), clusters, seed)[0].cpu().numpy()


def by_density(gallery: Gallery, above: float, least: int = 5, progress: Progress | None = None) -> np.ndarray:
    """The cluster of each row, -1 for none, int64 (N,): DBSCAN by cosine.

    A row with `least` rows or more within the cosine `above`, itself counted, is dense. Dense rows that near each other
    are one cluster. Other rows join the nearest dense row within it. scikit-learn's needs all distances at once.
    """
    edges, count = edges_above(gallery, above, progress), len(gallery)
    near = 1 + np.bincount(edges.left, minlength=count) + np.bincount(edges.right, minlength=count)
    dense = near >= least
    inner = dense[edges.left] & dense[edges.right]
    member = Edges(edges.left[inner], edges.right[inner], edges.cosines[inner]).components(count)
    best, home = np.full(count, -np.inf), np.full(count, -1)
    home[dense] = member[dense]
    for one, other in ((edges.left, edges.right), (edges.right, edges.left)):
        border = np.flatnonzero(~dense[one] & dense[other])
        border = border[np.argsort(edges.cosines[border], kind="stable")]  # the last of each row is its nearest
        rows, cosines = one[border], edges.cosines[border]
        nearer = cosines > best[rows]
        best[rows[nearer]], home[rows[nearer]] = cosines[nearer], member[other[border[nearer]]]
    return renumbered(home)


def renumbered(clusters: np.ndarray) -> np.ndarray:
    """Clusters by size, the largest 0; -1 stays."""
    names, sizes = np.unique(clusters[clusters >= 0], return_counts=True)
    place = {name: rank for rank, name in enumerate(names[np.argsort(-sizes, kind="stable")].tolist())} | {-1: -1}
    return np.asarray([place[name] for name in clusters.tolist()], np.int64)


def suggested_density(gallery: Gallery, least: int = 5, progress: Progress | None = None) -> float:
    """The cosine that gives most clusters, of some that make 5 to 95 % of all rows dense.

    Clusters are counted among the 2 * `least` nearest of each row, which needs no pairs of all.
    """
    count = len(gallery)
    if count <= least:
        raise BadArgument("least", least, f"below {count}, the images")
    found = [one for _, one in gallery.neighbors(2 * least, progress=progress)]
    scores, indices = (torch.cat([part.cpu() for part in parts]).numpy() for parts in zip(*found, strict=True))
    reach = scores[:, least - 2] if least > 1 else scores[:, 0]
    rows = np.arange(count).repeat(scores.shape[1])
    best, most = 1.0, -1
    for above in np.unique(np.quantile(reach, np.linspace(0.05, 0.95, TRIED)))[::-1].tolist():
        dense = reach >= above
        kept = (scores.ravel() >= above) & dense[rows] & dense[indices.ravel()]
        member = Edges(rows[kept], indices.ravel()[kept], scores.ravel()[kept]).components(count)
        clusters = len(np.unique(member[dense]))
        if clusters > most:
            best, most = above, clusters
    return best
