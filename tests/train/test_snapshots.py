"""Snapshots: angles exact where they are tiny, other images have none, and only what is needed is kept."""

import math

import numpy as np
import pytest
import torch

from isosphere import runs
from isosphere.train import snapshots

INDICES, NORMS = torch.arange(4), torch.tensor([1.0, 2.0, 3.0, 4.0])


def rotated(degrees: float) -> torch.Tensor:
    angle = torch.full((4,), math.radians(degrees), dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], 1)


def kept(folder):
    return [int(path.stem[-7:]) for path in sorted(folder.glob(snapshots.DIRECTIONS))]


def test_angles_are_those_turned_since_the_last_snapshot(tmp_path):
    assert snapshots.save(tmp_path, 0, 10, 0, INDICES, NORMS, rotated(0)) == {}
    for step, saved, degrees, turn in ((10, 0, 0.01, 0.01), (20, 10, 60.01, 60.0), (30, 10, 240.01, 180.0)):
        found = snapshots.save(tmp_path, step, 10, saved, INDICES, NORMS, rotated(degrees))
        with np.load(runs.snapshot_path(tmp_path, step)) as held:
            assert held["since"] == found["since"] == step - 10
            np.testing.assert_allclose(held["angles"], turn, rtol=1e-3)
        assert found["turn_mean"] == pytest.approx(turn, rel=1e-3) and found["norm_mean"] == 2.5
        assert kept(tmp_path) == [saved, step]
    snapshots.forget_directions(tmp_path)
    assert kept(tmp_path) == [] and len(list(tmp_path.glob(snapshots.NORMS))) == 4


def test_other_images_have_no_angle(tmp_path):
    snapshots.save(tmp_path, 0, 10, 0, INDICES, NORMS, rotated(0))
    assert snapshots.save(tmp_path, 10, 10, 0, INDICES + 1, NORMS, rotated(5)) == {}
