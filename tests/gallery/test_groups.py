"""Near copies and clusters against plain loops and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN

from blobs import blobs, made
from isosphere.errors import BadArgument, NoModel
from isosphere.gallery import groups
from isosphere.metrics import nearest as module
from isosphere.metrics import nmi
from isosphere.metrics.nearest import pairs_above


@pytest.mark.parametrize("side", [7, 4096])
def test_pairs_are_those_of_a_loop(side, monkeypatch):
    monkeypatch.setattr(module, "block_shape", lambda device: (side, 99999))
    rows = torch.nn.functional.normalize(blobs(4, 8, 0.2)[0]).half()
    found = [torch.cat(its).tolist() for its in zip(*pairs_above(rows, 0.7), strict=True)]
    wide = rows.double()
    wanted = {(i, j): float(wide[i] @ wide[j]) for i in range(32) for j in range(i + 1, 32)}
    wanted = {pair: cosine for pair, cosine in wanted.items() if cosine >= 0.7}
    assert 20 < len(wanted) < 400
    assert dict(zip(zip(*found[:2], strict=True), found[2], strict=True)) == pytest.approx(wanted, abs=1e-6)


def test_duplicates_are_connected_groups_the_nearest_first(tmp_path):
    rows, labels = blobs(12, 1, 0.0)
    rows = torch.cat([rows, rows[3:4] + 0.01, rows[5:6], rows[3:4] - 0.01])
    found, edges = groups.duplicates(made(tmp_path / "g", rows, [*labels, "a", "b", "c"]), 0.999)
    assert [its.tolist() for its in found] == [[5, 13], [3, 12, 14]]
    assert edges.cosines.min() >= 0.999 and len(edges.cosines) == 3  # 12 and 14 are connected by 3
    with pytest.raises(NoModel):
        groups.suggested_above(made(tmp_path / "other", rows, None))


def test_too_many_pairs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "PAIRS", 10)
    with pytest.raises(BadArgument):
        groups.duplicates(made(tmp_path / "g", *blobs(2, 10, 0.01)), 0.5)


@pytest.mark.parametrize("least, above", [(3, 0.8), (5, 0.9), (5, 0.7), (1, 0.95)])
def test_density_is_dbscan(least, above, tmp_path):
    found = made(tmp_path / "g", *blobs(6, 9, 0.12))
    clusters = groups.by_density(found, above, least)
    unit = found.vectors[:].double().numpy()
    distances = np.clip(1 - unit @ unit.T, 0, None)
    distances[np.diag_indices(len(unit))] = 0
    oracle = DBSCAN(eps=1 - above, min_samples=least, metric="precomputed").fit(distances)
    dense = np.zeros(len(unit), bool)
    dense[oracle.core_sample_indices_] = True
    assert ((clusters < 0) == (oracle.labels_ < 0)).all()
    assert nmi(clusters[dense], oracle.labels_[dense]) == pytest.approx(1)
    sizes = np.bincount(clusters[clusters >= 0])
    assert (np.diff(sizes) <= 0).all()
    for row in np.flatnonzero(~dense & (clusters >= 0)):  # scikit-learn takes any dense row, ours the nearest
        assert clusters[row] == clusters[dense][distances[row][dense].argmin()]


def test_means_and_the_suggested_density_find_what_was_planted(tmp_path):
    rows, labels = blobs(7, 30, 0.05)
    found = made(tmp_path / "g", rows, labels)
    assert nmi(groups.by_means(found, 7), found.codes) == pytest.approx(1)
    clusters = groups.by_density(found, groups.suggested_density(found))
    kept = clusters >= 0
    assert clusters.max() >= 6 and all(len(set(found.codes[clusters == its])) == 1 for its in range(clusters.max()))
    assert kept.mean() > 0.4
    with pytest.raises(BadArgument):
        groups.suggested_density(found, least=len(rows))
