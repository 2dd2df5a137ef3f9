"""Lists in Parquet files: columns as numbers and one block of paths, so that five million rows are no burden."""

from pathlib import Path
from typing import Any

import numpy as np

from isosphere.errors import BadList, DamagedFile, need

from .columns import NO_NAMING, Naming, Table, meanings
from .lists import Column
from .paths import Paths

ENDINGS = (".parquet", ".pq")
UNTIDY = r"(^|/)\./|//"  # what `Paths.of` makes plain


def is_parquet(path: Path) -> bool:
    """Whether a list is in Parquet, by its ending."""
    return path.suffix.lower() in ENDINGS


def parquet_table(path: Path, labeled: bool = True, naming: Naming = NO_NAMING) -> Table:
    """The columns of a Parquet file that mean something. Line 1 is its first row."""
    arrow, parquet = need("pyarrow", "parquet", str(path)), need("pyarrow.parquet", "parquet", str(path))
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            found = meanings(path, names, labeled, naming)
            wanted = [names[place] for place in found.values()]
            columns = dict(zip(found, file.read(wanted).select(wanted).columns, strict=True))
            for name, column in columns.items():
                if arrow.types.is_nested(column.type):
                    raise BadList(path, str(column.type), f"texts or numbers in the column of each {name}")
            paths = _paths(columns.pop("path"))
            return Table(paths, {name: _column(its) for name, its in columns.items()}, range(1, len(paths) + 1))
    except (arrow.ArrowException, OSError) as error:
        raise DamagedFile(path, " ".join(str(error).split())) from error


def _paths(column: Any) -> Paths:
    """Paths (N,) from a column of texts, whose bytes are taken as they are; an empty one where there is none."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    texts = compute.utf8_trim_whitespace(compute.fill_null(column.cast(arrow.large_string()), ""))
    if compute.any(compute.match_substring_regex(texts, UNTIDY)).as_py():
        return Paths.of(texts.to_pylist())
    whole = arrow.concat_arrays(texts.chunks or [arrow.array([], arrow.large_string())])
    ends = np.frombuffer(whole.buffers()[1], np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return Paths(whole.buffers()[2].to_pybytes() if whole.buffers()[2] else b"", ends[:-1].copy(), ends[1:].copy())


def _column(column: Any) -> Column:
    """A column's distinct values as texts, and which of them each row has; -1 where it is empty."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    if not arrow.types.is_dictionary(column.type):
        column = (column.cast(arrow.string()) if arrow.types.is_null(column.type) else column).dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, arrow.ChunkedArray) else whole
    codes = compute.fill_null(whole.indices.cast(arrow.int64()), -1).to_numpy(zero_copy_only=False)
    values = compute.utf8_trim_whitespace(whole.dictionary.cast(arrow.string())).to_pylist()
    return Column(codes, ["" if value is None else value for value in values]).merged()
