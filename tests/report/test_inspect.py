"""Embeddings of any tool, read from files: which arrays are taken, and which files are refused."""

import numpy as np
import pytest
import torch
from rich.table import Table

from isosphere.errors import NotArrays, NotFound
from isosphere.report import inspection
from isosphere.report.inspect import mean_cosine


def tables_of(*files):
    return [part for part in inspection(*files) if isinstance(part, Table)]


def test_norms_alone_without_labels(tmp_path):
    np.save(tmp_path / "e.npy", np.random.default_rng(0).normal(size=(50, 4)))
    (deciles,) = tables_of(tmp_path / "e.npy")
    assert len(deciles.columns) == 4 and sum(int(count) for count in deciles.columns[3].cells) == 50


@pytest.mark.parametrize("names", [("embeddings", "labels"), ("Features", "y"), ("arr_0", "arr_1")])
def test_an_archive_is_read_by_the_names_that_tools_use(tmp_path, names):
    embeddings = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    words = np.array(["a", "b", "c", "d"])[np.arange(40) % 4]
    np.savez(tmp_path / "both.npz", **dict(zip(names, (embeddings, words), strict=True)))
    np.save(tmp_path / "e.npy", embeddings)
    np.save(tmp_path / "l.npy", np.arange(40.0) % 4)  # whole numbers that a tool saved as floats
    one, two = tables_of(tmp_path / "both.npz"), tables_of(tmp_path / "e.npy", tmp_path / "l.npy")
    for mine, theirs in zip(one, two, strict=True):
        assert [list(column.cells) for column in mine.columns] == [list(column.cells) for column in theirs.columns]


def test_a_runs_own_file_is_scaled(tmp_path):
    embeddings = np.random.default_rng(0).normal(size=(40, 4))
    scale = np.abs(embeddings).max()
    arrays = {"embeddings": (embeddings / scale).astype(np.float16), "scale": scale, "labels": np.arange(40) % 4}
    np.savez(tmp_path / "run.npz", **arrays)
    lengths = np.linalg.norm(arrays["embeddings"].astype(np.float32) * np.float32(scale), axis=1)
    *_, deciles = tables_of(tmp_path / "run.npz")
    assert float(list(deciles.columns[2].cells)[-1]) == pytest.approx(lengths.max(), rel=1e-3)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"junk"),
        lambda path: path.write_bytes(b"PK\x03\x04 cut short"),
        lambda path: torch.save({"embeddings": torch.ones(3, 2)}, path),
        lambda path: np.savez(path, a=np.ones((3, 2)), b=np.ones(3)),
        lambda path: np.savez(path, features=np.ones((3, 2)), embedding=np.ones((3, 2))),
        lambda path: np.savez(path, embeddings=np.array([{}], object)),
        lambda path: np.savez(path),
    ],
    ids=("junk", "cut", "torch", "unclear", "two", "objects", "empty"),
)
def test_what_holds_no_embeddings_is_refused(tmp_path, write):
    path = tmp_path / "e.npz"
    write(path)
    with pytest.raises(NotArrays) as refused:
        list(inspection(path))
    assert (refused.value.path, refused.value.kind) == (path, "embeddings")
    with pytest.raises(NotFound):
        list(inspection(tmp_path / "absent.npy"))


@pytest.mark.parametrize(("make", "alike", "collapsed", "lost"), [
    (lambda draw: draw, 0.0, False, 0),
    (lambda draw: draw * 1e-12, 0.0, False, 0),
    (lambda draw: draw * 1e-30, 0.0, False, 60),
    (lambda draw: 1 + 1e-3 * draw, 1.0, True, 0),
    (lambda draw: (1 + 1e-3 * draw) * np.exp(draw[:, :1]), 1.0, True, 0),
    (lambda draw: (1 + 1e-3 * draw) * 1e-12, 1.0, True, 0),
], ids=["plain", "tiny", "lost", "collapsed", "collapsed, of all norms", "collapsed and tiny"])  # fmt: skip
def test_a_collapse_to_one_direction_is_told_from_a_tiny_scale(make, alike, collapsed, lost, tmp_path):
    draw = np.random.default_rng(0).normal(size=(60, 8))
    np.save(tmp_path / "e.npy", make(draw).astype(np.float32))
    words = [part for part in inspection(tmp_path / "e.npy") if isinstance(part, str)]
    assert ("one direction" in words[-1]) == collapsed
    assert any(f"{lost} embeddings are so small" in line for line in words) == bool(lost)
    vectors = torch.from_numpy(make(draw).astype(np.float32))
    assert mean_cosine(vectors) == pytest.approx(alike, abs=0.05)
    units = [row / np.linalg.norm(row) for row in make(draw).astype(np.float32).astype(float)]
    pairs = [float(one @ two) for i, one in enumerate(units) for two in units[i + 1 :]]
    assert mean_cosine(vectors) == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
