"""Snapshots of a run folder: norms of some training images at a step, and how far each turned since the last."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isosphere import files, runs
from isosphere.metrics.registry import NORM_MEAN, NORM_VARIANCE
from isosphere.monitor import recorded, turn_figures

NORMS = f"{runs.SNAPSHOTS}/step-*.npz"
DIRECTIONS = f"{runs.SNAPSHOTS}/directions-*.npy"
"""Large files that only the next angles need."""


def save(
    folder: Path, step: int, every: int, saved: int, indices: Tensor, norms: Tensor, directions: Tensor
) -> dict[str, float]:
    """Write the snapshot of a step, and return the figures of the turn since the last one, if it is there.

    Directions of two steps are kept: this one, and the one of `saved`, which a resumed run turns from.
    """
    path, since = (runs.snapshot_path(folder, at) for at in (step, step - every))
    path.parent.mkdir(exist_ok=True)
    arrays = {"indices": indices.numpy(), "norms": norms.cpu().numpy()}
    now, before = directions.float().cpu().numpy(), _directions(folder, step - every)
    held = np.load(since) if before.is_file() and since.is_file() else {}
    turn: dict[str, float] = {}
    if "indices" in held and np.array_equal(held["indices"], arrays["indices"]):  # a resumed run may have others
        # The chord keeps small angles exact, where the arc cosine of a product near 1 does not.
        chords = np.linalg.norm(now - np.load(before), axis=1)
        arrays["angles"] = np.degrees(2 * np.arcsin(np.minimum(chords / 2, 1))).astype(np.float32)
        arrays["since"] = np.array(step - every)
        lengths = held["norms"]
        figures = {NORM_MEAN: float(lengths.mean()), NORM_VARIANCE: float(lengths.var())}
        figures |= turn_figures(torch.from_numpy(lengths), torch.from_numpy(arrays["angles"]))  # in degrees
        turn = {"since": step - every, **recorded(figures)}
    with files.replacing(_directions(folder, step), size=now.nbytes) as file:
        np.save(file, now)
    save_arrays(path, arrays)
    forget_directions(folder, but=(_directions(folder, saved), _directions(folder, step)))
    return turn


def forget_directions(folder: Path, but: tuple[Path, ...] = ()) -> None:
    """Remove the directions that no angle needs any more: at a run's end all of them."""
    for path in folder.glob(DIRECTIONS):
        if path not in but:
            path.unlink()


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an .npz that is never half there."""
    with files.replacing(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # none of them is called allow_pickle


def _directions(folder: Path, step: int) -> Path:
    return folder / runs.SNAPSHOTS / f"directions-{step:07d}.npy"
