"""Retrieval metrics as fractions: Recall@k, MAP@R and R-precision by cosine, exact, ties against the query.

A negative that scores the same as a positive is ranked before it. So a collapsed model scores 0 and not 1. Self is
excluded by index when there is no reference set. A query without any positive (a singleton) counts as wrong in every
metric. `singletons` says how many there are. Labels are integers, or words.

With `groups`, references of the query's class and group are left out: photographs of a person by one camera, say.
"""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import Array, Gallery, checked_labels, listed, numbered, total, widened

NEVER = torch.iinfo(torch.int32).max


def singletons(labels: Array, ref_labels: Array | None = None) -> int:
    """How many queries have no positive: labels (N,) met once, or not met in ref_labels (M,)."""
    labels, ref_labels = numbered(labels, ref_labels)
    labels = checked_labels(labels, len(labels))
    if ref_labels is not None:
        return int((~torch.isin(labels, checked_labels(ref_labels, len(ref_labels), labels.device))).sum())
    return int((labels.unique(return_counts=True)[1] == 1).sum())


def recall_at_k(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] | int = (1, 2, 4, 8),
    ref_embeddings: Array | None = None,
    ref_labels: Array | None = None,
    groups: Array | None = None,
    ref_groups: Array | None = None,
) -> dict[int, float]:
    """The fraction of queries (N, D) with a positive among their k nearest, for each k.

    Without references the queries are searched among themselves, each without itself. References (M, D) are searched
    whole, so they must not hold the queries.
    """
    ks = checked_ks(ks)
    gallery = Gallery(embeddings, labels, ref_embeddings, ref_labels, groups, ref_groups)
    return _recalls(torch.cat([negatives_ahead(pos, neg) for _, pos, neg in gallery.blocks()]), ks)


def first_is_right(embeddings: Array, labels: Array) -> Tensor:
    """Whether each embedding's nearest other one has its label, bool (N,): Recall@1 query by query."""
    gallery = Gallery(embeddings, labels, None, None)
    return torch.cat([negatives_ahead(pos, neg) for _, pos, neg in gallery.blocks()]) < 1


def map_at_r(
    embeddings: Array,
    labels: Array,
    ref_embeddings: Array | None = None,
    ref_labels: Array | None = None,
    groups: Array | None = None,
    ref_groups: Array | None = None,
) -> float:
    """Mean average precision at R, where R is the query's number of positives, over queries (N, D)."""
    return _at_r(Gallery(embeddings, labels, ref_embeddings, ref_labels, groups, ref_groups))[0]


def r_precision(
    embeddings: Array,
    labels: Array,
    ref_embeddings: Array | None = None,
    ref_labels: Array | None = None,
    groups: Array | None = None,
    ref_groups: Array | None = None,
) -> float:
    """The mean fraction of positives among the R nearest. R is the query's number of positives, over queries (N, D)."""
    return _at_r(Gallery(embeddings, labels, ref_embeddings, ref_labels, groups, ref_groups))[1]


def retrieval_metrics(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] | int = (1, 2, 4, 8),
    ref_embeddings: Array | None = None,
    ref_labels: Array | None = None,
    groups: Array | None = None,
    ref_groups: Array | None = None,
) -> dict[str, float]:
    """All in one pass over the scores: recall@k for each k, map@r, r_precision and the count of singletons."""
    ks = checked_ks(ks)
    gallery = Gallery(embeddings, labels, ref_embeddings, ref_labels, groups, ref_groups)
    ahead, sums = [], []
    for rows, positives, negatives in gallery.blocks():
        ahead.append(negatives_ahead(positives, negatives))
        sums.append(_precision_sums(positives, negatives, gallery.counts[rows]))
    metrics = {f"recall@{k}": value for k, value in _recalls(torch.cat(ahead), ks).items()}
    metrics["map@r"], metrics["r_precision"] = (total(sums) / len(gallery.counts)).tolist()
    return metrics | {"singletons": int((gallery.counts == 0).sum())}


def checked_ks(ks: Sequence[int] | int) -> list[int]:
    """Whole numbers of neighbors."""
    ks = listed(ks)
    for k in ks:
        if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
            raise BadArgument("ks", k, "positive integers")
    return [int(k) for k in ks]


def _recalls(ahead: Tensor, ks: list[int]) -> dict[int, float]:
    return {k: int((ahead < k).sum()) / len(ahead) for k in ks}


def _at_r(gallery: Gallery) -> tuple[float, float]:
    sums = [_precision_sums(pos, neg, gallery.counts[rows]) for rows, pos, neg in gallery.blocks()]
    mean_average, precision = (total(sums) / len(gallery.counts)).tolist()
    return mean_average, precision


def negatives_ahead(positives: Tensor, negatives: Tensor) -> Tensor:
    """How many negatives score at least as high as the best positive, (B, R), (B, M) -> (B,). Singletons have NEVER."""
    best = positives.amax(1)
    ahead = (negatives >= best[:, None]).sum(1, dtype=torch.int32)
    return torch.where(best > -torch.inf, ahead, NEVER)


def _precision_sums(positives: Tensor, negatives: Tensor, counts: Tensor) -> Tensor:
    """Average precision at R and R-precision, summed over a block's queries, (B, R), (B, M), (B,) -> (2,).

    The i-th best positive has rank i + the number of negatives that score at least as high. The precision there is i /
    rank. Negatives beyond the R best cannot matter: they stand behind rank R.
    """
    positives = positives.sort(1, descending=True).values
    nearest = negatives.topk(min(positives.shape[1], negatives.shape[1]), 1).values.flip(1)  # ascending
    ahead = nearest.shape[1] - torch.searchsorted(nearest, positives)
    place = torch.arange(1, positives.shape[1] + 1, device=counts.device)
    rank = place + ahead
    hit = widened(rank <= counts[:, None])
    return torch.stack([(hit * place / rank).sum(1), hit.sum(1)]).div(counts.clamp(min=1)).sum(1)
