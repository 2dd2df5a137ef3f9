"""What a page is made from, read leniently: run folders, files of a NormMonitor, and results of `reproduce`."""

import json
import math
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isosphere import runs as run_files
from isosphere.errors import InputError
from isosphere.page.lines import missing_of, numbers, read_lines
from isosphere.recipes import options
from isosphere.tables import held_out

UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)
RUN_FILES = ("recipe.json", "run.json", "metrics.jsonl", "result.json")


@dataclass
class Snapshot:
    """Norms (N,) of some training images, and the angles (N,) in degrees that they turned since step `since`."""

    step: int
    norms: np.ndarray | None  # a monitor's probe keeps none
    angles: np.ndarray | None
    since: int | None = None


@dataclass
class Embedded:
    """Embeddings (N, D) of the test images, labels (N,), names of the classes if kept, and which images are queries."""

    embeddings: np.ndarray
    labels: np.ndarray
    classes: list[str]
    is_query: np.ndarray


@dataclass
class Run:
    """A run folder as far as it is there, or a run in a monitor's file; `missing` says in sentences what is not."""

    name: str
    folder: Path
    recipe: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)
    oracle: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    saved: int = 0  # the step of its checkpoint, where it is not finished
    watched: bool = False  # by a NormMonitor, in a loop that is not ours
    snapshots: list[Snapshot] = field(default_factory=list)
    embedded: Embedded | None = None
    missing: list[str] = field(default_factory=list)
    style: int = 0  # in which it is drawn, once it is known beside which others

    @property
    def images(self) -> str:
        """What was embedded at the end: test images, but of a trial held-out ones, without labels those trained on."""
        trained = "the images trained on"
        return held_out(self.recipe) or (trained if self.about.get("tested") == trained else "test images")

    def course(self, kind: str, name: str) -> list[tuple[float, float]]:
        """(step, value) of every line of a kind, as "train" or "test", that has a finite value of that name."""
        return [(line["step"], line[name]) for line in self.lines if line["kind"] == kind and name in line]


@dataclass
class Results:
    """A file of `isosphere reproduce`: final runs and tuning trials, each with cell, arm, seed, recipe and last."""

    name: str
    runs: list[dict[str, Any]]
    trials: list[dict[str, Any]]


def read_sources(paths: Iterable[Path]) -> tuple[list[Run], list[Results]]:
    """The runs of folders and monitors' files, and the results files, each once; any other path is refused."""
    paths = list({path.resolve(): path for path in paths}.values())
    if not paths:
        raise ValueError("name a run folder, a file of a NormMonitor or a results file to report on")
    names = _names([path for path in paths if path.is_dir() or _has_records(path)])
    runs = []
    for path, name in names.items():
        runs += [read_run(path, name)] if path.is_dir() else read_records(path, name)
    return runs, [read_results(path) for path in paths if path not in names]


def _has_records(path: Path) -> bool:
    """Whether a file has a JSON object of some kind in its first line, as a NormMonitor's has."""
    try:
        with open(path, encoding="utf-8") as lines:
            return "kind" in json.loads(next(lines, ""))
    except (OSError, ValueError, TypeError):
        return False


def _names(folders: list[Path]) -> dict[Path, str]:
    """The shortest ends of the paths that tell them apart."""
    for count in range(1, max([len(folder.resolve().parts) for folder in folders], default=1) + 1):
        names = {folder: "/".join(folder.resolve().parts[-count:]) for folder in folders}
        if len(set(names.values())) == len(folders):
            break
    return names


# ---------------------------------------------------------------- a run folder


def read_run(folder: Path, name: str) -> Run:
    """All that a run folder holds."""
    if not any((folder / file).is_file() for file in RUN_FILES):
        raise ValueError(f"{folder} is not a run folder: it has none of {', '.join(RUN_FILES)}")
    run = Run(name, folder)
    result = _object(folder / "result.json", run.missing, "the run has not finished, or was stopped")
    run.finished = bool(result)
    run.recipe = recipe_of_this_version(
        _object(folder / "recipe.json", run.missing) or result.get("recipe"), "recipe.json", run.missing
    )
    run.about = result or _object(folder / "run.json", run.missing)
    run.lines = read_lines(folder / "metrics.jsonl", run.missing)
    run.missing += missing_of(run.lines)
    run.saved = 0 if run.finished else _saved_step(folder / "checkpoint.pt", run.missing)
    tests = [numbers(line) for line in run.lines if line["kind"] == "test"]
    run.last, run.oracle = numbers(result.get("last")), numbers(result.get("oracle"))
    if result and not run.last:
        run.missing.append("result.json has no numbers of the last evaluation: those of metrics.jsonl are shown")
    elif lost := (result.get("last") or {}).keys() - run.last.keys():
        run.missing.append(f"left out of result.json, because it is no finite number: {', '.join(sorted(lost))}")
    run.last = run.last or (tests[-1] if tests else {})
    if not run.last:
        run.missing.append("no evaluation yet: there are no metrics to show")
    run.snapshots = _snapshots(folder / "snapshots", run.missing)
    run.embedded = _embedded(folder / "test_embeddings.npz", run.missing)
    return run


def recipe_of_this_version(recipe: Any, where: str, missing: list[str]) -> dict[str, Any]:
    """A recipe as JSON values, with the defaults of fields it does not name; one of another version as it stands."""
    try:
        return options.to_dict(run_files.recipe_of(recipe)) if recipe else {}
    except InputError as error:
        missing.append(f"{where} is of another version of isosphere ({error}): shown as it stands")
        return recipe if isinstance(recipe, dict) else {}


def _object(path: Path, missing: list[str], reason: str = "") -> dict[str, Any]:
    """A JSON object, or nothing and a sentence why."""
    if not path.is_file():
        missing.append(f"no {path.name}" + (f": {reason}" if reason else ""))
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
        return found
    except (OSError, ValueError) as error:
        missing.append(f"{path.name} cannot be read: {error}")
        return {}


def _saved_step(path: Path, missing: list[str]) -> int:
    """The step of a checkpoint, 0 without one; its weights stay on disk."""
    if not path.is_file():
        return 0
    try:
        return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["step"])
    except Exception as error:  # a damaged file makes torch raise almost anything
        missing.append(f"{path.name} cannot be read: {type(error).__name__}")
        return 0


def _snapshots(folder: Path, missing: list[str]) -> list[Snapshot]:
    found, bad, before = [], [], None
    for path in sorted(folder.glob("step-*.npz")):
        step = int(path.stem.split("-")[1])
        try:
            with np.load(path, allow_pickle=False) as arrays:
                norms = arrays["norms"].astype(float)
                angles = arrays["angles"].astype(float) if "angles" in arrays else None
                if not len(norms) or not np.isfinite(norms if angles is None else norms + angles).all():
                    raise ValueError("not finite")
                since = int(arrays["since"]) if "since" in arrays else before  # an older file does not say
                found.append(Snapshot(step, norms, angles, since))
        except UNREADABLE:
            bad.append(path.name)
        before = step
    if bad:
        missing.append(f"snapshots that cannot be read: {', '.join(bad)}")
    if not any(snapshot.angles is not None for snapshot in found):
        missing.append("no recorded directions: train with --loop.snapshot_every STEPS to see how far embeddings turn")
    return found


def _embedded(path: Path, missing: list[str]) -> Embedded | None:
    if not path.is_file():
        missing.append(f"no {path.name}: neither a distribution of its images' norms nor retrievals")
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            embeddings = arrays["embeddings"].astype(np.float32) * np.float32(arrays["scale"])
            labels = arrays["labels"]
            classes = [str(name) for name in arrays["classes"]] if "classes" in arrays else []
            is_query = arrays["is_query"].astype(bool) if "is_query" in arrays else np.ones(len(labels), bool)
        if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(f"embeddings {embeddings.shape} and labels {labels.shape} do not go together")
        if not len(labels) or not np.isfinite(embeddings).all():
            raise ValueError("embeddings are none or not finite")
    except UNREADABLE as error:
        missing.append(f"{path.name} cannot be read: {error}")
        return None
    return Embedded(embeddings, labels.astype(np.int64), classes, is_query)


# ---------------------------------------------------------------- a file of a monitor


def read_records(path: Path, name: str) -> list[Run]:
    """The runs that wrote to a NormMonitor's file, parted where one started."""
    missing: list[str] = []
    parts: list[list[dict[str, Any]]] = [[]]
    for line in read_lines(path, missing):
        if line["kind"] == "start":
            parts.append([])
        else:
            parts[-1].append(line)
    parts = [part for part in parts if part]
    runs = []
    for number, lines in enumerate(parts, 1):
        title = name if len(parts) == 1 else f"{name}, run {number} of {len(parts)}"
        run = Run(title, path.parent, lines=lines, watched=True, missing=missing)
        trained = [line for line in lines if line["kind"] == "train"]
        run.last = {key: value for key, value in numbers(trained[-1] if trained else {}).items() if key[:5] == "norm_"}
        for line in lines:
            if line["kind"] == "probe" and isinstance(line.get("angles"), list):
                angles = np.degrees([a for a in line["angles"] if isinstance(a, (int, float)) and math.isfinite(a)])
                run.snapshots += [Snapshot(line["step"], None, angles, line.get("since"))] if len(angles) else []
        runs.append(run)
    return runs


# ---------------------------------------------------------------- results of reproduce


def read_results(path: Path) -> Results:
    """A results file; a record without cell and arm, as older files have, goes by its name less its seed."""
    if not path.is_file():
        raise FileNotFoundError(f"no such run folder or results file: {path}")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        kinds = [[_record(record, path.stem) for record in held.get(kind, [])] for kind in ("runs", "trials")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{path} is not a file of results of `isosphere reproduce` or of norms"
        raise ValueError(f"{told}: {type(error).__name__}: {error}") from error
    if not any(kinds):
        raise ValueError(f"{path} holds no runs")
    return Results(path.stem, *kinds)


def _record(record: dict[str, Any], file: str) -> dict[str, Any]:
    recipe = recipe_of_this_version(record["recipe"], file, [])
    arm = record.get("arm") or re.sub(r"-seed\d+$", "", record["name"])
    known = {"cell": str(record.get("cell", file)), "arm": str(arm), "seed": recipe.get("seed", 0)}
    return record | known | {"recipe": recipe, "last": numbers(record["last"])}
