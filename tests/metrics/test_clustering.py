"""k-means against scikit-learn and its own promises; NMI and pairwise F1 against scikit-learn and a loop over pairs."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from isosphere import sphere
from isosphere.errors import BadArgument, NotFinite
from isosphere.metrics import clustering, clustering_metrics, kmeans, neighbors, nmi, pairwise_f1

partitions = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-3, 4), min_size=n, max_size=n) for _ in range(2)])
)


@settings(max_examples=60, deadline=None)
@given(partitions)
def test_nmi_is_scikit_learns(pair):
    clusters, labels = map(torch.tensor, pair)
    assert nmi(clusters, labels) == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(partitions)
def test_pairwise_f1_is_that_of_a_loop_over_pairs(pair):
    hits = clustered = labeled = 0
    for (a, x), (b, y) in combinations(zip(*pair, strict=True), 2):
        hits, clustered, labeled = hits + (a == b and x == y), clustered + (a == b), labeled + (x == y)
    expected = 2 * hits / (clustered + labeled) if clustered + labeled else 1.0
    assert pairwise_f1(*map(torch.tensor, pair)) == pytest.approx(expected, abs=1e-12)


def blobs(n=600, d=16, classes=12, noise=0.5, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    return (torch.randn(classes, d, generator=g)[labels] + noise * torch.randn(n, d, generator=g)).to(dtype), labels


def test_inertia_matches_scikit_learn():
    points, _ = blobs(noise=1.5)
    ours = sorted(kmeans(points, 20, seed)[2] for seed in range(9))[4]
    theirs = sorted(KMeans(20, n_init=1, random_state=seed).fit(points.numpy()).inertia_ for seed in range(9))[4]
    assert ours == pytest.approx(theirs, rel=0.01)


def test_assignments_centroids_and_inertia_belong_together():
    points, _ = blobs()
    assignments, centroids, inertia = kmeans(points, 12)
    distances = torch.cdist(points.double(), centroids.double()).square()
    assert torch.equal(assignments, distances.argmin(1))
    assert inertia == pytest.approx(float(distances.amin(1).sum()), rel=1e-5)
    means = torch.stack([points[assignments == c].mean(0) for c in range(12)])
    assert torch.allclose(means, centroids, atol=1e-2)


def test_inertia_never_rises_and_one_seed_gives_one_result(monkeypatch):
    points, _ = blobs(noise=2.0)
    course = [kmeans(points, 25, seed=3, iterations=i)[2] for i in range(12)]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in zip(course, course[1:], strict=False))
    assert course[-1] < 0.95 * course[0]
    first, again, other = kmeans(points, 25, 3), kmeans(points, 25, 3), kmeans(points, 25, 4)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1]) and first[2] == again[2]
    assert not torch.equal(first[0], other[0])
    monkeypatch.setattr(neighbors, "block_rows", lambda *_: 7)
    monkeypatch.setattr(clustering, "block_rows", lambda *_: 7)
    assert kmeans(points, 25, 3)[2] == pytest.approx(first[2], rel=1e-3)


def test_seeding_is_greedy_and_finds_separate_blobs():
    points, labels = blobs(noise=0.01)
    _, _, inertia = kmeans(points, 12, iterations=0)
    assert len(kmeans(points, 12, iterations=0)[0].unique()) == 12
    within = sum(float((points[labels == c] - points[labels == c].mean(0)).square().sum()) for c in range(12))
    assert inertia < 3 * within
    assert nmi(kmeans(points, 12)[0], labels) == pytest.approx(1)


def test_empty_clusters_move_to_the_farthest_points():
    points = torch.tensor([[0.0], [1.0], [10.0], [12.0], [50.0]])
    squares = points.square().sum(1)
    moved = clustering._updated(points, squares, torch.tensor([[0.5], [900.0], [10.5], [990.0]]))
    # 50 is farthest from its centroid, 10.5; 12 comes next.
    assert moved.squeeze(1).tolist() == pytest.approx([0.5, 50.0, 24.0, 12.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_one_cluster_all_clusters_and_duplicates(dtype):
    points, _ = blobs(n=40, dtype=dtype)
    assignments, centroids, inertia = kmeans(points, 1)
    exact = points.double()
    assert assignments.eq(0).all() and torch.allclose(centroids[0].double(), exact.mean(0), atol=1e-5)
    assert inertia == pytest.approx(float((exact - exact.mean(0)).square().sum()), rel=1e-5)
    assignments, _, inertia = kmeans(points, 40)
    assert len(assignments.unique()) == 40 and inertia == pytest.approx(0, abs=1e-8)
    copies = points[:4].repeat(10, 1)
    assignments, centroids, inertia = kmeans(copies, 9)
    assert len(assignments.unique()) == 4 and centroids.isfinite().all() and inertia == pytest.approx(0, abs=1e-8)
    assert kmeans(torch.ones(6, 3, dtype=dtype), 3)[2] == pytest.approx(0, abs=1e-8)


def test_far_from_the_origin_nothing_cancels():
    points, _ = blobs()
    near, far = kmeans(points, 12), kmeans(points + 1000, 12)
    assert far[2] == pytest.approx(near[2], rel=1e-2)


def test_clustering_metrics_are_of_the_directions():
    embeddings, labels = blobs(noise=1.0)
    scales = torch.rand(len(labels), 1, generator=torch.Generator().manual_seed(1)) * 9 + 1
    assignments, _, _ = kmeans(sphere.directions(embeddings * scales), 12, seed=5)
    expected = {"nmi": nmi(assignments, labels), "f1": pairwise_f1(assignments, labels)}
    assert clustering_metrics(embeddings * scales, labels, seed=5) == expected
    assert 0.3 < expected["f1"] < expected["nmi"] < 1
    with torch.autocast("cpu", torch.bfloat16):
        assert clustering_metrics(embeddings * scales, labels, seed=5) == expected


def test_labels_may_be_words_and_embeddings_tiny():
    embeddings, labels = blobs(noise=1.0)
    words = [f"class {label}" for label in labels]
    assert clustering_metrics(embeddings * 2.0**-100, words) == clustering_metrics(embeddings, labels)
    assert nmi(labels, words) == nmi(words, labels.numpy()[:]) == 1 and pairwise_f1(words, labels) == 1


def test_bad_input_is_named():
    for name, value, call in (
        ("clusters", 5, lambda: kmeans(torch.zeros(4, 2), 5)),
        ("clusters", 0, lambda: kmeans(torch.zeros(4, 2), 0)),
        ("clusters", 3.0, lambda: kmeans(torch.zeros(4, 2), 3.0)),
        ("labels", (4,), lambda: nmi(torch.arange(3), torch.arange(4))),
        ("clusters", torch.float32, lambda: pairwise_f1(torch.rand(3), torch.arange(3))),
        ("clusters", 0, lambda: nmi([], [])),
    ):
        with pytest.raises(BadArgument) as error:
            call()
        assert (error.value.name, error.value.value) == (name, value)
    with pytest.raises(NotFinite) as error:
        kmeans(torch.tensor([[0.0], [torch.nan]]), 1)
    assert (error.value.name, error.value.row) == ("points", 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_deterministic_mode_gives_one_result(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    points = blobs(noise=1.5)[0].cuda()
    torch.use_deterministic_algorithms(True)
    try:
        first, again = kmeans(points, 20), kmeans(points, 20)
    finally:
        torch.use_deterministic_algorithms(False)
    assert first[0].is_cuda and torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert first[2] == pytest.approx(kmeans(points.cpu(), 20)[2], rel=0.05)
