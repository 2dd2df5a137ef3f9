"""Thresholds and their errors against all pairs in a loop; the classes that judge are not those that choose."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_curve

from blobs import blobs, made
from isosphere.errors import TooFewClasses
from isosphere.gallery import calibration
from isosphere.gallery.calibration import BINS, calibrate


def test_counts_and_rates_are_those_of_all_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "block_shape", lambda device: (13, 99))
    rows, labels = blobs(10, 11, 0.25)
    found = made(tmp_path / "g", rows, labels)
    points, pairs = calibrate(found, seed=3)
    order = np.random.default_rng(3).permutation(10)
    unit = torch.nn.functional.normalize(found.vectors[:].float()).numpy()
    same, cosines, half = [], [], []
    for i in range(110):
        for j in range(i + 1, 110):
            sides = [int(np.flatnonzero(order == found.codes[row])[0]) % 2 for row in (i, j)]
            if sides[0] == sides[1]:
                same.append(found.codes[i] == found.codes[j])
                cosines.append(float(unit[i] @ unit[j]))
                half.append(sides[0])
    same, cosines, half = map(np.asarray, (same, cosines, half))
    assert (pairs.same.sum(), pairs.different.sum()) == (same.sum(), (~same).sum())
    width = 2 / BINS
    accepts, accepted, thresholds = roc_curve(same, cosines)
    equal = np.abs(accepts - (1 - accepted)).argmin()
    assert points[0].wanted is None and points[0].threshold == pytest.approx(thresholds[equal], abs=0.02)
    for point in points[1:]:
        assert ((cosines >= point.threshold) & ~same).sum() / (~same).sum() <= point.wanted + 1e-9
        assert ((cosines >= point.threshold - 2 * width) & ~same).sum() / (~same).sum() >= point.wanted * 0.8
        for side in (0, 1):  # chosen on the other half
            other = half != side
            ranked = np.sort(cosines[other & ~same])[::-1]
            chosen = ranked[int(point.wanted * len(ranked))]
            mine = half == side
            rejects = (cosines[mine & same] < chosen).mean()
            assert point.spread[1][side] == pytest.approx(rejects, abs=0.02)
        assert point.rejects == pytest.approx(np.mean(point.spread[1]))
    assert [point.wanted for point in points] == [None, 0.1, 0.01]  # lower rates have too few pairs here


def test_too_few_labels_with_pairs_are_refused(tmp_path):
    with pytest.raises(TooFewClasses):
        calibrate(made(tmp_path / "g", torch.randn(9, 4), ["a", "a", "b", "b", "c", "c", "d", "e", "f"]))
