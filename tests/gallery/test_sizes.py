"""R@1 against bytes: the first line is what `evaluate` measures, and each other line what a gallery so kept finds."""

import json
import shutil

import numpy as np
import pytest
import torch

from commands import has, isosphere, refusal
from isosphere import gallery, load_gallery
from isosphere.errors import BadArgument, MissingPart
from isosphere.gallery.sizes import sizes
from isosphere.metrics import recall_at_k
from isosphere.runs import Embedded
from written import write_run


def held(asks=None, count=60, dim=24):
    generator = np.random.default_rng(0)
    labels = np.arange(count) % 12
    rows = generator.normal(size=(12, dim))[labels] + 1.1 * generator.normal(size=(count, dim))
    return Embedded(rows.astype(np.float32), labels, [], np.ones(count, bool) if asks is None else asks)


def test_whole_vectors_are_measured_as_the_metric_does_and_others_as_a_gallery_finds(tmp_path):
    found = {(one.dim, one.stored): one for one in sizes(held(), dims=[16])}
    its = held()
    assert found[24, "float32"].recall == recall_at_k(its.embeddings, its.labels, 1)[1]
    assert {key: one.bytes for key, one in found.items()} == {
        (24, "float32"): 96, (24, "float16"): 48, (24, "int8"): 24, (24, "binary"): 3,
        (16, "float16"): 32, (16, "int8"): 16, (16, "binary"): 2,
    }  # fmt: skip
    for (dim, stored), one in found.items():
        if stored != "float32":
            kept = gallery.create(
                tmp_path / f"{dim}{stored}", its.embeddings, [str(row) for row in range(60)],
                [str(label) for label in its.labels], None if dim == 24 else dim, quantize=stored,
            )  # fmt: skip
            queries = kept.queries(torch.from_numpy(its.embeddings))
            best = kept.nearest(queries, 1, skip=torch.arange(60)).indices[:, 0]
            # Signs may tie, and a gallery rounds to half precision before it keeps less.
            assert one.recall == pytest.approx(float((kept.codes[best] == kept.codes).mean()), abs=2.1 / 60)
    assert 0.2 < found[16, "binary"].recall < found[24, "float32"].recall <= 1


def test_queries_with_a_gallery_of_their_own_search_that():
    asks = np.arange(60) < 20
    its = held(asks)
    wanted = recall_at_k(its.embeddings[asks], its.labels[asks], 1, its.embeddings[~asks], its.labels[~asks])[1]
    assert sizes(its, dims=[])[0].recall == wanted


def test_a_collapsed_model_is_never_right():
    its = Embedded(np.ones((9, 8), np.float32), np.arange(9) // 3, [], np.ones(9, bool))
    assert {one.recall for one in sizes(its, dims=[])} == {0.0}


def test_the_command_prints_the_table(tmp_path):
    run = write_run(tmp_path / "run", 0.5, 0)
    found = json.loads(isosphere("sizes", run, "--dims", "4,2", "--whiten", "--json", folder=tmp_path).stdout)
    assert [(one["dim"], one["stored"], one["whiten"]) for one in found][:4] == [
        (8, "float32", False), (8, "float16", False), (8, "int8", False), (8, "binary", False),
    ]  # fmt: skip
    assert {(one["dim"], one["whiten"]) for one in found[4:]} == {(4, True), (2, True)}
    assert "float16, whitened" in isosphere("sizes", run, "--dims", "4", "--whiten", folder=tmp_path).stdout
    assert has(refusal("sizes", run, "--dims", "4,x", folder=tmp_path), BadArgument, name="--dims")
    (run / "test_embeddings.npz").unlink()
    assert has(refusal("sizes", run, folder=tmp_path), MissingPart)


def test_recall_through_a_gallery_is_what_evaluate_says(trained, photos, tmp_path):
    isosphere("index", trained, photos, "--out", "gallery", folder=tmp_path)
    found = load_gallery(tmp_path / "gallery", "cpu")
    found.use(shutil.copytree(trained, tmp_path / "run"))
    right = [
        found.codes[near.indices[:, 0].numpy()] == found.codes[rows] for rows, near in found.neighbors(1)
    ]
    from isosphere import load_run

    measured = load_run(trained, "cpu").evaluate(photos)
    assert float(np.concatenate(right).mean()) == pytest.approx(measured["recall@1"])
