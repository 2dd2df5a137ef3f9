"""The nearest of many directions, exact: in blocks, with ties in the order of the rows.

A product of matrices finds candidates. It may round equal rows differently, by their places in it. So candidates are
scored again, each by itself in float64, and ordered by that score and then by their row. Where candidates that were
left out could tie with the last one found, a second pass takes them all.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.neighbors import BLOCK_BYTES, DEFAULT_BLOCK_BYTES, block_rows, widest_type

GROUP = 64  # neighboring scores of which only the largest is compared first
SPARE = 16  # candidates more than asked for, for rows that tie
COLUMNS = 1 << 16  # rows of references in one product


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
        self.queries, self.references, self.among = queries, references, among
        self.size = len(references) if among is None else len(among)
        self.skip = None if skip is None else self._columns(skip.to(queries.device))
        self.fewest = self.size - int(self.skip is not None and bool((self.skip >= 0).any()))
        scales = scales_of(references, queries.device)
        self.scales = scales if scales is None or among is None else scales[among.to(queries.device)]
        tf32 = queries.is_cuda and torch.backends.cuda.matmul.allow_tf32
        self.error = queries.shape[1] * (2.0**-10 if tf32 else torch.finfo(torch.float32).eps)
        self.step = max(1, min(COLUMNS, self.size))
        room = BLOCK_BYTES.get(queries.device.type, DEFAULT_BLOCK_BYTES)
        self.rows = max(1, room // (4 * self.step))  # queries in one product

    def _columns(self, skip: Tensor) -> Tensor:
        """The columns of rows (Q,); -1 for what is not searched."""
        if self.among is None:
            return skip
        among = self.among.to(skip.device)
        columns = torch.searchsorted(among, skip).clamp(max=len(among) - 1)
        return torch.where(among[columns] == skip, columns, -1)

    def taken(self, columns: slice | Tensor) -> Tensor:
        """The references of these columns, (B, D) as the queries are."""
        if self.among is not None:
            columns = self.among[columns if isinstance(columns, slice) else columns.to(self.among.device)]
        return self.references[columns].to(self.queries)

    def blocks(self, queries: Tensor) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Rows of the queries (B,), the first column, and their scores (B, C) in a buffer that the next overwrites.

        The buffer's columns are whole groups; what is beyond the last reference, or skipped, is -inf.
        """
        step = -(-self.step // GROUP) * GROUP
        buffer = self.queries.new_empty(min(self.rows, len(queries)), step)
        for start in range(0, self.size, self.step):
            block = self.taken(slice(start, min(start + self.step, self.size))).T
            width = -(-block.shape[1] // GROUP) * GROUP
            for rows in queries.split(self.rows):
                scores = buffer[: len(rows), :width]
                scores[:, block.shape[1] :] = -torch.inf
                with torch.autocast(self.queries.device.type, enabled=False):
                    torch.mm(self.queries[rows], block, out=scores[:, : block.shape[1]])
                if self.scales is not None:
                    scores[:, : block.shape[1]] *= self.scales[start : start + block.shape[1]]
                if self.skip is not None:
                    own = self.skip[rows] - start
                    held = ((own >= 0) & (own < block.shape[1])).nonzero().squeeze(1)
                    scores[held, own[held]] = -torch.inf
                yield rows, start, scores

    def coarse(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest scores of the products, and their columns, (Q, k) each, in any order but the last."""
        queries = torch.arange(len(self.queries), device=self.queries.device)
        best = self.queries.new_full((len(queries), k), -torch.inf)
        columns = queries.new_zeros(len(queries), k)
        for rows, start, scores in self.blocks(queries):
            groups = scores.view(len(rows), -1, GROUP)
            chosen = groups.amax(2).topk(min(k, groups.shape[1]), 1).indices  # the k best are in the k best groups
            inside = chosen[:, :, None] * GROUP + torch.arange(GROUP, device=chosen.device)
            inside = inside.flatten(1)
            merged = torch.cat([best[rows], scores.gather(1, inside)], 1)
            places = torch.cat([columns[rows], (inside + start).clamp(max=self.size - 1)], 1)  # of -inf: any
            best[rows], order = merged.topk(k, 1)
            columns[rows] = places.gather(1, order)
        return best, columns

    def complete(self, queries: Tensor, least: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of all columns that may reach `least` (Q,), (Q, k) each, for some of the queries."""
        wanted = self.queries.new_full((len(self.queries),), torch.inf).index_copy_(0, queries, least)
        place = torch.empty(len(self.queries), dtype=torch.long, device=queries.device)
        place[queries] = torch.arange(len(queries), device=queries.device)
        found = []
        for rows, start, scores in self.blocks(queries):
            row, column = (scores >= wanted[rows][:, None]).nonzero(as_tuple=True)
            found.append((place[rows[row]], column + start, self.scored(rows[row], column + start)))
            if sum(len(part[0]) for part in found[1:]) > COLUMNS:  # all rows may be equal: keep only the best
                found = [_best(found, k)]
        _, column, score = _best(found, k)
        return score.view(-1, k), column.view(-1, k)

    def scored(self, queries: Tensor, columns: Tensor) -> Tensor:
        """The inner product of each pair of a query (P,) and a column (P,), float32 of a sum in the widest type."""
        wide = widest_type(self.queries.device)
        step = block_rows(self.queries.shape[1] * 24, self.queries.device)
        parts = zip(queries.split(step), columns.split(step), strict=True)
        scores = [(self.queries[row].to(wide) * self.taken(column).to(wide)).sum(1) for row, column in parts]
        found = torch.cat(scores) if scores else self.queries[:0, 0].to(wide)
        return (found if self.scales is None else found * self.scales[columns]).float()


def _ordered(scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and columns (Q, k), the best first and the first column first."""
    columns, order = columns.sort(dim=1)
    scores, again = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores, columns.gather(1, again)


def _best(parts: Sequence[tuple[Tensor, Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and scores (P,) of the k best of each row, rows together, from any number in parts."""
    rows, columns, scores = (torch.cat(part) for part in zip(*parts, strict=True))
    order = columns.argsort()
    order = order[scores[order].argsort(descending=True, stable=True)]
    order = order[rows[order].argsort(stable=True)]
    rows = rows[order]
    kept = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows) < k
    return rows[kept], columns[order][kept], scores[order][kept]


def pairs_above(
    rows: Rows, least: float, device: torch.device | str = "cpu", progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """All pairs i < j of unit vectors (N, D) with an inner product of at least `least`, block by block.

    A block has i, j and the products (P,), from a sum in the widest type.
    """
    step, size, scales = block_side(torch.device(device)), len(rows), scales_of(rows, torch.device(device))

    def block(start: int) -> Tensor:
        part = slice(start, min(start + step, size))
        found = rows[part].to(device).float()
        return found if scales is None else found * scales[part, None]

    for start in range(0, size, step):
        left = block(start)
        error = left.shape[1] * torch.finfo(torch.float32).eps
        for other in range(start, size, step):
            right = left if other == start else block(other)
            with torch.autocast(left.device.type, enabled=False):
                one, two = (left @ right.T >= least - error).nonzero(as_tuple=True)
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


def block_side(device: torch.device) -> int:
    """Rows and columns of a square block of float32 scores on the device."""
    return max(1, int((BLOCK_BYTES.get(device.type, DEFAULT_BLOCK_BYTES) / 4) ** 0.5))


def _paired(left: Tensor, right: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """Inner products of rows (P,) of the left and (P,) of the right, float32 of a sum in the widest type."""
    wide, step = widest_type(left.device), block_rows(left.shape[1] * 24, left.device)
    parts = zip(one.split(step), two.split(step), strict=True)
    return torch.cat([(left[a].to(wide) * right[b].to(wide)).sum(1).float() for a, b in parts])
