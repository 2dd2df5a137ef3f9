"""Files of results, which the tuning engine writes, and files of a NormMonitor: several runs in one file."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isosphere.errors import NotResults
from isosphere.runs.folder import RunFolder, Snapshot, numbers, read_lines, recipe_and_values
from isosphere.runs.versions import translate_record

Record = dict[str, Any]
"""A run: cell, method, seed, recipe (JSON) and last; perhaps tests, norms (step, loss, mean, variance) and turns."""


@dataclass(frozen=True)
class Results:
    """Final runs, and tuning trials that were measured on training data."""

    name: str
    runs: list[Record]
    trials: list[Record]
    problems: list[str] = field(default_factory=list)


def read_results(path: Path, strict: bool = True) -> Results:
    """A file of results, or of one record; if lenient, records that cannot be read are left out.

    A record without cell and method, as older files have, goes by its name less its seed.
    """
    if not path.is_file():
        raise NotResults(path, "there is no such file")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotResults(path, str(error)) from error
    if not isinstance(held, dict):
        raise NotResults(path, "it holds no JSON object")
    held = {"runs": [held]} if "recipe" in held else held
    kinds: dict[str, list[Record]] = {"runs": [], "trials": []}
    problems: list[str] = []
    for kind, found in kinds.items():
        for number, record in enumerate(held.get(kind) or ()):
            try:
                found.append(_record(record, path.stem))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                reason = f"record {number} of {kind} cannot be read: {error!r}"
                if strict:
                    raise NotResults(path, reason) from error
                problems.append(reason)
    if not any(kinds.values()):
        raise NotResults(path, problems[0] if problems else "it holds no runs")
    return Results(path.stem, **kinds, problems=problems)


def _record(record: dict[str, Any], file: str) -> Record:
    found = translate_record(record)
    _, values = recipe_and_values(found["recipe"])
    method = found.get("method") or re.sub(r"-seed\d+$", "", found["name"])
    known = {"cell": str(found.get("cell", file)), "method": str(method), "seed": values.get("seed", 0)}
    return found | known | {"recipe": values, "last": numbers(found["last"])}


def is_monitor(path: Path) -> bool:
    """Whether a file has a JSON object of some kind in its first line, as a NormMonitor's has."""
    try:
        with open(path, encoding="utf-8") as lines:
            return "kind" in json.loads(next(lines, ""))
    except (OSError, ValueError, TypeError):
        return False


def read_monitor(path: Path, name: str = "") -> list[RunFolder]:
    """The runs that wrote to a NormMonitor's file, split where one started."""
    whole = RunFolder(path.parent, name or path.name, watched=True)
    parts: list[list[dict[str, Any]]] = [[]]
    for line in read_lines(whole, path):
        if line["kind"] == "start":
            parts.append([])
        else:
            parts[-1].append(line)
    parts = [part for part in parts if part]
    runs = []
    for number, lines in enumerate(parts, 1):
        title = whole.name if len(parts) == 1 else f"{whole.name}, run {number} of {len(parts)}"
        run = RunFolder(path.parent, title, lines=lines, watched=True, problems=whole.problems)
        trained = numbers(next(reversed(run.of_kind("train")), None))
        run.last = {key: value for key, value in trained.items() if key.startswith("norm_")}
        run.snapshots = [shot for line in run.of_kind("probe") if (shot := _probe(line)) is not None]
        runs.append(run)
    return runs


def _probe(line: dict[str, Any]) -> Snapshot | None:
    """What a monitor's probe measured, in degrees."""
    import numpy as np

    found = line["angles"] if isinstance(line.get("angles"), list) else []
    angles = [angle for angle in found if isinstance(angle, (int, float)) and math.isfinite(angle)]
    return Snapshot(line["step"], None, np.degrees(angles), line.get("since")) if angles else None
