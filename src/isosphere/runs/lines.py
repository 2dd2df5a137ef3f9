"""The lines of a run's metrics.jsonl, or of a NormMonitor's file, in today's words."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isosphere.runs.versions import translate_line

METRICS = "metrics.jsonl"
TEXTS = ("warning", "text", "angles")  # what a line has besides numbers
Line = dict[str, Any]  # step, kind, and finite numbers


def entries(folder: Path, kind: str = "") -> list[Line]:
    """The lines of a run so far, or those of a kind, as they are. One that a crash cut short is left out."""
    path = folder / METRICS
    found = [line for _, line in each_line(path) if isinstance(line, dict)] if path.is_file() else []
    return [line for line in found if kind in ("", line["kind"])]


def each_line(path: Path) -> Iterator[tuple[int, Line | Exception]]:
    """Every line with its number, in today's words; an error in place of one without kind and step."""
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            line = translate_line(json.loads(text))
            yield number, line | {"kind": str(line["kind"]), "step": int(line["step"])}
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            yield number, error


def numbers(values: Any) -> dict[str, float]:
    """The finite numbers of a JSON object, by name; nothing of anything else."""
    pairs = values.items() if isinstance(values, dict) else ()
    return {k: v for k, v in pairs if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)}
