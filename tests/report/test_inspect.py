"""Embeddings of any tool, read from files: which arrays are taken, and which files are refused."""

import numpy as np
import pytest
import torch
from rich.table import Table

from isosphere.errors import NotArrays, NotFound
from isosphere.report import inspection


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
