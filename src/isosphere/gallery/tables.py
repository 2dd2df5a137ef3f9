"""A gallery as a Parquet file, for databases that have no engine here."""

import os
from pathlib import Path

import numpy as np

from isosphere import files
from isosphere.errors import need

from .gallery import Gallery

BLOCK = 16384  # rows in a group


def write_parquet(gallery: Gallery, out: Path) -> Path:
    """Columns `id`, `path`, `label` and `vector` (a unit vector, float32, of one length), a row for each image."""
    arrow = need("pyarrow", "search", "writing Parquet")
    parquet = need("pyarrow.parquet", "search", "writing Parquet")
    vector = arrow.list_(arrow.float32(), gallery.manifest.dim)
    schema = arrow.schema([("id", arrow.int64()), ("path", arrow.string()), ("label", arrow.string()),
                           ("vector", vector)])  # fmt: skip
    with files.replacing(out) as file, parquet.ParquetWriter(file, schema) as writer:
        for start in range(0, len(gallery), BLOCK):
            rows = slice(start, start + BLOCK)
            flat = np.ascontiguousarray(gallery.vectors[rows].numpy()).ravel()
            columns = [
                arrow.array(gallery.ids[rows]),
                arrow.array([os.fsencode(path).decode("utf-8", "replace") for path in gallery.paths[rows]]),
                arrow.array([label.encode("utf-8", "replace").decode() for label in gallery.labels[rows]]),
                arrow.FixedSizeListArray.from_arrays(arrow.array(flat), gallery.manifest.dim),
            ]
            writer.write_table(arrow.table(columns, schema=schema))
    return out
