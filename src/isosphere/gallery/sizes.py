"""What smaller vectors cost: R@1 against bytes, on the images that a run was tested on."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isosphere.metrics.neighbors import block_rows, directions
from isosphere.runs import Embedded

from .codes import STORED, decode, encode, needed, scales

SMALLER = (512, 256, 128, 64, 32, 16)


class Size(NamedTuple):
    """So many numbers kept so, whitened or not, the bytes of a vector, and R@1 as a fraction."""

    dim: int
    stored: str
    whiten: bool
    bytes: int
    recall: float


def sizes(held: Embedded, dims: Sequence[int] = SMALLER, whiten: bool = False) -> list[Size]:
    """R@1 of a run's test images with whole vectors in float32, then kept in fewer numbers and bits.

    The images are the gallery, kept as `isosphere index` would keep them; its principal components are of these images,
    without their labels. Queries are in float32. Where all images ask, each searches all others.
    """
    unit = directions(torch.from_numpy(held.embeddings))
    labels, asks = torch.from_numpy(held.labels), torch.from_numpy(held.is_query)
    wide = unit.shape[1]
    found = [Size(wide, "float32", False, 4 * wide, _recall(unit, unit, labels, asks))]
    for dim in dict.fromkeys([wide, *(dim for dim in dims if dim < min(wide, len(unit) - whiten))]):
        for stored in STORED:
            whitened = whiten and dim < wide
            projection = needed([unit.numpy()], None if dim == wide else dim, whitened, stored)
            queries = unit if projection is None else projection(unit)
            codes = encode(queries, stored)
            kept = decode(torch.from_numpy(codes), stored, dim).float()
            kept *= torch.from_numpy(scales(codes, stored, dim))[:, None]
            recall = _recall(queries, kept, labels, asks)
            found.append(Size(dim, stored, whitened, codes.nbytes // len(codes), recall))
    return found


def _recall(queries: Tensor, gallery: Tensor, labels: Tensor, asks: Tensor) -> float:
    """R@1 of queries (N, D) among what is kept of them (N, D); a wrong image that ties is found first."""
    others, right = not bool(asks.all()), []
    for rows in asks.nonzero().squeeze(1).split(block_rows(len(gallery) * 16, queries.device)):
        scores = queries[rows] @ gallery.T
        if others:
            scores[:, asks] = -torch.inf
        else:
            scores[torch.arange(len(rows)), rows] = -torch.inf
        same = labels[rows, None] == labels
        best, wrong = (scores.masked_fill(~mask, -torch.inf).amax(1) for mask in (same, ~same))
        right.append(best > wrong)
    return float(np.concatenate([part.numpy() for part in right]).mean())
