"""Files of results, which the tuning engine writes, and files of a NormMonitor: several runs in one file."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

from isosphere.errors import DamagedFile, NotResults
from isosphere.files import read_json
from isosphere.runs.folder import RunFolder, Snapshot, kept, read_lines, recipe_and_values
from isosphere.runs.lines import Line, numbers
from isosphere.runs.names import results_path
from isosphere.runs.shapes import odd_fields
from isosphere.runs.versions import translate_record


class _Known(TypedDict):
    cell: str  # data set and loss
    method: str
    seed: int
    recipe: dict[str, Any]  # JSON in today's words
    last: dict[str, float]  # finite numbers of the weights that a run keeps; none of one that diverged


class Record(_Known, total=False):
    """A run, as files of results hold it and as tables and figures take it. Older ones lack some fields."""

    name: str
    folder: Path  # of a run that is read from its own
    tests: list[Line]
    turns: list[Line]
    norms: list[list[Any]]  # step, loss, mean and variance
    oracle: dict[str, float]  # the best evaluation, picked on test
    untrained: dict[str, float]
    validation: dict[str, Any]  # what chose the weights, and how
    tested: str
    tuned_by: str
    diverged: str
    notes: list[str]
    images: dict[str, int]
    counts: dict[str, int]
    seconds: float
    versions: dict[str, Any]
    hardware: dict[str, Any]
    git: str | None
    started: str


@dataclass(frozen=True)
class Experiment:
    """What the runs of a file have in common, and other files do not. A file is found by it, whatever its name."""

    table: str  # as `isosphere reproduce` names it; empty for other runs
    dataset: str
    protocol: str = ""  # "paper" is as the authors trained, "untuned" without trials; empty is the table's own
    changes: dict[str, Any] = field(default_factory=dict)  # fields in which all recipes differ from the table's own
    tuned_by: str = ""  # the name of the file whose settings these runs have


@dataclass(frozen=True)
class Results:
    """Final runs, and tuning trials that were measured on training data."""

    name: str
    runs: list[Record]
    trials: list[Record]
    problems: list[str] = field(default_factory=list)
    experiment: Experiment | None = None  # older files do not say


def read_results(path: Path, strict: bool = True) -> Results:
    """A file of results, or of one record, also by an older name. If lenient, odd records are left out.

    A record without cell and method, as older files have, goes by its name less its seed.
    """
    path = results_path(path)
    held = results_json(path)
    held = {"runs": [held], "experiment": held.get("experiment")} if "recipe" in held else held
    kinds: dict[str, list[Record]] = {"runs": [], "trials": []}
    problems: list[str] = []
    for kind, found in kinds.items():
        for number, record in enumerate(_a(list, held, kind, path)):
            try:
                found.append(_record(record, path, f"{kind}[{number}]"))
            except NotResults as error:
                if strict:
                    raise
                problems.append(f"left out: {error.field} {error.reason}")
    if not any(kinds.values()):
        raise NotResults(path, problems[0] if problems else "it holds no runs")
    return Results(path.stem, **kinds, problems=problems, experiment=_experiment(held))


def experiment_of(path: Path) -> Experiment | None:
    """What a file says it holds; nothing of other files."""
    try:
        return _experiment(results_json(path))
    except NotResults:
        return None


def results_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    if not path.is_file():
        raise NotResults(path, "there is no such file")
    try:
        held = read_json(path)
    except DamagedFile as error:
        raise NotResults(path, error.reason) from error
    if not isinstance(held, dict):
        raise NotResults(path, "it holds no JSON object")
    return held


def _experiment(held: dict[str, Any]) -> Experiment | None:
    said = held.get("experiment")
    try:
        return Experiment(**said) if said else None
    except TypeError:  # of a later version
        return None


def _record(record: Any, path: Path, place: str) -> Record:
    if not isinstance(record, dict):
        raise NotResults(path, "is no JSON object", place)
    found = translate_record({**record, "recipe": _a(dict, record, "recipe", path, place)})
    _a(dict, record, "last", path, place)
    for name, reason in odd_fields(record).items():
        raise NotResults(path, reason, f"{place}.{name}")
    method = found.get("method") or re.sub(r"-seed\d+$", "", str(found.get("name", "")))
    if not method:
        raise NotResults(path, "is missing", f"{place}.method")
    _, values = recipe_and_values(found["recipe"])
    known = {"cell": str(found.get("cell", path.stem)), "method": str(method), "seed": values.get("seed", 0)}
    return cast(Record, found | known | {"recipe": values, "last": numbers(kept(record))})


def _a(kind: type, held: dict[str, Any], name: str, path: Path, place: str = "") -> Any:
    """A value of a file; none is an empty list, and nothing else can be missing."""
    field = f"{place}.{name}".lstrip(".")
    value = held.get(name)
    if value is None and kind is list and not place:
        return []
    if not isinstance(value, kind):
        words = "a list" if kind is list else "an object"
        raise NotResults(path, "is missing" if name not in held else f"is not {words}", field)
    return value


def is_monitor(path: Path) -> bool:
    """Whether a file has a JSON object of some kind in its first line, as a NormMonitor's has."""
    try:
        with open(path, encoding="utf-8") as lines:
            return "kind" in json.loads(next(lines, ""))
    except (OSError, ValueError, TypeError, RecursionError):
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
