"""A gallery as a Parquet file."""

import numpy as np
import pyarrow.parquet as parquet

from blobs import blobs, made
from commands import isosphere
from isosphere import gallery
from isosphere.gallery import tables


def test_the_file_has_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 7)
    rows, labels = blobs(4, 5, 0.2)
    made(tmp_path / "g", rows, [*labels[:-1], "odd \udcff name"])
    found = gallery.remove(tmp_path / "g", ["3.jpg"])
    done = isosphere("parquet", "g", "--out", "g.parquet", folder=tmp_path)
    assert done.stdout.strip() == "g.parquet"
    table = parquet.read_table(tmp_path / "g.parquet")
    assert table["id"].to_pylist() == found.ids.tolist() and table["path"].to_pylist() == found.paths
    assert table["label"].to_pylist()[:-1] == found.labels[:-1]
    np.testing.assert_allclose(np.asarray(table["vector"].to_pylist()), found.vectors[:], atol=1e-7)
