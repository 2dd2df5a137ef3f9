"""Runs as figures read them: from run folders and files of results, with one line that says what is missing."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isosphere.figures import words

RECORD_TURNS = "--loop.snapshot_every 1000 --loop.snapshot_images 0"


@dataclass(frozen=True)
class Record:
    """A run: its recipe, its evaluations, the course of its norms; from a folder or from a file of results."""

    name: str
    recipe: dict[str, Any]
    last: dict[str, float]  # the metrics at the end; empty if the run diverged or is not finished
    tests: list[dict[str, float]]  # metrics with their step
    norms: list[tuple[int, float, float]]  # step, mean and variance over the training batch
    cell: str
    arm: str

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.recipe.get("seed", 0)


@dataclass(frozen=True)
class Snapshot:
    """Norms (M,) of training images at a step and, but for the first, the degrees (M,) each turned since `since`."""

    norms: np.ndarray
    angles: np.ndarray | None
    since: int | None


def read_recipe(folder: Path) -> dict[str, Any]:
    """What recipe.json of a run folder holds."""
    recipe = _json(folder, "recipe.json", "is not a run folder: it has no recipe.json")
    if not isinstance(recipe, dict) or not isinstance(recipe.get("data"), dict):
        raise ValueError(f"{folder / 'recipe.json'} is not a recipe of this version: it has no data")
    return recipe


def read_run(folder: Path, finished: bool = False) -> Record:
    """A run folder; where `finished`, one without result.json is refused."""
    recipe, path = read_recipe(folder), folder / "metrics.jsonl"
    if not path.is_file():
        raise ValueError(f"{folder} has no metrics.jsonl: the run has not begun")
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = []
    for number, line in enumerate(lines):
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number + 1 < len(lines):  # the last may be under way
                raise ValueError(f"{path} line {number + 1} is damaged: {error}") from error
    tests = [entry for entry in entries if entry.get("kind") == "test"]
    trains = [entry for entry in entries if entry.get("kind") == "train" and "norm_mean" in entry]
    norms = [(entry["step"], entry["norm_mean"], entry["norm_variance"]) for entry in trains]
    last = {}
    if (folder / "result.json").is_file():
        last = _json(folder, "result.json", "")["last"]
    elif finished:
        raise ValueError(f"{folder} has no result.json: not finished; go on with `isosphere train --resume {folder}`")
    arm, cell = words.arm(recipe), f"{words.dataset(recipe)}, {words.loss(recipe)}"
    return Record(folder.name, recipe, last, tests, norms, cell, arm)


def read_results(path: Path, kind: str = "runs") -> list[Record]:
    """The `runs` or the `trials` of a file of results, as `isosphere reproduce` writes it."""
    held = _json(path.parent, path.name, "there is no such file of results")
    if not isinstance(held, dict) or not isinstance(held.get(kind), list):
        raise ValueError(f"{path} is not a file of results: it has no list of {kind}")
    if not held[kind]:
        other = {"runs": "trials", "trials": "runs"}[kind]
        raise ValueError(f"{path} holds no {kind}, only {len(held.get(other, []))} {other}")
    records = []
    for number, record in enumerate(held[kind]):
        try:
            recipe = record["recipe"]
            arm, cell = record.get("arm") or words.arm(recipe), record.get("cell") or words.about([recipe])
            norms = [(step, mean, variance) for step, _, mean, variance in record.get("norms", [])]
            name = record.get("name") or f"{cell} {arm} seed {recipe.get('seed', 0)}"
            records.append(Record(name, recipe, record["last"], record.get("tests", []), norms, cell, arm))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: record {number} of {kind} cannot be read: {error!r}") from error
    return records


def read_all(paths: list[Path], kind: str = "runs", finished: bool = False) -> list[Record]:
    """All runs of run folders and files of results, in order."""
    if not paths:
        raise ValueError("name at least one run folder or file of results")
    found = []
    for path in paths:
        found += read_results(path, kind) if path.suffix == ".json" else [read_run(path, finished)]
    return found


def read_embeddings(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The last test embeddings, float32 (N, D), and their labels (N,)."""
    read_recipe(folder)
    arrays = _arrays(
        folder / "test_embeddings.npz", ("embeddings", "labels", "scale"),
        f"{folder} has no test_embeddings.npz: they are written when a run ends with --loop.save_embeddings true",
    )  # fmt: skip
    return arrays["embeddings"].astype(np.float32) * np.float32(arrays["scale"]), arrays["labels"]


def read_snapshots(folder: Path) -> dict[int, Snapshot]:
    """The snapshots of training images by step, in order."""
    read_recipe(folder)
    missing = f"{folder} has no snapshots of its training images: record them with {RECORD_TURNS}"
    paths = sorted((folder / "snapshots").glob("step-*.npz"))
    if not paths:
        raise ValueError(missing)
    found: dict[int, Snapshot] = {}
    before = None
    for path in paths:
        arrays, step = _arrays(path, ("norms",), missing), int(path.stem.removeprefix("step-"))
        found[step] = Snapshot(arrays["norms"], arrays.get("angles"), before)
        before = step
    return found


def _json(folder: Path, name: str, missing: str) -> Any:
    path = folder / name
    if not path.is_file():
        raise ValueError(f"{folder if name == 'recipe.json' else path} {missing}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged or half-written: {error}") from error


def _arrays(path: Path, names: tuple[str, ...], missing: str) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ValueError(missing)
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged or half-written: {error}") from error
    absent = [name for name in names if name not in arrays]
    if absent:
        raise ValueError(f"{path} is of another version: it has no {absent[0]}")
    return arrays
