"""Labels by the vote of the nearest images: of new images, and against those that a gallery's own images have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument
from isosphere.metrics.nearest import Nearest
from isosphere.metrics.neighbors import block_rows
from isosphere.report.retrievals import spread

from .gallery import Gallery, Where

TEMPERATURE = 0.1  # as in `knn_accuracy`: an image that is nearer by this cosine counts 2.7 times as much
SAMPLE = 2000  # images by which the vote is checked


@dataclass(frozen=True)
class Votes:
    """What won each vote, (Q,) each: the class's number, its share, the cosine and the row of the nearest image."""

    winners: np.ndarray
    shares: np.ndarray
    scores: np.ndarray
    rows: np.ndarray


def label_shares(found: Nearest, codes: Tensor) -> Tensor:
    """The share that each neighbor's label has in the vote, (Q, k); weights are exp(cosine / temperature)."""
    weights = ((found.scores - found.scores[:, :1]) / TEMPERATURE).exp()
    labels, parts = codes.to(found.indices.device)[found.indices], []
    step = block_rows(labels.shape[1] ** 2 * 8, labels.device)
    for its, weight in zip(labels.split(step), weights.split(step), strict=True):
        same = its[:, :, None] == its[:, None, :]
        parts.append((same * weight[:, None, :]).sum(2) / weight.sum(1, keepdim=True))
    return torch.cat(parts)


def classify(gallery: Gallery, images: Any, k: int = 20, where: Where = None) -> Votes:
    """The label of new images by the vote of their k nearest. Of equal shares the nearest image's wins."""
    _check_labels(gallery)
    return _won(gallery, gallery.nearest(gallery.queries(images), k, where))


def checked(gallery: Gallery, k: int = 20) -> tuple[float, int]:
    """The share of a gallery's own images for which the vote of the others is right, of at most some, and how many."""
    _check_labels(gallery)
    rows = torch.tensor(spread(len(gallery), SAMPLE))
    right = [_won(gallery, found).winners == gallery.codes[part] for part, found in gallery.neighbors(k, rows)]
    return float(np.concatenate(right).mean()), len(rows)


@dataclass(frozen=True)
class Doubt:
    """An image whose label the vote of the others doubts: what they say, and the shares of both labels."""

    row: int
    label: str
    instead: str
    share: float
    own: float


def label_issues(
    gallery: Gallery, k: int = 20, progress: Callable[[int, int], None] | None = None
) -> tuple[list[Doubt], int]:
    """Images that probably have a wrong label, the surest first, and how many are the only one of their label.

    Each image is left out of its own vote. As in confident learning (Northcutt et al. 2021), another label counts only
    with at least the mean share that images of that label have for it. An only image of its label cannot be judged.
    """
    _check_labels(gallery)
    codes = torch.from_numpy(gallery.codes)
    winners, won, own = (torch.empty(len(codes), dtype=kind) for kind in (torch.long, torch.float32, torch.float32))
    for part, found in gallery.neighbors(k, progress=progress):
        shares, labels = label_shares(found, codes).cpu(), codes[found.indices.cpu()]
        mine = labels == codes[part][:, None]
        own[part] = (shares * mine).amax(1)
        others = shares.masked_fill(mine, -1)
        won[part], best = others.max(1)
        winners[part] = labels.gather(1, best[:, None])[:, 0]
    sizes = codes.bincount(minlength=len(gallery.classes))
    usual = torch.zeros(len(sizes)).index_add_(0, codes, own) / sizes.clamp(min=1)
    alone = sizes[codes] < 2
    doubted = (won > own) & (won >= usual[winners]) & ~alone
    order = (own - won).masked_fill(~doubted, torch.inf).argsort(stable=True)[: int(doubted.sum())].tolist()
    doubts = [
        Doubt(row, gallery.labels[row], gallery.classes[int(winners[row])], float(won[row]), float(own[row]))
        for row in order
    ]
    return doubts, int(alone.sum())


def _won(gallery: Gallery, found: Nearest) -> Votes:
    codes = torch.from_numpy(gallery.codes)
    shares = label_shares(found, codes).cpu()
    best, place = shares.max(1)[0], (shares >= shares.amax(1, keepdim=True) - 1e-6).int().argmax(1)  # the nearest
    rows = found.indices.cpu()
    winners = codes[rows.gather(1, place[:, None])[:, 0]]
    return Votes(winners.numpy(), best.numpy(), found.scores[:, 0].cpu().numpy(), rows[:, 0].numpy())


def _check_labels(gallery: Gallery) -> None:
    if not gallery.labeled:
        raise BadArgument("gallery", str(gallery.folder), "one whose images have two labels or more")
