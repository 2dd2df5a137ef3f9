"""Unit vectors in fewer bytes: fewer numbers by PCA, and numbers of 16, 8 or 1 bit.

| kept as | bytes for D numbers | read as |
|---|---|---|
| float16 | 2 D | it stands |
| int8 | D | direction of the whole numbers, of which the largest is 127 |
| binary | D / 8 | direction of the signs |

Queries stay in float32, so only one side of a cosine is rounded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument, DamagedFile
from isosphere.metrics.neighbors import directions

STORED = ("float16", "int8", "binary")
PROJECTION = "projection.npz"
FLOOR = 1e-6  # of the largest variance: below it whitening would only raise noise


def encode(unit: Tensor, stored: str) -> np.ndarray:
    """Unit vectors (N, D) as they are kept: float16 or int8 (N, D), or uint8 (N, ceil(D / 8)) of bits, first highest.
    """
    if stored == "float16":
        return unit.half().cpu().numpy()
    if stored == "int8":
        largest = unit.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        return (unit * (127 / largest)).round().to(torch.int8).cpu().numpy()
    return np.packbits((unit > 0).cpu().numpy(), axis=1)


def decode(codes: Tensor, stored: str, dim: int) -> Tensor:
    """What is kept, as numbers (N, D) that `scales` makes unit vectors."""
    if stored != "binary":
        return codes
    bits = codes[:, :, None] >> torch.arange(7, -1, -1, device=codes.device) & 1
    return bits.flatten(1)[:, :dim].float() * 2 - 1


def scales(codes: np.ndarray, stored: str, dim: int) -> np.ndarray:
    """One over the length of each kept row, float32 (N,); 0 for a row of zeros. Rounding changes lengths a little."""
    rows = decode(torch.from_numpy(np.ascontiguousarray(codes)), stored, dim).double()
    lengths = rows.norm(dim=1)
    return torch.where(lengths > 0, 1 / lengths.clamp(min=torch.finfo(torch.float32).tiny), 0).float().numpy()


@dataclass(frozen=True)
class Projection:
    """Directions (N, F) to fewer numbers: `directions((unit - mean) @ matrix)`, (F,), (F, D)."""

    mean: Tensor
    matrix: Tensor

    def __call__(self, unit: Tensor) -> Tensor:
        """(N, F) -> (N, D), unit vectors again."""
        return directions((unit.float() - self.mean.to(unit.device)) @ self.matrix.to(unit.device))

    def write(self, folder: Path) -> None:
        """Keep it in a folder."""
        np.savez(folder / PROJECTION, mean=self.mean.numpy(), matrix=self.matrix.numpy())


def read_projection(folder: Path) -> Projection | None:
    """The projection that a folder holds; None where there is none."""
    path = folder / PROJECTION
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as held:
            return Projection(torch.from_numpy(held["mean"]), torch.from_numpy(held["matrix"]))
    except Exception as error:  # numpy raises almost anything on damaged files
        raise DamagedFile(path, f"{type(error).__name__}: {error}") from error


def check_kept(dim: int | None, whiten: bool, stored: str | None) -> None:
    """Refuse ways of keeping vectors that there are not."""
    if stored not in (None, *STORED):
        raise BadArgument("quantize", stored, " or ".join(STORED))
    if dim is not None and dim < 1:
        raise BadArgument("dim", dim, "at least 1")
    if whiten and dim is None:
        raise BadArgument("whiten", whiten, "given with dim, the numbers to keep")


def needed(parts: Iterable[np.ndarray], dim: int | None, whiten: bool, stored: str) -> Projection | None:
    """The projection with which unit vectors (N, F) are kept so; None where they stay as they are."""
    return fitted(parts, dim, whiten, stored == "binary") if dim or stored == "binary" else None


def fitted(
    parts: Iterable[np.ndarray], dim: int | None = None, whiten: bool = False, turned: bool = False
) -> Projection:
    """The projection of unit vectors (N, F), in parts of any float type, to `dim` numbers, by itself all.

    As it stands the mean stays in, since this keeps cosines best (truncated singular value decomposition). With
    `whiten` the mean is taken off, and all components get the same variance. With `turned` the mean is taken off, and a
    random rotation follows, so that each sign tells as much as the next.
    """
    count, products, total = 0, torch.zeros(()), torch.zeros(())
    for part in parts:
        unit = torch.from_numpy(np.asarray(part, np.float64))
        count, products, total = count + len(unit), products + unit.T @ unit, total + unit.sum(0)
    most, centered = min(len(total), count - whiten), whiten or turned
    dim = len(total) if dim is None else dim
    if dim != len(total) and not 1 <= dim <= most:
        raise BadArgument("dim", dim, f"from 1 to {most}, for {count} images of {len(total)} numbers")
    mean = total / count if centered else torch.zeros_like(total)
    values, vectors = torch.linalg.eigh(products / count - mean[:, None] * mean)
    values, matrix = values.flip(0)[:dim], vectors.flip(1)[:, :dim]
    signs = matrix.gather(0, matrix.abs().argmax(0, keepdim=True)).sign()  # the same on every machine
    matrix = matrix * signs / (values.clamp(min=FLOOR * float(values[0])).sqrt() if whiten else 1)
    if turned:
        matrix = matrix @ torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(0)).double())[0]
    return Projection(mean.float(), matrix.float())
