"""Runs as figures read them: from run folders and files of results, with one line that says what is missing."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isosphere import runs
from isosphere.figures import words
from isosphere.runs import bases

ANY_NAME = {"encoding": "utf-8", "errors": "surrogateescape"}  # of files, also one that is not UTF-8


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
    folder: Path | None = None  # None if it comes from a file of results

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.recipe.get("seed", 0)


@dataclass(frozen=True)
class Snapshot:
    """Norms (M,) of training images at a step and, but for the first, the degrees (M,) each turned since `since`.

    `since` is None where nobody knows: an older run did not note it, and a snapshot is missing.
    """

    norms: np.ndarray
    angles: np.ndarray | None
    since: int | None


def read_recipe(folder: Path) -> dict[str, Any]:
    """What recipe.json of a run folder holds."""
    recipe = _json(folder, "recipe.json", "is not a run folder: it has no recipe.json")
    if not isinstance(recipe, dict) or not isinstance(recipe.get("data"), dict):
        raise ValueError(f"{folder / 'recipe.json'} is not a recipe of this version: it has no data")
    if not isinstance(recipe.get("constraint", {}), dict):
        raise ValueError(f"{folder / 'recipe.json'} is not a recipe of this version: its constraint has no fields")
    return runs.translate_recipe(recipe)


def read_run(folder: Path, finished: bool = False) -> Record:
    """A run folder; where `finished`, one without result.json is refused."""
    recipe, path = read_recipe(folder), folder / "metrics.jsonl"
    if not path.is_file():
        raise ValueError(f"{folder} has no metrics.jsonl: the run has not begun")
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = []
    for number, line in enumerate(lines):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            if number + 1 < len(lines):  # the last may be under way
                raise ValueError(f"{path} line {number + 1} is damaged: {error}") from error
            continue
        if not isinstance(entry, dict) or "step" not in entry:
            raise ValueError(f"{path} line {number + 1} is damaged: it is not a JSON object with a step")
        entries.append(entry)
    tests = [entry for entry in entries if entry.get("kind") == "test"]
    trains = [entry for entry in entries if entry.get("kind") == "train"]
    norms = [(its["step"], its["norm_mean"], its["norm_variance"]) for its in trains if "norm_variance" in its]
    last = {}
    if (folder / "result.json").is_file():
        result = _json(folder, "result.json", "")
        if not isinstance(result, dict) or not isinstance(result.get("last"), dict):
            raise ValueError(f"{folder / 'result.json'} is of another version: it has no last")
        last = result["last"]
    elif finished:
        raise ValueError(f"{folder} has no result.json: not finished; go on with `isosphere train --resume {folder}`")
    arm, cell = words.arm(recipe), f"{words.dataset(recipe)}, {words.loss(recipe)}"
    return Record(folder.name, recipe, last, tests, norms, cell, arm, folder)


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
            recipe = runs.translate_recipe(record["recipe"])
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


def read_class_names(folder: Path) -> dict[int, str]:
    """The names of the test classes by label, as far as test_embeddings.npz, which must be there, holds them."""
    with np.load(folder / "test_embeddings.npz", allow_pickle=False) as held:
        return {label: str(name) for label, name in enumerate(held["classes"])} if "classes" in held.files else {}


def read_queries(folder: Path, size: int) -> np.ndarray:
    """Which test images ask (N,), the others being their gallery; where none is marked, all ask each other."""
    with np.load(folder / "test_embeddings.npz", allow_pickle=False) as held:
        return held["is_query"].astype(bool) if "is_query" in held.files else np.ones(size, bool)


def read_thumbnails(folder: Path) -> np.ndarray | None:
    """The test images that a run kept of a data set in memory, uint8 (N, H, W, 3) or (N, H, W); None if it did not."""
    path = folder / "test_thumbnails.npz"
    if not path.is_file():
        return None
    pixels = _arrays(path, ("pixels",), "")["pixels"]  # (N, 3 or 1, H, W)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise ValueError(f"{path} is of another version: its pixels are {pixels.shape}, not (N, 3 or 1, H, W)")
    return pixels[:, 0] if pixels.shape[1] == 1 else pixels.transpose(0, 2, 3, 1)


def locate(path: str, root: str, run: Path) -> Path:
    """The file of a test image: `path` below the recipe's data.root or as given, seen as the run saw it or from here.

    A root that is a CSV stands for its folder, and what an older path repeats of the root is dropped if need be. A file
    that is nowhere keeps its path.
    """
    begun = (*bases(run), Path())
    folders = [its.parent if its.is_file() else its for its in (base / root for base in begun)]
    parts, name = Path(path).parts, Path(root).name
    tail = Path(*parts[parts.index(name) + 1 :]) if name in parts else Path(path)
    places = [*(its / path for its in folders), *(base / path for base in begun), *(its / tail for its in folders)]
    return next((place for place in places if place.is_file()), Path(path))


def record_turns(recipe: dict[str, Any]) -> str:
    """The fields with which a run records its snapshots, ten of them in what its length counts."""
    steps = recipe.get("loop", {}).get("steps", 1000)
    return f"record them with --loop.snapshot_every {max(1, steps // 10)} --loop.snapshot_images 0"


def read_snapshots(folder: Path) -> dict[int, Snapshot]:
    """The snapshots of training images by step, in order."""
    recipe = read_recipe(folder)
    loop = recipe.get("loop", {})
    every = loop.get("snapshot_every") if loop.get("unit", "steps") == "steps" else None
    missing = f"{folder} has no snapshots of its training images: {record_turns(recipe)}"
    paths = sorted((folder / "snapshots").glob("step-*.npz"))
    if not paths:
        raise ValueError(missing)
    found: dict[int, Snapshot] = {}
    for path in paths:
        arrays, step = _arrays(path, ("norms",), missing), int(path.stem.removeprefix("step-"))
        since = arrays.get("since")
        if since is None and found and step - max(found) == every:  # an older run, whose angles count from the last
            since = max(found)
        found[step] = Snapshot(arrays["norms"], arrays.get("angles"), None if since is None else int(since))
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
