"""Identification among distractors against loops over lists."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isosphere.errors import BadArgument, NotFinite
from isosphere.metrics import distractors as module
from isosphere.metrics.distractors import distractors_ahead, full_float32, identification


def brute_force(probes, labels, distractors, counts, gallery=None, gallery_labels=None, seed=0):
    """MegaFace in loops: {(probe, mate): [distractors that score at least as high as the mate, for each count]}."""
    order = torch.randperm(len(distractors), generator=torch.Generator().manual_seed(seed)).tolist()
    mates, mate_labels = (probes, labels) if gallery is None else (gallery, gallery_labels)
    unit = lambda v: (v / v.norm() if v.norm() > 0 else v).double()  # noqa: E731
    score = lambda a, b: round(float(unit(a) @ unit(b)), 6)  # noqa: E731
    ahead = {}
    for i in range(len(probes)):
        scores = [score(probes[i], distractors[j]) for j in order]
        for j in range(len(mates)):
            if labels[i] == mate_labels[j] and not (gallery is None and i == j):
                mine = score(probes[i], mates[j])
                ahead[i, j] = [sum(s >= mine for s in scores[:count]) for count in counts]
    return ahead


def lattice(g, n):
    """Axes and half diagonals of 4-space, and zero: exact cosines, many ties and many duplicates."""
    shapes = torch.cat(
        [torch.zeros(1, 4), torch.eye(4), -torch.eye(4), torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1]]) / 2]
    )
    return shapes[torch.randint(0, len(shapes), (n,), generator=g)] * 2.0 ** torch.randint(-3, 4, (n, 1), generator=g)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 14),
    m=st.sampled_from([0, 1, 9]),
    columns=st.integers(1, 9),
    rows=st.integers(1, 5),
    ties=st.booleans(),
)
def test_identification_is_brute_force(seed, n, m, columns, rows, ties):
    """Unequal groups, singletons, a gallery or none, ties and duplicates, and blocks that divide nothing."""
    g = torch.Generator().manual_seed(seed)
    draw = (lambda size: lattice(g, size)) if ties else (lambda size: torch.randn(size, 3, generator=g))
    probes, distractors = draw(n), draw(23)
    labels = torch.randint(0, 4, (n,), generator=g) * 7
    labels[:2] = 7
    gallery, gallery_labels = (draw(m), torch.randint(0, 6, (m,), generator=g) * 7) if m else (None, None)
    if m:
        gallery_labels[0] = 7
    counts, ks = (2, 5, 23), (1, 2, 4)
    expected = brute_force(probes, labels, distractors, counts, gallery, gallery_labels, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COLUMNS", columns)
        patch.setattr(module, "block_rows", lambda *_: rows)
        arguments = (gallery, gallery_labels, seed)
        measured = identification(probes, labels, distractors, counts, ks, *arguments)
        found = distractors_ahead(probes, labels, distractors, counts, 100, *arguments)
    assert measured.pop("pairs") == len(expected)
    assert measured.pop("singletons") == n - len({i for i, _ in expected})
    for place, count in enumerate(counts):
        by_pair = dict(
            zip(zip(*(part.tolist() for part in found[:2]), strict=True), found[2][count].tolist(), strict=True)
        )
        assert by_pair == {pair: ahead[place] for pair, ahead in expected.items()}
        for k in ks:
            right = sum(ahead[place] < k for ahead in expected.values()) / len(expected)
            assert measured.pop(f"rank{k}@{count}") == pytest.approx(right)
    assert not measured


@pytest.mark.parametrize("dim", [3, 33, 512])
@pytest.mark.parametrize("columns", [37, 1 << 15])
def test_a_copy_of_the_mate_among_the_distractors_is_a_tie_to_the_last_bit(dim, columns, monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", columns)
    g = torch.Generator().manual_seed(0)
    first = torch.randn(201, dim, generator=g)
    second = first + 0.1 * torch.randn(201, dim, generator=g)
    probes, labels = torch.cat([first, second]), torch.arange(402) % 201
    distractors = torch.cat([-first, first, -second])[torch.randperm(603, generator=g)]
    rows, mates, ahead = distractors_ahead(probes, labels, distractors, (603,), most=2)
    # To the second image the first one is a mate and, as its own copy, the one distractor that is as near.
    asked = rows >= 201
    assert torch.equal(mates[asked], rows[asked] - 201) and asked.sum() == 201
    assert ahead[603][asked].unique().tolist() == [1] or dim == 3  # in 3-space others may come as near
    assert ahead[603].min() == 1


def test_people_may_have_names_and_one_number_needs_no_list():
    g = torch.Generator().manual_seed(0)
    probes, gallery, distractors = (torch.randn(n, 4, generator=g) for n in (12, 5, 50))
    numbers, gallery_numbers = torch.arange(12) // 3, torch.tensor([3, 1, 9, 0, 1])
    names = np.array([f"N{number}" for number in range(10)])
    wanted = identification(probes, numbers, distractors, (50,), (20,), gallery, gallery_numbers)
    named = identification(probes, names[numbers], distractors, 50, 20, gallery, names[gallery_numbers].tolist())
    assert named == wanted and 0 < wanted["rank20@50"] < 1
    tiny = (part * 2.0**-100 for part in (probes, distractors))
    assert identification(next(tiny), names[numbers], next(tiny), 50) == identification(
        probes, numbers, distractors, (50,)
    )


def test_collapsed_embeddings_score_nothing():
    probes = torch.full((40, 16), 0.3)
    measured = identification(probes, torch.arange(40) // 4, torch.full((500, 16), 0.3), (100, 500), (1, 10))
    assert [measured[f"rank{k}@{n}"] for n in (100, 500) for k in (1, 10)] == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [37, 1 << 15])
def test_scaled_copies_of_one_direction_tie(columns, dtype, monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", columns)
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        one, scales = torch.randn(64, generator=g), 10 ** (6 * torch.rand(540, 1, generator=g) - 3)
        rows, labels = (one * scales).to(dtype), torch.arange(40) // 4
        for gallery in ((None, None), (rows[20:40] / 2, labels[20:])):
            measured = identification(rows[:40], labels, rows[40:], (100, 500), (1, 10), *gallery)
            assert [measured[f"rank{k}@{n}"] for n in (100, 500) for k in (1, 10)] == [0, 0, 0, 0]


@pytest.mark.parametrize(("n", "m", "dim"), [(5, 500, 128), (9, 500, 512), (61, 61, 512), (501, 7, 512)])
def test_equal_vectors_tie_wherever_blas_rounds_their_columns_differently(n, m, dim):
    """In these shapes the last columns of a float64 product differ from the others on a usual CPU."""
    one = torch.randn(dim, generator=torch.Generator().manual_seed(n * m + dim), dtype=torch.float64)
    measured = identification(one.repeat(n, 1), torch.zeros(n, dtype=torch.long), one.repeat(m, 1), m, (1, m))
    assert measured[f"rank1@{m}"] == measured[f"rank{m}@{m}"] == 0


def test_progress_precision_and_the_callers_settings(monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", 40)
    matmul = torch.backends.cuda.matmul
    new = hasattr(matmul, "fp32_precision")
    heard, inside = [], []

    def progress(done, total):
        heard.append((done, total))
        inside.append(matmul.fp32_precision if new else torch.get_float32_matmul_precision())

    g = torch.Generator().manual_seed(0)
    probes, distractors = torch.randn(10, 4, generator=g), torch.randn(200, 4, generator=g)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        state = [torch.get_float32_matmul_precision(), matmul.allow_tf32]
        with torch.autocast("cpu", torch.bfloat16):
            measured = identification(probes, torch.arange(10) // 2, distractors, (50, 130), progress=progress)
        assert [torch.get_float32_matmul_precision(), matmul.allow_tf32] == state
        with pytest.raises(RuntimeError, match="on purpose"), full_float32():
            raise RuntimeError("on purpose")
        assert [torch.get_float32_matmul_precision(), matmul.allow_tf32] == state
    finally:
        torch.set_float32_matmul_precision(before)
    assert heard == [(40, 130), (50, 130), (90, 130), (130, 130)]
    assert set(inside) == {"ieee" if new else "highest"}
    assert measured == identification(probes, torch.arange(10) // 2, distractors, (130, 50))
    double = identification(probes.double(), torch.arange(10) // 2, distractors.half(), (50, 130))
    assert double["pairs"] == 10


@pytest.mark.parametrize(
    ("name", "value", "call"),
    [
        ("counts", 1000, lambda: identify(counts=(5, 1000))),
        ("ks", 0, lambda: identify(ks=(0,))),
        ("labels", "those of 6 probes without a mate", lambda: identify(labels=torch.arange(6))),
        ("gallery_labels", None, lambda: identify(gallery=torch.rand(3, 4))),
        ("gallery", (3, 5), lambda: identify(gallery=torch.rand(3, 5), gallery_labels=torch.arange(3))),
        ("distractors", (20, 5), lambda: identify(distractors=torch.rand(20, 5))),
    ],
)
def test_bad_input_is_named(name, value, call):
    with pytest.raises(BadArgument) as error:
        call()
    assert (error.value.name, error.value.value) == (name, value)


def test_a_distractor_that_is_not_finite_is_named():
    with pytest.raises(NotFinite) as error:
        identify(distractors=torch.full((20, 4), torch.inf))
    assert (error.value.name, error.value.row) == ("distractors", 0)


def identify(labels=None, distractors=None, counts=(5,), ks=(1,), **others):
    labels = torch.arange(6) // 2 if labels is None else labels
    distractors = torch.rand(20, 4) if distractors is None else distractors
    return identification(torch.rand(6, 4), labels, distractors, counts, ks, **others)
