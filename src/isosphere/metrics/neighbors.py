"""Scores of queries against a gallery, in blocks of rows, with positives and negatives apart.

Everything runs on the embeddings' device and holds one block, never N x M scores. Positives and negatives of a block
come out of the same matrix product. Equal directions are given equal scores there, so ties are seen as ties. Without
that, scaled copies round differently. BLAS may also round the last columns of a product differently from the first. The
products are exact to float32 rounding, under autocast too. Only the caller can allow TF32 or bfloat16 for float32
matmuls.
"""

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import chain
from numbers import Real
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isosphere import sphere
from isosphere.errors import BadArgument, NotFinite

Array = Tensor | np.ndarray | Sequence[Any]  # what `tensor` takes
BLOCK_BYTES = {"cpu": 1 << 26}  # where memory is scarce
PROJECTIONS = 3  # axes of the grids in which equal directions are found
DEFAULT_BLOCK_BYTES = 1 << 28  # accelerators: large enough that kernels, not their launches, take the time


def block_rows(bytes_per_row: int, device: torch.device) -> int:
    """How many rows of that size make one block on the device; at least one."""
    return max(1, BLOCK_BYTES.get(device.type, DEFAULT_BLOCK_BYTES) // bytes_per_row)


def checked_embeddings(embeddings: Array, name: str = "embeddings") -> Tensor:
    """The embeddings (N, D) without gradient, at least float32, or a BadArgument that names the row at fault."""
    embeddings = tensor(embeddings).detach()
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise BadArgument(name, tuple(embeddings.shape), "of shape (N, D) with N and D at least 1")
    if not embeddings.is_floating_point():
        raise BadArgument(name, embeddings.dtype, "of floating point")
    embeddings = sphere.raised(embeddings)
    bad = ~sphere.norms(embeddings).isfinite()
    if bad.any():
        raise NotFinite(name, int(bad.int().argmax()), len(embeddings))
    return embeddings


def checked_labels(labels: Array, size: int, device: torch.device | None = None, name: str = "labels") -> Tensor:
    """The labels (N,) as int64 on the device, or a BadArgument for another shape or type."""
    try:
        labels = tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadArgument(name, type(labels), "integers, or words if all labels are") from error
    if labels.shape != (size,):
        raise BadArgument(name, tuple(labels.shape), f"of shape ({size},), one for each row")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise BadArgument(name, labels.dtype, "integers: give each class a whole number, or a word")
    return labels.to(device=device, dtype=torch.int64)


def numbered(*groups: Array | None) -> tuple[Any, ...]:
    """Labels that are words, (N,) and (M,), as numbers, the same in every group. Other labels stay as they are."""
    if not all(group is None or _are_words(group) for group in groups):
        return groups
    words = chain.from_iterable(group for group in groups if group is not None)
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return tuple(None if group is None else torch.tensor([numbers[word] for word in group]) for group in groups)


def directions(embeddings: Tensor) -> Tensor:
    """Unit vectors (N, D), of tiny embeddings, too. The squares of 1e-30, say, are zero in float32.

    Each row is first multiplied by a power of two, which changes no digit of any other row's direction.
    """
    largest = torch.linalg.vector_norm(embeddings, torch.inf, -1, keepdim=True)
    scale = torch.where(largest > 0, torch.frexp(largest).mantissa / largest, 1)
    return sphere.directions(embeddings * scale.clamp(max=1 / torch.finfo(embeddings.dtype).tiny))


class Twins:
    """Which of the directions (N, D) equal an earlier one up to rounding. `eps` is that of the embeddings' type.

    Embeddings c * v of one v have directions that differ in the last digits, because c * v was rounded. Rows that share
    a cell of `grids` are compared with the first of that cell.
    """

    def __init__(self, rows: Tensor, eps: float) -> None:
        keys = grids(rows, eps)  # (G, N)
        _, cell, sizes = keys.flatten().unique(return_inverse=True, return_counts=True)
        held = (sizes[cell] > 1).view(keys.shape).any(0).nonzero().squeeze(1)  # empty for most embeddings
        originals = torch.arange(len(rows), device=rows.device)
        for key in keys if len(held) else ():
            left = held[originals[held] == held]
            while len(left):
                cells, cell = key[left].unique(return_inverse=True)
                first = torch.full_like(cells, len(rows)).scatter_reduce_(0, cell, left, "amin")[cell]
                close = _close(rows, left, first, eps)  # true of the first itself
                originals[left[close]] = first[close]
                left = left[~close]
        for _ in range(len(keys) // 2 if len(held) else 0):  # an original may itself have become a copy
            originals = originals[originals]
        self.copies = held[originals[held] != held]
        self.originals = originals[self.copies]

    def level(self, scores: Tensor) -> Tensor:
        """The scores (B, N), in place, with each copy's those of its original."""
        return scores.index_copy_(1, self.copies, scores[:, self.originals]) if len(self.copies) else scores


def grids(rows: Tensor, eps: float) -> Tensor:
    """A whole number for the cell of each direction (N, D) in each of several grids, int64 (PROJECTIONS + 1, N).

    Directions that are equal up to rounding share a cell in at least one grid. The axes are sums with random signs.
    There, rounding moves a direction by about eps, whatever its components. Grids are shifted against each other by
    more than that. So an axis can separate two such directions in one grid only. There is one grid more than axes.
    """
    generator = torch.Generator().manual_seed(0)
    wide, step = widest_type(rows.device), block_rows(rows.shape[1] * 16, rows.device)
    signs = torch.randint(0, 2, (rows.shape[1], PROJECTIONS), generator=generator).to(rows.device, wide) * 2 - 1
    factors = torch.randint(-(2**62), 2**62, (PROJECTIONS + 1,), generator=generator).to(rows.device)
    shift = 4 * eps + 16 * torch.finfo(rows.dtype).eps
    with torch.autocast(rows.device.type, enabled=False):
        places = torch.cat([part.to(wide) @ signs for part in rows.split(step)]) / (shift * (PROJECTIONS + 1))
    shifts = torch.arange(PROJECTIONS + 1, device=rows.device)
    cells = (places + shifts.view(-1, 1, 1) / (PROJECTIONS + 1)).floor().long()
    return (cells * factors[:-1]).sum(2) + shifts[:, None] * factors[-1]  # wraps about


def _close(rows: Tensor, left: Tensor, right: Tensor, eps: float) -> Tensor:
    """Whether rows (N, D) of two index lists (K,) are one direction up to rounding, bool (K,)."""
    limit, step = eps + 8 * torch.finfo(rows.dtype).eps, block_rows(rows.shape[1] * 32, rows.device)
    parts = zip(left.split(step), right.split(step), strict=True)
    return torch.cat([sphere.norms(rows[one] - rows[other]) <= limit for one, other in parts])


def widest_type(device: torch.device) -> torch.dtype:
    """The type to sum in: float64, or float32 on a device that has no other."""
    return torch.float64 if _has_float64(device.type) else torch.float32


@cache
def _has_float64(kind: str) -> bool:
    """Whether devices of this type add in float64."""
    try:
        torch.ones(2, dtype=torch.float64, device=kind).sum()
    except torch.OutOfMemoryError:
        raise
    except (TypeError, RuntimeError):
        return False
    return True


def widened(values: Tensor) -> Tensor:
    """The values in the type to sum in."""
    return values.to(widest_type(values.device))


def largest_eps(*tensors: Tensor) -> float:
    """The relative distance of neighboring numbers in the coarsest of the types; float32 kept in float64 is float32."""
    return max(torch.finfo(torch.float32 if _is_float32(rows) else rows.dtype).eps for rows in tensors)


def _is_float32(rows: Tensor) -> bool:
    step = block_rows(max(1, rows[:1].numel()) * 16, rows.device)
    return rows.dtype == torch.float64 and all(bool((part.float() == part).all()) for part in rows.split(step))


def tensor(values: Array) -> Tensor:
    """A tensor of a list, an array of any strides and byte order, or a column or frame of pandas."""
    values = values.to_numpy() if hasattr(values, "to_numpy") else values
    if isinstance(values, np.ndarray):  # torch warns of arrays that cannot be written to: copied
        values = np.require(values, values.dtype.newbyteorder("="), ["C_CONTIGUOUS", "WRITEABLE"])
    return torch.as_tensor(values)


def _are_words(labels: Array) -> bool:
    return not isinstance(labels, Tensor) and all(isinstance(label, str) for label in labels)


def listed(values: Any) -> list[Any]:
    """A list of what may be one number."""
    return [values] if isinstance(values, Real) else list(values)


def total(parts: Sequence[Tensor]) -> Tensor:
    """The sum of a block's results, in the order of the blocks."""
    return reduce(add, parts)


class Gallery:
    """Queries, references and who is a positive of whom; without references the queries are the gallery, less self.

    References of a query's class and of its group, such as a person's images by one camera, are left out. `counts` (N,)
    is each query's number of positives. `width` is the second dimension of the positives.
    """

    def __init__(
        self,
        embeddings: Array,
        labels: Array,
        ref_embeddings: Array | None = None,
        ref_labels: Array | None = None,
        groups: Array | None = None,
        ref_groups: Array | None = None,
    ) -> None:
        if (ref_embeddings is None) != (ref_labels is None):
            raise BadArgument("ref_labels", None, "given where ref_embeddings are, and only there")
        given = tensor(embeddings if ref_embeddings is None else ref_embeddings)
        embeddings, (labels, ref_labels) = checked_embeddings(embeddings), numbered(labels, ref_labels)
        self.labels = checked_labels(labels, len(embeddings), embeddings.device)
        self.directions = self.ref_directions = directions(embeddings)
        self.without_self = ref_embeddings is None
        ref_sorted = self.labels
        if ref_embeddings is not None:
            ref_embeddings = checked_embeddings(given, "ref_embeddings").to(embeddings)
            if ref_embeddings.shape[1] != embeddings.shape[1]:
                raise BadArgument("ref_embeddings", tuple(ref_embeddings.shape), f"of shape (M, {embeddings.shape[1]})")
            ref_sorted = checked_labels(ref_labels, len(ref_embeddings), embeddings.device, "ref_labels")
            self.ref_directions = directions(ref_embeddings)
        self._twins = Twins(self.ref_directions, largest_eps(given, embeddings))
        # In the order of the labels the members of a class lie side by side: [first, first + members).
        ref_sorted, self._order = ref_sorted.sort(stable=True)
        self._first = torch.searchsorted(ref_sorted, self.labels)
        self._members = torch.searchsorted(ref_sorted, self.labels, right=True) - self._first
        self.counts = self._members - int(self.without_self)
        self.width = max(1, int(self._members.max()))
        self._groups: tuple[Tensor, Tensor] | None = None
        if groups is not None or ref_groups is not None:
            self._groups = self._checked_groups(groups, ref_groups)
            self.counts = self._members - self._of_one_group(ref_sorted)

    def _checked_groups(self, groups: Array | None, ref_groups: Array | None) -> tuple[Tensor, Tensor]:
        """Groups of the queries (N,) and of the references (M,)."""
        if groups is None or (ref_groups is None) != self.without_self:
            raise BadArgument("ref_groups", ref_groups, "given where groups and ref_embeddings are, and only there")
        groups, ref_groups = numbered(groups, ref_groups)
        asked = checked_labels(groups, len(self.labels), self.labels.device, "groups")
        if ref_groups is None:
            return asked, asked
        return asked, checked_labels(ref_groups, len(self._order), self.labels.device, "ref_groups")

    def _of_one_group(self, ref_sorted: Tensor) -> Tensor:
        """How many references have both the class and the group of each query, (N,); without references also itself."""
        assert self._groups is not None
        asked, held = self._groups[0], self._groups[1][self._order]
        both = torch.stack([torch.cat([self.labels, ref_sorted]), torch.cat([asked, held])], 1)
        _, cells = both.unique(dim=0, return_inverse=True)
        return torch.bincount(cells[len(asked) :], minlength=len(both))[cells[: len(asked)]]

    def blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows, positives' cosines (B, width) and negatives' (B, M). What is not of the kind, self too, is -inf.

        The negatives lie in one buffer that the next block overwrites.
        """
        places, size = torch.arange(self.width, device=self.labels.device), len(self._order)
        step = block_rows(size * 8 + self.width * 32, self.labels.device)
        buffer = self.directions.new_empty(min(step, len(self.labels)), size)
        for start in range(0, len(self.labels), step):
            rows = slice(start, min(start + step, len(self.labels)))
            # Autocast leaves `out=` alone: the products have the precision of the directions.
            scores = torch.mm(self.directions[rows], self.ref_directions.T, out=buffer[: rows.stop - start])
            scores = self._twins.level(scores)
            same = places < self._members[rows, None]
            # Padding repeats the class's first member, or any column where the query has no positive at all.
            columns = self._order[(self._first[rows, None] + places * same).clamp_(max=size - 1)]
            if self.without_self:
                same &= columns != torch.arange(rows.start, rows.stop, device=places.device)[:, None]
            if self._groups is not None:
                same &= self._groups[1][columns] != self._groups[0][rows, None]
            positives = scores.gather(1, columns).masked_fill_(~same, -torch.inf)
            yield rows, positives, scores.scatter_(1, columns, -torch.inf)
