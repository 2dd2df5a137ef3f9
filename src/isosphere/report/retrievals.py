"""What is nearest to test images, and which queries to show: an even spread, and the worst errors."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from isosphere.errors import BadArgument
from isosphere.runs import Embedded
from isosphere.sphere import directions, products


class Nearest(NamedTuple):
    """Neighbors' indices and cosines (Q, K), best first, and what is known of each query.

    `lead` (Q,) is how far the nearest wrong image is ahead of the nearest right one. `alone` (Q,)
    marks queries without any right image.
    """

    indices: np.ndarray
    cosines: np.ndarray
    lead: np.ndarray
    alone: np.ndarray


def nearest(held: Embedded, queries: Sequence[int] | np.ndarray, count: int) -> Nearest:
    """The nearest images of some queries (Q,) of a test set by cosine, in blocks of rows.

    Queries with a gallery of their own search that; where all images ask, each searches all others. Images of a query's
    class and group are left out.
    """
    unit, labels = directions(torch.from_numpy(held.embeddings)), torch.from_numpy(held.labels)
    asks = torch.from_numpy(held.is_query)
    groups = None if held.groups is None else torch.from_numpy(held.groups)
    if count > findable(held):
        raise BadArgument("count", count, f"at most {findable(held)}, the images that can be found")
    blocks = []
    for rows in torch.as_tensor(np.asarray(queries, dtype=np.int64)).split(256):
        scores = products(unit[rows], unit)  # (B, N)
        if asks.all():
            scores[torch.arange(len(rows)), rows] = -torch.inf  # self
        else:
            scores[:, asks] = -torch.inf
        same = labels[rows, None] == labels
        if groups is not None:
            scores.masked_fill_(same & (groups[rows, None] == groups), -torch.inf)
        right, wrong = (scores.masked_fill(~mask, -torch.inf).amax(1) for mask in (same, ~same))
        # Without any right image an error is not the model's; without any wrong one there is none.
        lead = torch.where(right.isfinite() & wrong.isfinite(), wrong - right, -torch.inf)
        best = scores.topk(count, 1)
        blocks.append((best.indices, best.values, lead, ~right.isfinite()))
    return Nearest(*(torch.cat(parts).numpy() for parts in zip(*blocks, strict=True)))


def findable(held: Embedded) -> int:
    """How many images every query can find."""
    found = np.ones(len(held.labels), bool) if held.is_query.all() else ~held.is_query
    marks = np.arange(len(found)) if held.groups is None else held.groups  # alone, an image is left out of its own
    _, counts = np.unique(np.stack([held.labels, marks])[:, found], axis=1, return_counts=True)
    left_out = int(counts.max(initial=0)) if held.is_query.all() or held.groups is not None else 0
    return int(found.sum()) - left_out


def evenly(held: Embedded, count: int) -> list[int]:
    """Queries that nobody picked: the middle image of classes spread evenly over all that have one to find."""
    classes, sizes = np.unique(held.labels, return_counts=True)
    if held.is_query.all():
        classes = classes[sizes > 1]
    else:
        classes = np.intersect1d(held.labels[held.is_query], held.labels[~held.is_query])
    if not len(classes):
        raise BadArgument("test images", f"{len(held.labels)} single ones", "two or more of some class")
    places = [np.flatnonzero((held.labels == label) & held.is_query) for label in classes[spread(len(classes), count)]]
    return [int(its[len(its) // 2]) for its in places]


def worst_errors(lead: np.ndarray, count: int) -> list[int]:
    """Rows where a wrong image leads the right ones by most, worst first."""
    return [int(row) for row in np.argsort(-lead, kind="stable")[:count] if lead[row] >= 0]


def spread(size: int, count: int) -> list[int]:
    """`count` places, or all, spread evenly from the first to the last."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).round().astype(int)).tolist()
