"""Identification of faces among distractors, by MegaFace's protocol; as fractions.

Ties count against the model. A distractor that scores the same as the mate stands before it, so a collapsed model
scores 0.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import (
    Array,
    Twins,
    block_rows,
    checked_embeddings,
    checked_labels,
    directions,
    grids,
    largest_eps,
    listed,
    numbered,
    tensor,
    widened,
)

COLUMNS = 1 << 15  # distractors in one matrix product


def identification(
    probes: Array,
    labels: Array,
    distractors: Array,
    counts: Sequence[int] | int = (10**3, 10**4, 10**5, 10**6),
    ks: Sequence[int] | int = (1,),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """MegaFace's protocol: how often a probe's mate is among the k nearest of the mate and n distractors.

    Each probe (N, D) meets each mate alone. Its mates are the other probes with its label, or with a gallery (M, D) the
    images there with its label. `rank{k}@{n}` is the fraction of these pairs, for each n of `counts`. The n distractors
    are the first of one seeded permutation, so larger sets contain the smaller. `pairs` is the number of pairs.
    `singletons` is that of probes without a mate, which count nowhere. `progress(done, all)` hears how many distractors
    have been met.
    """
    ks, counts = listed(ks), listed(counts)
    _check_within("ks", ks, torch.iinfo(torch.int64).max)
    rows, _, ahead = distractors_ahead(
        probes, labels, distractors, counts, max(ks), gallery, gallery_labels, seed, progress
    )
    result = {f"rank{k}@{n}": float(widened(ahead[n] < k).mean()) for n in ahead for k in ks}
    return result | {"pairs": len(rows), "singletons": len(probes) - len(rows.unique())}


def distractors_ahead(
    probes: Array,
    labels: Array,
    distractors: Array,
    counts: Sequence[int],
    most: int = 1,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
    """Rows of every pair of probe and mate, (P,), (P,), and how many distractors score at least as high, {n: (P,)}.

    The numbers are exact below `most`. Beyond, they are at least `most`. It runs on the probes' device in full float32,
    whatever TF32 says. Distractors are brought there piece by piece.
    """
    given = [tensor(rows) for rows in (probes, distractors, gallery) if rows is not None]
    distractors = checked_embeddings(given[1], "distractors")
    pairs = _Pairs(given[0], labels, gallery, gallery_labels)
    pairs.find_ties(largest_eps(pairs.probes, *given))
    _check_within("counts", counts, len(distractors))
    if distractors.shape[1] != pairs.probes.shape[1]:
        raise BadArgument("distractors", tuple(distractors.shape), f"of shape (M, {pairs.probes.shape[1]})")
    shuffled = torch.randperm(len(distractors), generator=torch.Generator().manual_seed(seed)).to(distractors.device)
    ahead, result, done = torch.zeros_like(pairs.rows), {}, 0
    with full_float32():
        for count in sorted(set(counts)):
            for piece in shuffled[done:count].split(COLUMNS):
                pairs.meet(directions(distractors[piece].to(pairs.probes)), most, ahead)
                done += len(piece)
                if progress is not None:
                    progress(done, max(counts))
            result[count] = ahead.clone()
    return pairs.order[pairs.rows], pairs.mate_order[pairs.columns], result


class _Pairs:
    """Probes and mates in the order of their labels, their pairs, and blocks of probes that share mates."""

    def __init__(self, probes: Array, labels: Array, gallery: Array | None, gallery_labels: Array | None) -> None:
        probes, (labels, gallery_labels) = checked_embeddings(probes, "probes"), numbered(labels, gallery_labels)
        labels = checked_labels(labels, len(probes), probes.device)
        if (gallery is None) != (gallery_labels is None):
            raise BadArgument("gallery_labels", None, "given where a gallery is, and only there")
        mates = probes if gallery is None else checked_embeddings(gallery, "gallery").to(probes)
        mate_labels = labels if gallery is None else gallery_labels
        mate_labels = checked_labels(mate_labels, len(mates), probes.device, "gallery_labels")
        if probes.shape[1] != mates.shape[1]:
            raise BadArgument("gallery", tuple(mates.shape), f"of shape (M, {probes.shape[1]})")
        labels, self.order = labels.sort(stable=True)
        wanted = torch.isin(mate_labels, labels).nonzero().squeeze(1)
        mate_labels, mate_order = mate_labels[wanted].sort(stable=True)
        self.mate_order = wanted[mate_order]
        self.probes, self.mates = directions(probes)[self.order], directions(mates)[self.mate_order]
        # The mates of a probe lie side by side, [first, end), those of the next probe there or right behind.
        first, end = (torch.searchsorted(mate_labels, labels, right=right) for right in (False, True))
        self.rows = torch.arange(len(labels), device=labels.device).repeat_interleave(end - first)
        skipped = first - (end - first).cumsum(0) + (end - first)
        self.columns = torch.arange(len(self.rows), device=labels.device) + skipped[self.rows]
        if gallery is None:
            others = self.rows != self.columns
            self.rows, self.columns = self.rows[others], self.columns[others]
        if len(self.rows) == 0:
            raise BadArgument("labels", f"those of {len(probes)} probes without a mate", "of two images at least")
        self.blocks = list(self._blocks(first, end))
        widest = max(columns.stop - columns.start for _, columns, _ in self.blocks)
        # Distractors, then mates: one product for both, in which equal directions get equal scores: ties are ties.
        self.joint = self.probes.new_zeros(_even(COLUMNS + widest), self.probes.shape[1])
        self.buffer = self.probes.new_empty(max(rows.stop - rows.start for rows, _, _ in self.blocks), len(self.joint))

    def find_ties(self, eps: float) -> None:
        """Where to look for distractors that equal a mate up to the rounding of numbers with that eps."""
        self.eps, self.cells = eps, grids(self.mates, eps)

    def _blocks(self, first: Tensor, end: Tensor) -> Iterator[tuple[slice, slice, slice]]:
        """Ranges of probes, mates and pairs: no more than COLUMNS mates, unless a single probe has them."""
        most, start = block_rows(COLUMNS * self.probes.element_size(), first.device), 0
        while start < len(first):
            stop = min(start + most, int(torch.searchsorted(end, first[start] + COLUMNS, right=True)))
            stop = max(stop, start + 1)
            pairs = slice(*(int(torch.searchsorted(self.rows, row)) for row in (start, stop)))
            if pairs.stop > pairs.start:
                yield slice(start, stop), slice(int(first[start]), int(end[stop - 1])), pairs
            start = stop

    def meet(self, distractors: Tensor, most: int, ahead: Tensor) -> None:
        """Add to `ahead` (P,), up to most, how many of the distractors' directions (C, D) a mate does not outscore."""
        size, shared = len(distractors), bool(torch.isin(grids(distractors, self.eps), self.cells).any())
        self.joint[:size] = distractors
        for rows, columns, pairs in self.blocks:
            stop = size + columns.stop - columns.start
            self.joint[size:stop] = self.mates[columns]
            scores = self.buffer.view(-1)[: (rows.stop - rows.start) * _even(stop)].view(-1, _even(stop))
            torch.mm(self.probes[rows], self.joint[: _even(stop)].T, out=scores)  # autocast leaves `out=` alone
            if shared:
                Twins(self.joint[:stop], self.eps).level(scores)
            among = scores[:, :size]
            best = among.amax(1, keepdim=True) if most == 1 else among.topk(min(most, size)).values
            row = self.rows[pairs] - rows.start
            mates = scores[row, self.columns[pairs] - columns.start + size]
            ahead[pairs] += (best[row] >= mates[:, None]).sum(1)


@contextmanager
def full_float32() -> Iterator[None]:
    """Float32 matrix products without TF32 or bfloat16, and the caller's settings again afterwards."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch before 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    backends: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    settings = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, setting in zip(backends, settings, strict=True):
            backend.fp32_precision = setting


def _even(size: int) -> int:
    return -(-size // 128) * 128  # fast kernels want aligned rows


def _check_within(name: str, values: Sequence[int], largest: int) -> None:
    for value in values or [0]:
        if isinstance(value, bool) or int(value) != value or not 1 <= value <= largest:
            limit = f"between 1 and {largest}, the number of distractors" if name == "counts" else "positive integers"
            raise BadArgument(name, value, limit)
