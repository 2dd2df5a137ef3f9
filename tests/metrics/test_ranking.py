"""CMC and mAP with groups and queries: loops, scikit-learn, and the toy examples that open-reid publishes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from isosphere.errors import BadArgument
from isosphere.metrics import (
    cmc_at_k,
    map_at_r,
    mean_average_precision,
    neighbors,
    r_precision,
    ranking_metrics,
    recall_at_k,
    retrieval_metrics,
)
from isosphere.metrics.ranking import parted
from raised import raised

KS = (1, 2, 3, 5, 1000)


def by_loops(embeddings, labels, groups, is_query):
    """Each query's gallery, sorted in float64 with negatives first among equals, less its own class and group."""
    unit = embeddings.double() / embeddings.double().norm(dim=1, keepdim=True).clamp(min=1e-300)
    found = dict.fromkeys([*(f"cmc@{k}" for k in KS), "map", "recall@1", "map@r"], 0.0)
    asked = range(len(labels)) if is_query is None else is_query.nonzero().flatten().tolist()
    counted = 0
    for i in asked:
        ranked = []
        for j in range(len(labels)):
            same = bool(labels[i] == labels[j])
            near = groups is not None and same and groups[i] == groups[j]
            if i == j or near or (is_query is not None and is_query[j]):
                continue
            ranked.append((-round(float(unit[i] @ unit[j]), 6), same))
        hits = [same for _, same in sorted(ranked)]
        r = sum(hits)
        if not r:
            continue
        counted += 1
        precisions = [sum(hits[: p + 1]) / (p + 1) for p, hit in enumerate(hits) if hit]
        found["map"] += sum(precisions) / r
        found["map@r"] += sum(sum(hits[: p + 1]) / (p + 1) for p in range(r) if hits[p]) / r
        found["recall@1"] += hits[0]
        for k in KS:
            found[f"cmc@{k}"] += any(hits[:k])
    ours = {name: value / max(1, counted) for name, value in found.items()}  # a query without a positive is left out
    return ours | {name: found[name] / max(1, len(asked)) for name in ("recall@1", "map@r")}  # there it is wrong


def lattice(seed, n):
    """Axes and half diagonals of 4-space: exact cosines in float32, so every tie is a tie. With labels and groups."""
    g = torch.Generator().manual_seed(seed)
    shapes = torch.cat([torch.eye(4), -torch.eye(4), torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]]) / 2])
    rows = shapes[torch.randint(0, len(shapes), (n,), generator=g)] * 2.0 ** torch.randint(-3, 4, (n, 1), generator=g)
    return rows, torch.randint(0, 4, (n,), generator=g), torch.randint(0, 3, (n,), generator=g)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 30), asks=st.booleans(), rows=st.integers(1, 9), of=st.booleans())
def test_ties_groups_queries_and_blocks_match_loops(seed, n, asks, rows, of):
    embeddings, labels, groups = lattice(seed, n)
    is_query = (torch.arange(n) % 3 == 0) if asks else None
    groups = groups if of else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "block_rows", lambda *_: rows)
        found = ranking_metrics(embeddings, labels, KS, groups, is_query)
        query, ours, gallery, theirs, one, other = parted(embeddings, labels, groups, is_query)
        every = retrieval_metrics(query, ours, 1, gallery, theirs, one, other)
    found |= {name: every[name] for name in ("recall@1", "map@r")}
    assert found == pytest.approx(by_loops(embeddings, labels, groups, is_query), abs=1e-9)


def persons(n=160, people=12, cameras=4):
    """Embeddings of people by several cameras, each of which leaves a mark. The first images ask."""
    g = torch.Generator().manual_seed(3)
    labels, groups = torch.arange(n) % people, torch.randint(0, cameras, (n,), generator=g)
    who, where = torch.randn(people, 16, generator=g), torch.randn(cameras, 16, generator=g)
    return torch.randn(n, 16, generator=g) + 0.7 * who[labels] + where[groups], labels, groups, torch.arange(n) < 50


def test_scikit_learn_has_the_same_average_precision():
    embeddings, labels, groups, is_query = persons()
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)
    precisions = []
    for i in range(50):
        kept = ~is_query & ~((labels == labels[i]) & (groups == groups[i]))
        precisions.append(average_precision_score((labels[kept] == labels[i]).numpy(), (unit[kept] @ unit[i]).numpy()))
    found = mean_average_precision(embeddings, labels, groups, is_query)
    assert found == pytest.approx(np.mean(precisions)) and 0.1 < found < 0.9
    assert found < mean_average_precision(embeddings, labels, None, is_query) - 0.02, "matches of one camera are easy"


@pytest.mark.parametrize(
    ("distances", "query", "gallery", "wanted"),
    [
        # test_cmc.py of Cysu/open-reid: distances, classes and cameras of queries and gallery, and the curve
        ([[0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [1, 2, 3, 4, 0]],
         (range(5), [0] * 5), (range(5), [1] * 5), [0.6, 0.6, 0.8, 1.0, 1.0]),
        ([[0, 1, 2, 3]] * 4, ([0, 0, 1, 1], [0] * 4), ([0, 0, 1, 1], [1] * 4), [0.5, 0.5, 1.0, 1.0]),
        ([[0, 1, 2, 3, 4]] * 5, ([0, 0, 0, 1, 1], [0] * 5), ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1]),
         [0.6, 0.6, 0.6, 1.0, 1.0]),
    ],
)  # fmt: skip
def test_the_published_toy_examples(distances, query, gallery, wanted):
    """A gallery on the axes; a query's components order them as its distances do."""
    near, size = torch.tensor(distances, dtype=torch.float32), len(distances[0])
    embeddings = torch.cat([size - near, torch.eye(size)])
    labels, groups = (torch.tensor([*one, *other]) for one, other in zip(query, gallery, strict=True))
    is_query = torch.arange(len(embeddings)) < len(near)
    found = cmc_at_k(embeddings, labels, range(1, size + 1), groups, is_query)
    assert list(found.values()) == pytest.approx(wanted)


def test_a_query_with_nothing_to_find_does_not_count():
    embeddings, labels = torch.eye(4)[[0, 0, 1, 2]], torch.tensor([0, 0, 1, 2])
    assert cmc_at_k(embeddings, labels) == {1: 1.0, 5: 1.0, 10: 1.0} and recall_at_k(embeddings, labels, 1) == {1: 0.5}
    assert ranking_metrics(embeddings, labels, 1, groups=torch.zeros(4, dtype=torch.long)) == {"cmc@1": 0.0, "map": 0.0}
    found = retrieval_metrics(embeddings, labels, 1, groups=torch.zeros(4, dtype=torch.long))
    assert found == {"recall@1": 0.0, "map@r": 0.0, "r_precision": 0.0, "singletons": 4}


def test_words_and_arrays_are_taken_and_single_functions_agree():
    embeddings, labels, groups, is_query = persons(60)
    names = [f"p{label}" for label in labels.tolist()], [f"c{group}" for group in groups.tolist()]
    found = ranking_metrics(embeddings.numpy(), names[0], 1, names[1], is_query.numpy())
    assert found == ranking_metrics(embeddings, labels, (1,), groups, is_query)
    query, ours, gallery, theirs, one, other = parted(embeddings, labels, groups, is_query)
    every = retrieval_metrics(query, ours, 1, gallery, theirs, one, other)
    assert recall_at_k(query, ours, 1, gallery, theirs, one, other)[1] == every["recall@1"]
    assert map_at_r(query, ours, gallery, theirs, one, other) == every["map@r"]
    assert r_precision(query, ours, gallery, theirs, one, other) == every["r_precision"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("is_query", {"is_query": torch.ones(60, dtype=torch.bool)}),
        ("is_query", {"is_query": torch.zeros(60, dtype=torch.bool)}),
        ("is_query", {"is_query": torch.arange(60)}),
        ("is_query", {"is_query": torch.arange(10) < 5}),
        ("groups", {"groups": torch.arange(59)}),
        ("groups", {"groups": torch.rand(60)}),
        ("labels", {"labels": torch.arange(59)}),
        ("ks", {"ks": 0}),
    ],
)
def test_what_cannot_be_is_refused(name, changes):
    embeddings, labels, groups, is_query = persons(60)
    with raised(BadArgument, name=name):
        ranking_metrics(embeddings, **{"labels": labels, "groups": groups, "is_query": is_query} | changes)


def test_groups_go_with_groups_of_the_references():
    embeddings, labels, groups, _ = persons(60)
    for pair in ((groups, None), (None, groups)):
        with raised(BadArgument, name="ref_groups"):
            retrieval_metrics(embeddings, labels, 1, embeddings, labels, *pair)
    with raised(BadArgument, name="ref_groups"):
        retrieval_metrics(embeddings, labels, 1, None, None, groups, groups)
