"""Exact search against a loop over all pairs: same scores, same rows, ties in the order of the rows."""

import numpy as np
import pytest
import torch

from isosphere.errors import BadArgument
from isosphere.metrics import nearest as module
from isosphere.metrics.nearest import nearest, pairs_above


def loop(queries, rows, k, skip, among):
    """Every pair by itself, in float64, sorted by score and row."""
    found = []
    for number, query in enumerate(queries):
        pairs = []
        for row in range(len(rows)) if among is None else among.tolist():
            if skip is None or row != int(skip[number]):
                score = np.float32(sum(float(a) * float(b) for a, b in zip(query, rows[row], strict=True)))
                pairs.append((-score, row))
        found.append(sorted(pairs)[:k])
    scores = [[-score for score, _ in pairs] for pairs in found]
    return torch.tensor(np.asarray(scores)), torch.tensor([[row for _, row in pairs] for pairs in found])


@pytest.mark.parametrize("columns", [1 << 16, 50, 7])
@pytest.mark.parametrize("rows, copies", [(5, 1), (70, 1), (140, 7), (90, 30), (60, 60)])
def test_as_a_loop_with_ties(rows, copies, columns, monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", columns)
    monkeypatch.setattr(module, "HEIGHT", 5)
    monkeypatch.setattr(module, "GROUP", 4)
    monkeypatch.setattr(module, "SPARE", 3)
    generator = torch.Generator().manual_seed(rows)
    base = torch.randn(rows, 8, generator=generator)[torch.arange(rows) // copies]
    base = torch.nn.functional.normalize(base).half()
    queries = torch.cat([base[:6].float(), torch.nn.functional.normalize(torch.randn(5, 8, generator=generator))])
    for k in (1, 4, 40):
        for skip in (None, torch.arange(len(queries)).clamp(max=rows - 1)):
            for among in (None, torch.arange(0, rows, 3)):
                scores, indices = nearest(queries, base, k, skip, among)
                wanted, places = loop(queries, base, scores.shape[1], skip, among)
                assert torch.equal(indices, places)
                torch.testing.assert_close(scores, wanted, rtol=0, atol=1e-7)


def test_nothing_to_find_is_refused():
    rows = torch.eye(3)
    assert nearest(rows, rows, 9).indices.shape == (3, 3)
    assert nearest(rows, rows, 9, skip=torch.arange(3)).indices.shape == (3, 2)
    for k, among in ((0, None), (1, torch.tensor([], dtype=torch.long))):
        with pytest.raises(BadArgument):
            nearest(rows, rows, k, among=among)
    with pytest.raises(BadArgument):
        nearest(rows[:1], rows[:1], 1, skip=torch.tensor([0]))


def test_scales_make_rows_unit_vectors(monkeypatch):
    class Scaled:
        """Rows of whole numbers."""

        rows = torch.randint(-99, 99, (40, 6), generator=torch.Generator().manual_seed(0)).to(torch.int8)
        scales = 1 / rows.float().norm(dim=1)

        def __len__(self):
            return 40

        def __getitem__(self, places):
            return self.rows[places]

    unit = Scaled.rows.float() * Scaled.scales[:, None]
    for among in (None, torch.arange(0, 40, 3)):
        found, wanted = nearest(unit[:9], Scaled(), 5, among=among), nearest(unit[:9], unit, 5, among=among)
        assert torch.equal(found.indices, wanted.indices)
        torch.testing.assert_close(found.scores, wanted.scores)
    found, wanted = (next(pairs_above(rows, 0.5)) for rows in (Scaled(), unit))
    assert len(found[0]) > 9 and torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1])
