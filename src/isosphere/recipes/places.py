"""Where the relative paths in a run's recipe begin."""

import json
from pathlib import Path


def bases(run: Path) -> tuple[Path, ...]:
    """Folders from which a run's relative paths may be seen: where it was trained, then those above it, nearest first.

    The folder that one is in is not among them, as it may hold other images under the same name.
    """
    told, above = run / "run.json", tuple(run.resolve().parents)
    begun = json.loads(told.read_text(encoding="utf-8")).get("seen_from") if told.is_file() else None
    return above if begun is None else (run.resolve() / begun, *above)
