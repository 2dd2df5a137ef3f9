"""Galleries of vectors that lie around centers, one for each label."""

from pathlib import Path

import torch

from isosphere import gallery
from isosphere.gallery import Gallery


def blobs(classes: int, per_class: int, spread: float, dim: int = 12) -> tuple[torch.Tensor, list[str]]:
    """Rows (N, dim) in the order of their classes, and the names of these."""
    generator = torch.Generator().manual_seed(classes)
    centers = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator))
    rows = centers.repeat_interleave(per_class, 0)
    rows = rows + spread * torch.randn(len(rows), dim, generator=generator)
    return rows, [f"class{number // per_class}" for number in range(len(rows))]


def made(folder: Path, rows: torch.Tensor, labels: list[str] | None) -> Gallery:
    """A new gallery of these rows."""
    return gallery.create(folder, rows, [f"{number}.jpg" for number in range(len(rows))], labels)
