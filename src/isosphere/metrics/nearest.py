"""The nearest of many directions, exact: in blocks, with ties in the order of the rows.

A product of matrices finds candidates. It may round equal rows differently, by their places in it. So candidates are
scored again, each by itself in float64, and ordered by that score and then by their row. Where candidates that were
left out could tie with the last one found, a second pass takes them all.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import DEFAULT_BLOCK_BYTES, block_rows, widest_type

GROUP = 64  # neighboring scores of which only the largest is compared first
SPARE = 16  # candidates more than asked for, for rows that tie
COLUMNS, HEIGHT = 4096, 1024  # references and queries in one product on a CPU: scores stay in its cache
WIDE = 1 << 16  # references in one product on other devices, where kernels should be large


class Rows(Protocol):
    """References (N, D): a tensor, or a file whose rows become one when they are asked for.

    With an attribute `scales` (N,), rows times these are the unit vectors, else the rows are.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """Some rows, of any floating type, on any device."""


class Nearest(NamedTuple):
    """Cosines and row numbers of the nearest, best first: float32 (Q, k) and int64 (Q, k)."""

    scores: Tensor
    indices: Tensor


def nearest(
    queries: Tensor, references: Rows, k: int, skip: Tensor | None = None, among: Tensor | None = None
) -> Nearest:
    """The k nearest of unit vectors (N, D) to each of (Q, D), float32 on the queries' device, by inner product.

    `skip` (Q,) is a row that a query does not find: itself. `among` (M,), ascending, are the only rows that are
    searched. There are fewer than k columns if there are fewer rows.
    """
    search = _Search(queries, references, skip, among)
    k = min(k, search.fewest)
    if k < 1:
        raise BadArgument("k", k, "at least 1, with at least one row to find")
    wide = min(k + SPARE, search.size)
    coarse, columns = search.coarse(wide)
    exact = search.scored(torch.arange(len(queries), device=queries.device).repeat_interleave(wide), columns.flatten())
    exact = exact.view(columns.shape).masked_fill_(coarse == -torch.inf, -torch.inf)  # what is skipped
    found = _ordered(exact, columns)
    scores, columns = (part[:, :k].contiguous() for part in found)
    if wide < search.size:
        short = (scores[:, -1] <= coarse[:, -1] + search.error).nonzero().squeeze(1)
        if len(short):
            scores[short], columns[short] = search.complete(short, scores[short, -1] - search.error, k)
    return Nearest(scores, columns if among is None else among.to(columns.device)[columns])


def ranked(queries: Tensor, references: Rows, candidates: Tensor) -> Nearest:
    """Rows (Q, k) that were found for unit vectors (Q, D), with their cosines, the best first."""
    search = _Search(queries, references, None, None)
    numbers = torch.arange(len(queries), device=queries.device).repeat_interleave(candidates.shape[1])
    return Nearest(*_ordered(search.scored(numbers, candidates.flatten()).view(candidates.shape), candidates))


class _Search:
    """Queries (Q, D) and the columns of their score matrix, of which one block is held at a time."""

    def __init__(self, queries: Tensor, references: Rows, skip: Tensor | None, among: Tensor | None) -> None:
        self.queries, self.references, self.among = queries.detach().contiguous(), references, among
        self.size = len(references) if among is None else len(among)
        self.skip = None if skip is None else self._columns(skip.to(queries.device))
        self.fewest = self.size - int(self.skip is not None and bool((self.skip >= 0).any()))
        scales = scales_of(references, queries.device)
        self.scales = scales if scales is None or among is None else scales[among.to(queries.device)]
        tf32 = queries.is_cuda and torch.backends.cuda.matmul.allow_tf32
        self.error = queries.shape[1] * (2.0**-10 if tf32 else torch.finfo(torch.float32).eps)

    def _columns(self, skip: Tensor) -> Tensor:
        """The columns of rows (Q,); -1 for what is not searched."""
        if self.among is None:
            return skip
        among = self.among.to(skip.device)
        columns = torch.searchsorted(among, skip).clamp(max=len(among) - 1)
        return torch.where(among[columns] == skip, columns, -1)

    def taken(self, columns: slice | Tensor) -> Tensor:
        """The references of these columns (B, D), as they are kept."""
        if self.among is not None:
            columns = self.among[columns if isinstance(columns, slice) else columns.to(self.among.device)]
        return self.references[columns]

    def blocks(self, queries: Tensor) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Rows of the queries (B,), the first column, and their scores (B, C) in whole groups of columns.

        What is beyond the last reference, or skipped, is -inf.
        """
        step, height = block_shape(self.queries.device)
        space = self.queries.new_empty(min(step, self.size), self.queries.shape[1])  # memory that is new is slow
        for start in range(0, self.size, step):
            part = slice(start, min(start + step, self.size))
            block = self.taken(part)
            if (block.dtype, block.device) != (space.dtype, space.device):
                block = space[: len(block)].copy_(block)
            for rows in queries.split(height):
                scores = products(self.queries[rows], block)
                if self.scales is not None:
                    scores *= self.scales[part]
                if self.skip is not None:
                    own = self.skip[rows] - start
                    held = ((own >= 0) & (own < scores.shape[1])).nonzero().squeeze(1)
                    scores[held, own[held]] = -torch.inf
                if scores.shape[1] % GROUP:
                    scores = F.pad(scores, (0, -scores.shape[1] % GROUP), value=-torch.inf)
                yield rows, start, scores

    def coarse(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest scores of the products, and their columns, (Q, k) each, the last of them the least.

        Of a block only groups are looked into that have a score above the k-th best so far.
        """
        everyone = torch.arange(len(self.queries), device=self.queries.device)
        best = self.queries.new_full((len(everyone), k), -torch.inf)
        columns, late, seen = everyone.new_zeros(len(everyone), k), Found(), 0
        for rows, start, scores in self.blocks(everyone):
            if start < k:  # the first blocks: all are among the best so far
                merged, order = torch.cat([best[rows], scores], 1).topk(k, 1)
                places = torch.arange(start, start + scores.shape[1], device=rows.device).clamp(max=self.size - 1)
                columns[rows] = torch.cat([columns[rows], places.expand(len(rows), -1)], 1).gather(1, order)
                best[rows], seen = merged, start + scores.shape[1]
                continue
            least = best[rows, -1]
            groups = scores.view(len(rows), -1, GROUP)
            row, group = (groups.amax(2) > least[:, None]).nonzero(as_tuple=True)
            inside = groups[row, group]
            place, lane = (inside > least[row, None]).nonzero(as_tuple=True)
            late.add(rows[row[place]], start + group[place] * GROUP + lane, inside[place, lane])
            # As often as the number of references doubles: then as many come as are there.
            if rows[-1] == everyone[-1] and (start >= 2 * seen or late.count > 4 * best.numel()):
                best, columns = late.merged(everyone, columns, best)
                late, seen = Found(), start
        return late.merged(everyone, columns, best) if late.count else (best, columns)

    def complete(self, queries: Tensor, least: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of all columns that may reach `least` (Q,), (Q, k) each, for some of the queries."""
        wanted = self.queries.new_full((len(self.queries),), torch.inf).index_copy_(0, queries, least)
        place = torch.empty(len(self.queries), dtype=torch.long, device=queries.device)
        place[queries] = torch.arange(len(queries), device=queries.device)
        found = Found()
        for rows, start, scores in self.blocks(queries):
            row, column = (scores >= wanted[rows][:, None]).nonzero(as_tuple=True)
            found.add(place[rows[row]], column + start, self.scored(rows[row], column + start))
            if found.count > 4 * COLUMNS:  # all rows may be equal: keep only the best
                found = found.best(k)
        _, columns, scores = found.best(k).joined()
        return scores.view(-1, k), columns.view(-1, k)

    def scored(self, queries: Tensor, columns: Tensor) -> Tensor:
        """The inner product of each pair of a query (P,) and a column (P,), float32 of a sum in the widest type."""
        wide = widest_type(self.queries.device)
        step = block_rows(self.queries.shape[1] * 24, self.queries.device)
        parts = zip(queries.split(step), columns.split(step), strict=True)
        scores = [
            (self.queries[row].to(wide) * self.taken(column).to(self.queries.device, wide)).sum(1)
            for row, column in parts
        ]
        found = torch.cat(scores) if scores else self.queries[:0, 0].to(wide)
        return (found if self.scales is None else found * self.scales[columns]).float()


def _ordered(scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and columns (Q, k), the best first and the first column first."""
    columns, order = columns.sort(dim=1)
    scores, again = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores, columns.gather(1, again)


class Found:
    """Queries, columns and scores (P,) of what was found, in parts."""

    def __init__(self, *parts: tuple[Tensor, Tensor, Tensor]) -> None:
        self.parts = list(parts)
        self.count = sum(len(part[0]) for part in parts)

    def add(self, queries: Tensor, columns: Tensor, scores: Tensor) -> None:
        """One part more."""
        self.parts.append((queries, columns, scores))
        self.count += len(queries)

    def joined(self) -> tuple[Tensor, Tensor, Tensor]:
        """All parts as one."""
        queries, columns, scores = (torch.cat(part) for part in zip(*self.parts, strict=True))
        return queries, columns, scores

    def best(self, k: int) -> "Found":
        """The k best of each query, by score and then by column; queries together."""
        queries, columns, scores = self.joined()
        order = columns.argsort()
        order = order[scores[order].argsort(descending=True, stable=True)]
        order = order[queries[order].argsort(stable=True)]
        queries = queries[order]
        kept = torch.arange(len(queries), device=queries.device) - torch.searchsorted(queries, queries) < k
        return Found((queries[kept], columns[order][kept], scores[order][kept]))

    def merged(self, queries: Tensor, columns: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The best scores and columns (Q, k) of these and those; these have k of each query."""
        k = columns.shape[1]
        self.add(queries.repeat_interleave(k), columns.flatten(), scores.flatten())
        _, found, best = self.best(k).joined()
        return best.view(-1, k), found.view(-1, k)


def pairs_above(
    rows: Rows, least: float, device: torch.device | str = "cpu", progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """All pairs i < j of unit vectors (N, D) with an inner product of at least `least`, block by block.

    A block has i, j and the products (P,), from a sum in the widest type.
    """
    step, size, scales = min(block_shape(torch.device(device))), len(rows), scales_of(rows, torch.device(device))

    def block(start: int) -> Tensor:
        part = slice(start, min(start + step, size))
        found = rows[part].to(device).float()
        return found if scales is None else found * scales[part, None]

    for start in range(0, size, step):
        left = block(start)
        error = left.shape[1] * torch.finfo(torch.float32).eps
        for other in range(start, size, step):
            right = left if other == start else block(other)
            one, two = (products(left, right) >= least - error).nonzero(as_tuple=True)
            if other == start:
                one, two = one[one < two], two[one < two]
            exact = _paired(left, right, one, two)
            kept = exact >= least
            if kept.any():
                yield start + one[kept], other + two[kept], exact[kept]
        if progress is not None:
            progress(min(start + step, size), size)


def scales_of(rows: Rows, device: torch.device) -> Tensor | None:
    """What makes rows unit vectors, float32 (N,) on the device; None for rows that are."""
    scales = getattr(rows, "scales", None)
    return None if scales is None else scales.to(device)


def block_shape(device: torch.device) -> tuple[int, int]:
    """References and queries in one product on the device."""
    return (COLUMNS, HEIGHT) if device.type == "cpu" else (WIDE, DEFAULT_BLOCK_BYTES // (4 * WIDE))


def products(left: Tensor, right: Tensor) -> Tensor:
    """All inner products of float32 rows, (B, D), (C, D) -> (B, C), not in half precision under autocast.

    oneDNN's kernels are twice as fast as the ones that torch.mm takes from MKL on processors of AMD.
    """
    if left.device.type == "cpu" and left.dtype == right.dtype == torch.float32 and _has_onednn():
        return torch.ops.mkldnn._linear_pointwise(left, right.contiguous(), None, "none", [], "")
    with torch.autocast(left.device.type, enabled=False):
        return left @ right.T


@cache
def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _paired(left: Tensor, right: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """Inner products of rows (P,) of the left and (P,) of the right, float32 of a sum in the widest type."""
    wide, step = widest_type(left.device), block_rows(left.shape[1] * 24, left.device)
    parts = zip(one.split(step), two.split(step), strict=True)
    return torch.cat([(left[a].to(wide) * right[b].to(wide)).sum(1).float() for a, b in parts])
