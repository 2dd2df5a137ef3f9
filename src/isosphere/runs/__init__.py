"""Run folders and files of results, read once and checked; older versions in today's words.

`read` is lenient: it notes each problem and goes on. With `strict=True` it raises the first.
"""

from isosphere.runs.folder import (
    CHECKPOINT,
    EMBEDDINGS,
    PATHS,
    RECIPE,
    RESULT,
    RUN,
    SNAPSHOTS,
    SPLIT,
    THUMBNAILS,
    UNREADABLE,
    Embedded,
    RunFolder,
    Snapshot,
    kept,
    read,
    read_recipe,
    read_result,
    recipe_in,
    snapshot_path,
    unscaled,
)
from isosphere.runs.images import TestImages, read_test_images
from isosphere.runs.lines import METRICS, Line, entries, numbers
from isosphere.runs.names import RENAMED, older_name, results_path
from isosphere.runs.path_lists import read_paths, write_paths
from isosphere.runs.places import bases, locate
from isosphere.runs.results import (
    Experiment,
    Record,
    Results,
    experiment_of,
    is_monitor,
    read_monitor,
    read_results,
    results_json,
)
from isosphere.runs.versions import (
    OPTIONS,
    old_fields,
    recipe_of,
    translate_changes,
    translate_checkpoint,
    translate_line,
    translate_recipe,
    translate_record,
)

__all__ = [
    "CHECKPOINT", "EMBEDDINGS", "METRICS", "OPTIONS", "PATHS", "RECIPE", "RENAMED", "RESULT", "RUN", "SNAPSHOTS",
    "SPLIT", "THUMBNAILS", "UNREADABLE", "Embedded", "Experiment", "Line", "Record", "Results", "RunFolder",
    "Snapshot", "TestImages", "bases", "entries", "experiment_of", "is_monitor", "kept", "locate", "numbers",
    "old_fields", "older_name", "read", "read_monitor", "read_paths", "read_recipe", "read_result", "read_results",
    "read_test_images", "recipe_in", "recipe_of", "results_json", "results_path", "snapshot_path",
    "translate_changes", "translate_checkpoint", "translate_line", "translate_recipe", "translate_record", "unscaled",
    "write_paths",
]  # fmt: skip
