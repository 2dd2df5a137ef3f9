"""Retrieval metrics against loops over sorted lists, and against pytorch-metric-learning where definitions agree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN

from isosphere import sphere
from isosphere.errors import BadArgument, NotFinite
from isosphere.metrics import map_at_r, neighbors, r_precision, recall_at_k, retrieval_metrics, singletons

KS = (1, 2, 3, 5, 1000)


def by_loops(embeddings, labels, ref_embeddings=None, ref_labels=None, ks=KS):
    """Sorts each query's gallery in float64, the negative first among equals, and reads the metrics off the list."""
    alone = ref_embeddings is None
    refs, ref_labels = (embeddings, labels) if alone else (ref_embeddings, ref_labels)
    recalls, average, precision, lonely = dict.fromkeys(ks, 0), 0.0, 0.0, 0
    for i, query in enumerate(embeddings.double()):
        ranked = []
        for j, reference in enumerate(refs.double()):
            if alone and i == j:
                continue
            lengths = float(query.norm() * reference.norm())
            cosine = float(query @ reference) / lengths if lengths > 0 else 0.0
            ranked.append((-round(cosine, 6), bool(labels[i] == ref_labels[j])))
        relevant = [positive for _, positive in sorted(ranked)]  # False sorts before True
        r = sum(relevant)
        lonely += r == 0
        for k in ks:
            recalls[k] += any(relevant[:k])
        if r:
            precision += sum(relevant[:r]) / r
            average += sum(sum(relevant[: p + 1]) / (p + 1) for p in range(r) if relevant[p]) / r
    n = len(embeddings)
    metrics = {f"recall@{k}": value / n for k, value in recalls.items()}
    return metrics | {"map@r": average / n, "r_precision": precision / n, "singletons": lonely}


def lattice(seed, n):
    """Zero, axes and half diagonals of 4-space, at several lengths: exact cosines in float32, so every tie is a tie."""
    g = torch.Generator().manual_seed(seed)
    axes = torch.cat([torch.zeros(1, 4), torch.eye(4), -torch.eye(4)])
    shapes = torch.cat([axes, torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [-1, -1, -1, -1]]) / 2])
    lengths = 2.0 ** torch.randint(-3, 4, (n, 1), generator=g)
    return shapes[torch.randint(0, len(shapes), (n,), generator=g)] * lengths, torch.randint(0, 6, (n,), generator=g)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 30), m=st.integers(0, 20), rows=st.integers(1, 9))
def test_ties_singletons_references_and_blocks_match_loops(seed, n, m, rows):
    queries, refs = lattice(seed, n), lattice(seed + 1, m) if m else (None, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "block_rows", lambda *_: rows)
        measured = retrieval_metrics(*queries, KS, *refs)
    assert measured == pytest.approx(by_loops(*queries, *refs), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_single_functions_agree_with_loops_in_every_precision(dtype):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 7
    embeddings = (torch.randn(60, 16, generator=g) + torch.randn(7, 16, generator=g)[labels]).to(dtype)
    expected = by_loops(embeddings, labels)
    assert 0.05 < expected["map@r"] < expected["recall@1"] < 0.95
    assert recall_at_k(embeddings, labels, KS) == pytest.approx({k: expected[f"recall@{k}"] for k in KS})
    assert map_at_r(embeddings, labels) == pytest.approx(expected["map@r"])
    assert r_precision(embeddings, labels) == pytest.approx(expected["r_precision"])


@pytest.mark.parametrize("with_references", [False, True])
def test_pytorch_metric_learning_agrees(with_references):
    g = torch.Generator().manual_seed(1)
    labels = torch.arange(200) % 23
    embeddings = torch.randn(200, 24, generator=g) + 0.8 * torch.randn(23, 24, generator=g)[labels]
    names = ("precision_at_1", "mean_average_precision_at_r", "r_precision")
    peer = AccuracyCalculator(include=names, k="max_bin_count", knn_func=CustomKNN(CosineSimilarity()))
    refs = (embeddings[120:], labels[120:]) if with_references else (None, None)
    queries = (embeddings[:120], labels[:120]) if with_references else (embeddings, labels)
    theirs = peer.get_accuracy(*queries, *refs)
    ours = retrieval_metrics(*queries, (1,), *refs)
    assert 0.1 < theirs["mean_average_precision_at_r"] < 0.9
    for key, name in zip(("recall@1", "map@r", "r_precision"), names, strict=True):
        assert ours[key] == pytest.approx(theirs[name], abs=1e-5)


@pytest.mark.parametrize(("n", "d"), [(97, 5), (1000, 128), (1537, 512)])
def test_a_collapsed_model_scores_nothing(n, d):
    embeddings = torch.randn(d, generator=torch.Generator().manual_seed(n)).expand(n, d)
    metrics = retrieval_metrics(embeddings, torch.arange(n) % 10, (1, 2, 8))
    assert metrics == {"recall@1": 0, "recall@2": 0, "recall@8": 0, "map@r": 0, "r_precision": 0, "singletons": 0}
    assert recall_at_k(torch.zeros(n, d), torch.arange(n) % 10)[1] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [9, 61, 501, 1001])
def test_equal_vectors_tie_wherever_blas_rounds_their_columns_differently(n, dtype):
    """In float64 the last columns of a product of 61 or 1,001 rows differ from the others on usual CPUs."""
    for seed in range(4):
        one = torch.randn(128, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
        metrics = retrieval_metrics(one.repeat(n, 1), torch.arange(n) % 2, (1, 4))
        assert metrics == {"recall@1": 0, "recall@4": 0, "map@r": 0, "r_precision": 0, "singletons": 0}


def test_twins_are_rows_of_one_direction():
    rows = torch.tensor([[1.0, 0.0], [2.0, 1.0], [3.0, -0.0], [1.0, 1e-30], [6.0, 3.0], [0.1, 0.0], [0.0, 0.0]])
    for dtype in (torch.float32, torch.float64):
        twins = twins_of(rows.to(dtype))
        assert dict(zip(twins.copies.tolist(), twins.originals.tolist(), strict=True)) == {2: 0, 3: 0, 4: 1, 5: 0}
        steps = 1 + torch.arange(6.0, dtype=dtype)[:, None] * 256 * torch.finfo(dtype).eps
        assert not len(twins_of(torch.cat([steps, torch.ones(6, 20, dtype=dtype)], 1)).copies)
        assert not len(twins_of(torch.eye(4, dtype=dtype)).copies)
    scores = twins.level(torch.arange(14.0).view(2, 7))
    assert scores.tolist() == [[0, 1, 0, 0, 1, 0, 6], [7, 8, 7, 7, 8, 7, 13]]


def twins_of(embeddings):
    eps = neighbors.largest_eps(embeddings)
    return neighbors.Twins(neighbors.directions(neighbors.checked_embeddings(embeddings)), eps)


def scaled_copies(seed, n, d, dtype):
    """c * v for one v and n scales between 1e-3 and 1e3, each component rounded to the type.

    In float16 scales begin at 1: below, numbers lose digits, and directions are no longer the same.
    """
    low = 0 if dtype == torch.float16 else -3
    g = torch.Generator().manual_seed(seed)
    one = torch.randn(d, generator=g, dtype=torch.float64) * 10 ** -(2 * torch.rand(d, generator=g).double())
    return (one * 10 ** ((3 - low) * torch.rand(n, 1, generator=g).double() + low)).to(dtype)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 200),
    d=st.sampled_from([1, 2, 3, 16, 129, 512, 2048]),
    dtype=st.sampled_from(DTYPES),
)
def test_scaled_copies_of_one_direction_tie(seed, n, d, dtype):
    """A collapsed model whose norms differ scores nothing, in any order of rows."""
    embeddings, labels = scaled_copies(seed, n, d, dtype), torch.arange(n) % 3
    for order in (torch.arange(n), torch.randperm(n, generator=torch.Generator().manual_seed(seed))):
        metrics = retrieval_metrics(embeddings[order], labels[order], (1,))
        assert metrics["recall@1"] == metrics["map@r"] == metrics["r_precision"] == 0
        apart = retrieval_metrics(embeddings, labels, (1,), embeddings[order], labels[order])
        assert apart["recall@1"] == apart["map@r"] == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(DTYPES))
def test_several_collapsed_directions_do_not_depend_on_the_order_of_rows(seed, dtype):
    g = torch.Generator().manual_seed(seed)
    embeddings = torch.cat([scaled_copies(seed + part, 40, 32, dtype) for part in range(5)])
    labels = torch.randint(0, 6, (200,), generator=g)
    assert len(twins_of(embeddings).originals.unique()) == 5 and len(twins_of(embeddings).copies) == 195
    wanted = retrieval_metrics(embeddings, labels)
    for _ in range(3):
        order = torch.randperm(200, generator=g)
        assert retrieval_metrics(embeddings[order], labels[order]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [16, 512])
def test_ordinary_embeddings_have_no_twins(d, dtype):
    """So nothing is leveled, and their metrics are those of the plain scores; near copies stay apart, too."""
    g = torch.Generator().manual_seed(d)
    embeddings = torch.randn(2000, d, generator=g, dtype=torch.float64) + 3 * torch.randn(d, generator=g)
    embeddings[1000:] = embeddings[:1000] + 64 * torch.finfo(dtype).eps * torch.randn(1000, d, generator=g)
    assert not len(twins_of(embeddings.to(dtype)).copies)


def test_scale_of_each_embedding_does_not_matter_and_self_is_excluded_by_index():
    g = torch.Generator().manual_seed(2)
    embeddings, labels = torch.randn(50, 8, generator=g), torch.arange(50) % 5
    scales = torch.rand(50, 1, generator=g) * 100 + 0.1
    assert retrieval_metrics(embeddings * scales, labels) == retrieval_metrics(embeddings, labels)
    # An exact copy of a query is a neighbor like any other: here the only, and perfect, positive.
    twins, twin_labels = torch.cat([embeddings, embeddings]), torch.arange(50).repeat(2)
    assert retrieval_metrics(twins, twin_labels, (1,))["map@r"] == 1
    # All positives at a negative cosine: nothing of the diagonal may help.
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert recall_at_k(opposite, torch.tensor([0, 0, 1, 1]), (1, 2, 3)) == {1: 0.0, 2: 0.0, 3: 1.0}


def test_singletons_are_counted_and_wrong_at_any_k():
    labels = torch.tensor([0, 0, 1, 2, 2, 3])
    assert singletons(labels) == 2
    assert singletons(labels, torch.tensor([0, 2, 9])) == 2
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    assert recall_at_k(embeddings, labels, (10**6,)) == {10**6: 4 / 6}
    assert recall_at_k(embeddings, torch.arange(6), (1, 100)) == {1: 0.0, 100: 0.0}


def test_numpy_and_gradient_inputs_are_taken_as_they_are():
    embeddings = torch.randn(20, 4, generator=torch.Generator().manual_seed(4), requires_grad=True)
    labels = torch.arange(20) % 4
    expected = retrieval_metrics(embeddings, labels)
    assert retrieval_metrics(embeddings.detach().numpy(), labels.numpy().astype(np.int32)) == expected
    with torch.autocast("cpu", torch.bfloat16):
        assert retrieval_metrics(embeddings, labels) == expected
    backwards = retrieval_metrics(embeddings.detach().numpy()[::-1], labels.numpy()[::-1])
    assert backwards == pytest.approx(expected)
    assert (
        recall_at_k(embeddings, labels, 2) == recall_at_k(embeddings, labels, np.int64(2)) == {2: expected["recall@2"]}
    )
    recalls = recall_at_k(embeddings, labels, np.array([1, 2]))
    assert recalls == recall_at_k(embeddings, labels, (1, 2)) and all(type(k) is int for k in recalls)


class Frame:
    """What pandas has: values behind an index that need not begin at 0."""

    def __init__(self, values):
        self.values = values
        self.values.flags.writeable = False

    def __getitem__(self, index):
        raise KeyError(index)

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return iter(self.values)

    def to_numpy(self):
        return self.values


@pytest.mark.filterwarnings("error")
def test_columns_of_frames_and_arrays_of_other_machines_are_taken():
    rows, labels = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 4
    plain = retrieval_metrics(rows, labels)
    assert retrieval_metrics(Frame(rows.copy()), Frame(labels.copy())) == plain
    assert retrieval_metrics(Frame(rows.copy()), Frame(np.array(list("abcd"), dtype=object)[labels])) == plain
    assert retrieval_metrics(rows.astype(">f8"), labels.astype(">i4")) == plain


def test_labels_may_be_words():
    generator, words = torch.Generator().manual_seed(5), np.array(["pear", "fig", "", "Fig"])
    embeddings, numbers = torch.randn(40, 4, generator=generator), torch.arange(40) % 4
    refs, ref_numbers = torch.randn(9, 4, generator=generator), torch.tensor([3, 3, 0, 0, 1, 3, 2, 1, 0])
    named, ref_named = words[numbers], words[ref_numbers]
    for labels in (named, named.tolist(), named.astype(object)):
        assert retrieval_metrics(embeddings, labels) == retrieval_metrics(embeddings, numbers)
        # The references' words come in another order, and one that no query has stands first.
        wanted = retrieval_metrics(embeddings, numbers, (1, 2), refs, torch.cat([torch.tensor([9]), ref_numbers[1:]]))
        assert retrieval_metrics(embeddings, labels, (1, 2), refs, ["kiwi", *ref_named[1:]]) == wanted
    assert singletons(["a", "b", "a"]) == singletons(["a", "b", "c"], ["c", "a", "a"]) == 1
    for mixed in ((named, (1,), refs, ref_numbers), (numbers, (1,), refs, ref_named), ([*named[:39], 3],)):
        with pytest.raises(BadArgument) as error:
            recall_at_k(embeddings, *mixed)
        assert error.value.name in ("labels", "ref_labels")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_embeddings_have_directions_and_no_other_digit_changes(dtype):
    g = torch.Generator().manual_seed(6)
    embeddings, labels = torch.randn(300, 16, generator=g, dtype=dtype), torch.arange(300) % 9
    embeddings[7] = 0
    scales = 10.0 ** torch.randint(-12, 9, (300, 1), generator=g).to(dtype)
    assert torch.equal(neighbors.directions(embeddings * scales), sphere.directions(embeddings * scales))
    powers = torch.tensor([2.0**-100, 2.0**-125, 1.0, 2.0**-70], dtype=dtype).repeat(75)[:, None]
    assert (sphere.norms(embeddings.float() * 2.0**-100) == 0).all(), "which is why"
    wanted = sphere.directions(embeddings)
    torch.testing.assert_close(neighbors.directions(embeddings * powers), wanted, rtol=1e-5, atol=1e-6)
    assert retrieval_metrics(embeddings * 2.0**-100, labels) == retrieval_metrics(embeddings, labels)


ROWS, NUMBERS = torch.zeros(4, 2), torch.arange(4)


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        ("embeddings", (4, 2, 2), (torch.zeros(4, 2, 2), NUMBERS)),
        ("embeddings", (0, 2), (torch.zeros(0, 2), torch.zeros(0).long())),
        ("embeddings", torch.int64, (ROWS.long(), NUMBERS)),
        ("labels", (3,), (ROWS, NUMBERS[:3])),
        ("labels", torch.float32, (ROWS, torch.zeros(4))),
        ("ks", 0, (ROWS, NUMBERS, (1, 0))),
        ("ks", True, (ROWS, NUMBERS, (True,))),
        ("ks", 1.5, (ROWS, NUMBERS, (1.5,))),
        ("ks", 1.0, (ROWS, NUMBERS, 1.0)),
        ("ref_labels", None, (ROWS, NUMBERS, (1,), torch.zeros(3, 2))),
        ("ref_embeddings", (3, 5), (ROWS, NUMBERS, (1,), torch.zeros(3, 5), torch.arange(3))),
        ("ref_labels", (2,), (ROWS, NUMBERS, (1,), torch.zeros(3, 2), torch.arange(2))),
    ],
)
def test_bad_input_is_named(name, value, arguments):
    with pytest.raises(BadArgument) as error:
        recall_at_k(*arguments)
    assert (error.value.name, error.value.value) == (name, value) and type(error.value.value) is type(value)


@pytest.mark.parametrize(
    ("name", "row", "rows", "arguments"),
    [
        ("embeddings", 2, 3, (torch.tensor([[0.0], [1.0], [torch.nan]]), torch.arange(3))),
        ("embeddings", 1, 3, (torch.tensor([[0.0], [-torch.inf], [torch.nan]]), torch.arange(3))),
        ("embeddings", 0, 4, (torch.full((4, 2), 3e38), NUMBERS)),
        ("ref_embeddings", 0, 3, (ROWS, NUMBERS, (1,), torch.full((3, 2), torch.nan), torch.arange(3))),
    ],
)
def test_rows_that_are_not_finite_are_named(name, row, rows, arguments):
    with pytest.raises(NotFinite) as error:
        recall_at_k(*arguments)
    assert (error.value.name, error.value.row, error.value.rows) == (name, row, rows)
