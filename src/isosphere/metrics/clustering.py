"""k-means on the points' device, and how well clusters agree with labels: NMI and pairwise F1.

k-means++ is the greedy kind, as in scikit-learn. Of 2 + ln k candidates a step it keeps the one that lowers the cost
most.
"""

import math
from numbers import Integral

import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import (
    Array,
    block_rows,
    checked_embeddings,
    checked_labels,
    directions,
    numbered,
    widened,
    widest_type,
)

POOL = 1 << 24  # distances that seeding holds at once; on every device alike, for one seed to give one result


def kmeans(
    points: Array, clusters: int, seed: int = 0, iterations: int = 300, tolerance: float = 1e-4
) -> tuple[Tensor, Tensor, float]:
    """Clusters (N, D) points as they are: assignments (N,), centroids (clusters, D), sum of squared distances.

    Pass `sphere.directions(embeddings)` to cluster by cosine. Stops when the centroids' squared movement is at most
    `tolerance` times the points' mean variance. An empty cluster moves to the point farthest from its centroid. One
    seed gives one result on CPU; on a GPU only under `torch.use_deterministic_algorithms`.
    """
    points = checked_embeddings(points, "points")
    if not isinstance(clusters, Integral) or not 1 <= clusters <= len(points):
        raise BadArgument("clusters", clusters, f"a whole number from 1 to that of the points, {len(points)}")
    origin = points.mean(0)
    points = points - origin  # |x|^2 - 2 xc + |c|^2 cancels badly far from the origin
    squares = points.square().sum(1)
    limit = tolerance * float(squares.mean()) / points.shape[1]
    with torch.autocast(points.device.type, enabled=False):
        centroids = _seeded(points, squares, clusters, torch.Generator().manual_seed(seed))
        assignments, relative = _nearest(points, centroids)
        for _ in range(iterations):
            before, centroids = centroids, _updated(points, squares, centroids, (assignments, relative))
            _reassign(points, centroids, (centroids != before).any(1), assignments, relative)
            if float((centroids - before).square().sum()) <= limit:
                break
    step = block_rows(points.shape[1] * 16, points.device)
    inertia = sum(
        (part - centroids[nearest]).square().sum(dtype=widest_type(points.device))
        for part, nearest in zip(points.split(step), assignments.split(step), strict=True)
    )
    return assignments, centroids + origin, float(inertia)


def clustering_metrics(embeddings: Array, labels: Array, seed: int = 0) -> dict[str, float]:
    """NMI and pairwise F1 of k-means on directions, (N, D), (N,). k is the number of classes in the labels."""
    embeddings = checked_embeddings(embeddings)
    (labels,) = numbered(labels)
    labels = checked_labels(labels, len(embeddings), embeddings.device)
    assignments, _, _ = kmeans(directions(embeddings), len(labels.unique()), seed)
    return {"nmi": nmi(assignments, labels), "f1": pairwise_f1(assignments, labels)}


def nmi(clusters: Array, labels: Array) -> float:
    """Normalized mutual information 2 I / (H + H) of two partitions (N,), (N,); two trivial partitions agree: 1."""
    joint, rows, columns = (widened(count) / len(clusters) for count in _contingency(clusters, labels))
    joint, rows, columns = (-(share * share.log()).sum() for share in (joint, rows, columns))
    entropies = float(rows + columns)
    # I = H + H - H(joint); rounding may take it below zero.
    return max(0.0, 2 * (entropies - float(joint)) / entropies) if entropies > 0 else 1.0


def pairwise_f1(clusters: Array, labels: Array) -> float:
    """F1 of "these two are together" over all pairs of two partitions (N,), (N,). It is 1 where neither has a pair."""
    both, clustered, labeled = (int((count * (count - 1)).sum()) for count in _contingency(clusters, labels))
    return 2 * both / (clustered + labeled) if clustered + labeled else 1.0


def _contingency(clusters: Array, labels: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes of the non-empty cells, of the clusters and of the classes, int64; never a dense table."""
    if len(clusters) == len(labels) == 0:  # of which a list would be taken for float
        raise BadArgument("clusters", 0, "labels of one row at least")
    (clusters,), (labels,) = numbered(clusters), numbered(labels)
    clusters = checked_labels(clusters, len(clusters), name="clusters")
    labels = checked_labels(labels, len(clusters), clusters.device)
    _, row, rows = clusters.unique(return_inverse=True, return_counts=True)
    _, column, columns = labels.unique(return_inverse=True, return_counts=True)
    return (row * len(columns) + column).unique(return_counts=True)[1], rows, columns


def _seeded(points: Tensor, squares: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Greedy k-means++: (clusters, D) of the points, drawn in proportion to the squared distance to those before.

    Candidates are drawn for many steps at once, so that one large product gives all their distances. Distances only
    fall meanwhile. So a candidate is kept with the chance new / old, which makes the draw what it would be at its step.
    """
    trials = 2 + int(math.log(clusters))
    most = max(1, min(POOL // (trials * len(points)), clusters))  # steps at once
    buffer = points.new_empty(trials * most, len(points))
    chosen = torch.randint(len(points), (1,), generator=generator).to(points.device)
    nearest = _squared_distances(points, squares, chosen, buffer)[0].clamp(min=0)  # to a centroid so far, (N,)
    while len(chosen) < clusters:
        count = trials * max(1, min(most, len(chosen) // 4, clusters - len(chosen)))
        draws = torch.rand(2, count, generator=generator, dtype=torch.float64)
        draws = draws.to(points.device, widest_type(points.device))
        # In whole numbers: CUDA refuses a running sum of floats where deterministic algorithms are asked for.
        largest = nearest.amax().clamp(min=torch.finfo(points.dtype).tiny)
        cumulative = (nearest / largest * 2**30).long().cumsum(0)
        candidates = torch.searchsorted(cumulative, (draws[0] * cumulative[-1]).long(), right=True)
        candidates.clamp_(max=len(points) - 1)
        thresholds, found = draws[1] * nearest[candidates], []
        distances = _squared_distances(points, squares, candidates, buffer)  # (count, N)
        for _ in range(count // trials):
            kept = (nearest[candidates] >= thresholds).nonzero().squeeze(1)[:trials]
            if len(kept) < trials:  # draw anew
                break
            thresholds[kept] = torch.inf  # each is tried once
            reached = distances[kept]
            torch.minimum(reached, nearest, out=reached)  # (trials, N): the distances with each of them chosen
            best = reached.sum(1).argmin(keepdim=True)
            nearest = reached.index_select(0, best)[0].clamp_(min=0)
            found.append(candidates[kept].index_select(0, best))
        chosen = torch.cat([chosen, *found])
    return points[chosen]


def _squared_distances(points: Tensor, squares: Tensor, chosen: Tensor, buffer: Tensor) -> Tensor:
    """Squared distances from the chosen (C,) to all points, (C, N) in the buffer, 0 to themselves; rounding may go
    below 0.
    """
    out = torch.addmm(squares, points[chosen], points.T, alpha=-2, out=buffer[: len(chosen)])
    return out.add_(squares[chosen, None]).scatter_(1, chosen[:, None], 0)


def _nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Each point's nearest centroid and |c|^2 - 2 xc, its squared distance less |x|^2: (N,), (N,)."""
    squares = centroids.square().sum(1)
    step = block_rows(len(centroids) * points.element_size(), points.device)
    parts = [torch.addmm(squares, part, centroids.T, alpha=-2).min(1) for part in points.split(step)]
    return torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts])


def _reassign(points: Tensor, centroids: Tensor, moved: Tensor, assignments: Tensor, relative: Tensor) -> None:
    """Bring what `_nearest` gave up to date, (N,), (N,), now that some centroids have moved, bool (k,).

    A point whose own centroid stayed where it was can only go over to one that moved.
    """
    away, goals = moved[assignments], moved.nonzero().squeeze(1)
    if len(goals) == 0:
        return
    assignments[away], relative[away] = _nearest(points[away], centroids)
    stayed = (~away).nonzero().squeeze(1)
    found, values = _nearest(points[stayed], centroids[goals])
    closer = values < relative[stayed]
    assignments[stayed[closer]], relative[stayed[closer]] = goals[found[closer]], values[closer]


def _updated(
    points: Tensor, squares: Tensor, centroids: Tensor, nearest: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """One step of Lloyd: the mean of each centroid's nearest points. Empty clusters take the farthest points."""
    assignments, relative = nearest or _nearest(points, centroids)
    sizes = torch.zeros(len(centroids), dtype=torch.int64, device=points.device)
    sizes.index_add_(0, assignments, torch.ones_like(assignments))
    means = torch.zeros_like(centroids).index_add_(0, assignments, points) / sizes.clamp(min=1)[:, None]
    empty = (sizes == 0).nonzero().squeeze(1)
    means[empty] = points[(squares + relative).topk(len(empty)).indices]
    return means
