"""Run folders and files of results, read once and checked; older versions in today's words.

`read` is lenient: it notes each problem and goes on. With `strict=True` it raises the first.
"""

from isosphere.runs.folder import (
    ANY_NAME,
    CHECKPOINT,
    EMBEDDINGS,
    METRICS,
    PATHS,
    RECIPE,
    RESULT,
    RUN,
    SNAPSHOTS,
    THUMBNAILS,
    UNREADABLE,
    Embedded,
    Line,
    RunFolder,
    Snapshot,
    bases,
    locate,
    numbers,
    read,
    read_recipe,
)
from isosphere.runs.results import Record, Results, is_monitor, read_monitor, read_results
from isosphere.runs.versions import (
    old_fields,
    recipe_of,
    translate_changes,
    translate_checkpoint,
    translate_line,
    translate_recipe,
    translate_record,
)

__all__ = [
    "ANY_NAME", "CHECKPOINT", "EMBEDDINGS", "METRICS", "PATHS", "RECIPE", "RESULT", "RUN", "SNAPSHOTS", "THUMBNAILS",
    "UNREADABLE", "Embedded", "Line", "Record", "Results", "RunFolder", "Snapshot", "bases", "is_monitor", "locate",
    "numbers", "old_fields", "read", "read_monitor", "read_recipe", "read_results", "recipe_of", "translate_changes",
    "translate_checkpoint", "translate_line", "translate_recipe", "translate_record",
]  # fmt: skip
