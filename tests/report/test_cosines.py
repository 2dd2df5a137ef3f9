"""Cosines of pairs and triplets against loops over every one of them."""

import numpy as np
import pytest

from isosphere.errors import BadArgument
from isosphere.metrics import neighbors
from isosphere.report import cosines


def by_loops(embeddings, labels):
    """All triplets one by one: cells of cosines, cells of differences, true differences."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    size = len(labels)
    positives, negatives, cells, true = [], [], [], []
    for a in range(size):
        for p in range(size):
            if p == a or labels[p] != labels[a]:
                continue
            for n in range(size):
                if labels[n] != labels[a]:
                    ap, an = float(unit[a] @ unit[p]), float(unit[a] @ unit[n])
                    cells.append(cell(ap) - cell(an))
                    true.append(ap - an)
        for b in range(size):
            if b != a:
                (positives if labels[b] == labels[a] else negatives).append(float(unit[a] @ unit[b]))
    return positives, negatives, cells, true


def cell(cosine):
    return min(max(int(np.floor((cosine + 1) * 1000)), 0), 1999)


def data(seed, size=30, classes=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=size)
    return rng.normal(size=(classes, 6))[labels] + rng.normal(size=(size, 6)), labels


@pytest.mark.parametrize(("seed", "rows"), [(0, 1), (1, 7), (2, 1000)])
def test_histograms_and_violations_match_loops(seed, rows, monkeypatch):
    embeddings, labels = data(seed)
    monkeypatch.setattr(neighbors, "block_rows", lambda *_: rows)
    found = cosines.pair_cosines(embeddings, labels)
    positives, negatives, cells, true = by_loops(embeddings, labels)
    assert (found.positives == np.histogram(positives, cosines.EDGES)[0]).all()
    assert (found.negatives == np.histogram(negatives, cosines.EDGES)[0]).all()
    assert (found.differences == np.bincount((np.array(cells) + 2000) // 20, minlength=200)).all()
    assert found.differences.sum() == len(true)
    assert found.violated == np.mean(np.array(true) < 0) and found.tied == 0


def test_a_difference_is_right_to_a_thousandth():
    embeddings, labels = data(3)
    below = np.cumsum(cosines.pair_cosines(embeddings, labels).differences)
    true = np.array(by_loops(embeddings, labels)[3])
    for count, edge in zip(below, cosines.DIFFERENCE_EDGES[1:], strict=True):
        assert (true < edge - 0.001).sum() <= count <= (true < edge + 0.001).sum()


def test_a_collapsed_model_violates_none_but_ties_all():
    found = cosines.pair_cosines(np.ones((12, 4), np.float32), np.arange(12) // 3)
    assert found.violated == 0 and found.tied == 1
    assert found.positives[-1] == 12 * 2 and found.negatives[-1] == 12 * 9  # also a cosine rounded past 1


def test_opposite_classes_violate_none_and_mixed_ones_half():
    apart = np.array([[1.0, 0], [2, 0], [-1, 0], [-3, 0]])
    assert cosines.pair_cosines(apart, np.array([0, 0, 1, 1])).violated == 0
    mixed = cosines.pair_cosines(
        apart, np.array([0, 1, 0, 1])
    )  # one negative along, the other opposite as the positive
    assert mixed.violated == mixed.tied == 0.5


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_no_triplet_is_said(labels):
    with pytest.raises(BadArgument):
        cosines.pair_cosines(np.eye(3), np.array(labels))


def test_the_figure_shows_the_share_of_violated_triplets(make_run, tmp_path):
    runs = [make_run("a", seed=1), make_run("b", "cub200-triplet-sec", seed=2)]
    text = cosines.cosines(runs, tmp_path / "c.png")[1].read_text()
    for run in runs:
        held = np.load(run / "test_embeddings.npz")
        share = cosines.pair_cosines(held["embeddings"].astype(np.float32), held["labels"]).violated
        assert f"{share:.2%} violated" in text
    for word in ("positive pairs", "negative", "baseline", "SEC (η", "CUB-200-2011, triplet loss"):
        assert word in text
