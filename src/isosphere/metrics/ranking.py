"""The whole ranking of a gallery: CMC and mAP, as persons are re-identified, exact, ties against the query.

Without `is_query` each image searches all others. With it the queries search the rest. References of the query's class
and of its `groups` are left out: photographs of a person by the same camera. A query that has no positive left asks for
what is not there. It does not count, as in the protocol of Market-1501; `retrieval.singletons` counts it as wrong.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from isosphere.errors import BadArgument

from .neighbors import Array, Gallery, checked_labels, numbered, tensor, total, widened
from .retrieval import checked_ks, negatives_ahead


def cmc_at_k(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] | int = (1, 5, 10),
    groups: Array | None = None,
    is_query: Array | None = None,
) -> dict[int, float]:
    """Cumulative matching: the fraction of queries with a positive among their k nearest, for each k."""
    ks = checked_ks(ks)
    found = ranking_metrics(embeddings, labels, ks, groups, is_query)
    return {k: found[f"cmc@{k}"] for k in ks}


def mean_average_precision(
    embeddings: Array, labels: Array, groups: Array | None = None, is_query: Array | None = None
) -> float:
    """mAP: the precision at each positive of the whole ranking, averaged over positives, then over queries."""
    return ranking_metrics(embeddings, labels, (), groups, is_query)["map"]


def ranking_metrics(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] | int = (1, 5, 10),
    groups: Array | None = None,
    is_query: Array | None = None,
) -> dict[str, float]:
    """All in one pass over the scores: cmc@k for each k, and map; 0 where no query has a positive."""
    ks = checked_ks(ks)
    gallery = Gallery(*parted(embeddings, labels, groups, is_query))
    asks = gallery.counts > 0
    ahead, sums = [], []
    for rows, positives, negatives in gallery.blocks():
        ahead.append(negatives_ahead(positives, negatives))
        sums.append(_average_precisions(positives, negatives, gallery.counts[rows]).sum())
    count, firsts = max(1, int(asks.sum())), torch.cat(ahead)
    found = {f"cmc@{k}": int(((firsts < k) & asks).sum()) / count for k in ks}
    return found | {"map": float(total(sums)) / count}


def parted(
    embeddings: Array, labels: Array, groups: Array | None = None, is_query: Array | None = None
) -> tuple[Array, Array, Array | None, Array | None, Array | None, Array | None]:
    """Embeddings and labels of the queries and of the gallery, then the groups of both, as `Gallery` takes them."""
    if is_query is None:
        return embeddings, labels, None, None, groups, None
    rows = tensor(embeddings)
    asks = tensor(is_query).to(rows.device)
    if asks.dtype != torch.bool or asks.shape != rows.shape[:1]:
        raise BadArgument("is_query", f"{asks.dtype} {tuple(asks.shape)}", f"{len(rows)} truth values")
    if not asks.any() or asks.all():
        raise BadArgument("is_query", "all" if asks.any() else "none", "true of some images and false of others")
    classes = checked_labels(numbered(labels)[0], len(rows), rows.device)
    query, gallery = (rows[asks], classes[asks]), (rows[~asks], classes[~asks])
    if groups is None:
        return *query, *gallery, None, None
    groups = checked_labels(numbered(groups)[0], len(rows), rows.device, "groups")
    return *query, *gallery, groups[asks], groups[~asks]


def _average_precisions(positives: Tensor, negatives: Tensor, counts: Tensor) -> Tensor:
    """Average precision of a block's queries, 0 without a positive, (B, R), (B, M), (B,) -> (B,).

    The i-th best positive has rank i + the number of negatives that score at least as high. So each negative is put in
    its place among the positives, which are few, and those beyond each positive are counted.
    """
    ascending = positives.sort(1).values
    passed = torch.searchsorted(ascending, negatives, right=True)  # positives that a negative is at least as good as
    counted = torch.zeros(len(positives), positives.shape[1] + 1, dtype=torch.int32, device=counts.device)
    counted.scatter_add_(1, passed, torch.ones_like(passed, dtype=torch.int32))
    ahead = counted.flip(1).cumsum(1)[:, :-1]  # of the best positive first
    place = torch.arange(1, positives.shape[1] + 1, device=counts.device)
    precision = widened(place <= counts[:, None]) * place / (place + ahead)
    return precision.sum(1) / counts.clamp(min=1)
