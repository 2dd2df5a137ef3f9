"""A run folder, read once and checked. Nothing here needs torch but the step of a checkpoint."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isosphere.errors import (
    BadArgument,
    DamagedFile,
    IsosphereError,
    NotARun,
    OtherVersion,
    UnfinishedRun,
    UnknownField,
)
from isosphere.files import read_json
from isosphere.recipes import options, schema
from isosphere.recipes.labels import group
from isosphere.runs.lines import METRICS, TEXTS, Line, each_line, numbers
from isosphere.runs.shapes import odd_fields
from isosphere.runs.versions import recipe_of, translate_recipe, translate_record
from isosphere.tensor_files import read_tensors

if TYPE_CHECKING:
    import numpy as np

RECIPE, RUN, RESULT, CHECKPOINT = "recipe.json", "run.json", "result.json", "checkpoint.pt"
EMBEDDINGS, PATHS, THUMBNAILS = "test_embeddings.npz", "test_paths.txt", "test_thumbnails.npz"
SPLIT = "split.json"  # which classes of one's own images train and test
SNAPSHOTS = "snapshots"  # a folder of step-0001000.npz
UNREADABLE = (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Snapshot:
    """Norms (M,) of some training images at a step, and the degrees (M,) that each turned since step `since`.

    A monitor keeps no norms. A first snapshot has no angles. An older run may not say since when.
    """

    step: int
    norms: "np.ndarray | None"
    angles: "np.ndarray | None"
    since: int | None


@dataclass(frozen=True)
class Embedded:
    """Test embeddings (N, D) in float32, labels (N,), class names if kept, and which images are queries (N,).

    `groups` (N,), if there are such: images of a query's class and group do not count.
    """

    embeddings: "np.ndarray"
    labels: "np.ndarray"
    classes: list[str]
    is_query: "np.ndarray"
    groups: "np.ndarray | None" = None


@dataclass
class RunFolder:
    """A run folder as far as it is there, or a run in a monitor's file. `problems` says what is missing."""

    folder: Path
    name: str
    strict: bool = False
    problems: list[str] = field(default_factory=list)
    recipe: schema.Recipe | None = None  # None where there is none, or of another version
    values: dict[str, Any] = field(default_factory=dict)  # the recipe as JSON, in today's words
    about: dict[str, Any] = field(default_factory=dict)  # result.json, or run.json of an unfinished run
    lines: list[Line] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)  # of the weights that it keeps
    ended: dict[str, float] = field(default_factory=dict)  # of its last step, where validation kept others
    untrained: dict[str, float] = field(default_factory=dict)  # of the backbone's features
    oracle: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    watched: bool = False  # by a NormMonitor, in a loop that is not ours
    snapshots: list[Snapshot] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Line]:
        """All lines of a kind: "train", "validation", "test", "turn", "probe" or "warning"."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def on_the_way(self) -> str:
        """The kind of line that has an evaluation on the way."""
        return "validation" if self.of_kind("validation") else "test"

    def course(self, kind: str, name: str) -> list[tuple[float, float]]:
        """(step, value) of every line of a kind that has this number."""
        return [(line["step"], line[name]) for line in self.of_kind(kind) if name in line]

    @cached_property
    def embedded(self) -> Embedded | None:
        """The last test embeddings; None, with a problem, where they cannot be had."""
        import numpy as np

        path = self.folder / EMBEDDINGS
        if self.watched:
            return None
        if not path.is_file():
            self.note(f"no {path.name}: neither a distribution of test norms nor retrievals")
            return None
        try:
            with np.load(path, allow_pickle=False) as held:
                arrays = {name: held[name] for name in held.files}
            embeddings = unscaled(arrays)
            labels, classes = arrays["labels"], [str(name) for name in arrays.get("classes", ())]
            if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1] or labels.dtype.kind not in "iu":
                raise ValueError(f"embeddings {embeddings.shape} do not fit labels {labels.shape}")
            if not len(labels) or not np.isfinite(embeddings).all():
                raise ValueError("embeddings are none or not finite")
            is_query = arrays.get("is_query", np.ones(len(labels), bool)).astype(bool)
            groups = arrays.get("groups")
            if groups is not None and groups.shape != labels.shape:
                raise ValueError(f"groups {groups.shape} do not fit labels {labels.shape}")
            return Embedded(embeddings, labels.astype(np.int64), classes, is_query, groups)
        except UNREADABLE as error:
            self.fault(path, error)
            return None

    @cached_property
    def saved(self) -> int:
        """The step of the checkpoint of an unfinished run, 0 without one; its weights stay on disk."""
        path = self.folder / CHECKPOINT
        if self.finished or self.watched or not path.is_file():
            return 0
        try:
            return int(read_tensors(path, weights=False)["step"])
        except (IsosphereError, KeyError, TypeError, ValueError) as error:
            self.fault(path, error)
            return 0

    def note(self, problem: str) -> None:
        """Something that is not there, and need not be."""
        self.problems.append(problem)

    def fault(self, path: Path, error: object, field: str = "") -> None:
        """Something that should not be: raised if strict."""
        reason = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        if self.strict:
            cause = error if isinstance(error, Exception) else None
            if isinstance(error, KeyError):
                raise OtherVersion(path, reason, str(error.args[0])) from cause
            raise DamagedFile(path, reason, field) from cause
        self.note(f"{path.name} cannot be read: {reason}")


def unscaled(arrays: Mapping[str, "np.ndarray"]) -> "np.ndarray":
    """Test embeddings (N, D) in float32. A file has them in half precision, scaled to a largest component of 1."""
    import numpy as np

    return arrays["embeddings"].astype(np.float32) * np.float32(arrays["scale"])


def read_result(folder: Path) -> dict[str, Any]:
    """What a finished run says of itself, in today's words."""
    path = folder / RESULT
    found = parsed(path)
    for name, reason in odd_fields(found, ("recipe", "last")).items():
        raise DamagedFile(path, f"{name} {reason}", name)
    return translate_record(found)


def kept(result: Mapping[str, Any]) -> dict[str, Any]:
    """The test metrics of the weights that a run keeps: the best by validation if it had some, else the last."""
    return result.get("best") or result.get("last") or {}


def snapshot_path(folder: Path, step: int) -> Path:
    """Where a run keeps the norms and turns of a step."""
    return folder / SNAPSHOTS / f"step-{step:07d}.npz"


def read_recipe(folder: Path) -> schema.Recipe:
    """The recipe of a run folder; anything else is refused."""
    path = folder / RECIPE
    if not path.is_file():
        raise NotARun(folder, RECIPE)
    return recipe_in(parsed(path), path)


def recipe_in(values: Any, path: Path) -> schema.Recipe:
    """The recipe that a file holds as JSON of any version."""
    try:
        return recipe_of(values)
    except UnknownField as error:
        raise OtherVersion(path, str(error), error.field.field) from error
    except BadArgument as error:
        name = error.name if isinstance(error.name, str) else error.name.field
        raise OtherVersion(path, str(error), name) from error


def parsed(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise DamagedFile(path, "it holds no JSON object")
    return found


def read(folder: Path, strict: bool = False, name: str = "") -> RunFolder:
    """All that a run folder holds."""
    run = RunFolder(folder, name or folder.name, strict)
    files = (RECIPE,) if strict else (RECIPE, RUN, METRICS, RESULT)
    if not any((folder / file).is_file() for file in files):
        raise NotARun(folder, " or ".join(files))
    result = translate_record(_object(run, folder / RESULT, "the run has not finished, or was stopped"))
    run.finished = "last" in result
    held = _object(run, folder / RECIPE) or result.get("recipe")
    run.recipe, run.values = recipe_and_values(held) if held else (None, {})
    if held and run.recipe is None:
        if strict:
            read_recipe(folder)
        run.note(f"{RECIPE} is of another version of isosphere: shown as it stands")
    run.about = result if run.finished else translate_record(_object(run, folder / RUN))
    run.lines = read_lines(run, folder / METRICS)
    run.last, run.oracle = numbers(kept(result)), numbers(result.get("oracle"))
    run.ended = numbers(result["last"]) if "best" in result else {}
    run.untrained = numbers(next(iter(run.of_kind("untrained")), None))
    if run.finished and not run.last:
        run.note(f"{RESULT} has no numbers of the last evaluation: those of {METRICS} are shown")
    elif lost := (result.get("last") or {}).keys() - run.last.keys():
        run.note(f"left out of {RESULT}, not finite: {', '.join(sorted(lost))}")
    run.last = run.last or numbers(next(reversed(run.of_kind(run.on_the_way)), None))
    if not run.last:
        run.note("no evaluation yet: there are no metrics to show")
    run.snapshots = _snapshots(run)
    return run


def _object(run: RunFolder, path: Path, reason: str = "") -> dict[str, Any]:
    """A JSON object, or nothing and why."""
    if not path.is_file():
        run.note(f"no {path.name}" + (f": {reason}" if reason else ""))
        return {}
    try:
        found = parsed(path)
    except DamagedFile as error:
        run.fault(path, error.reason)
        return {}
    if path.name == RESULT and not isinstance(found.get("last"), dict):
        run.fault(path, KeyError("last"))
        return {}
    odd = odd_fields(found) if path.name != RECIPE else {}
    for name, reason in odd.items():
        run.fault(path, f"{name} {reason}", name)
    return {name: value for name, value in found.items() if name not in odd}


def recipe_and_values(held: Any) -> tuple[schema.Recipe | None, dict[str, Any]]:
    """A recipe, and its JSON with the defaults of what it does not name. Of another version it stays as it is."""
    try:
        recipe = recipe_of(held)
        return recipe, options.to_dict(recipe)
    except ValueError:
        return None, translate_recipe(held) if isinstance(held, dict) else {}


def read_lines(run: RunFolder, path: Path) -> list[Line]:
    """Every line that has a kind and a step, with its texts and its finite numbers."""
    if not path.is_file():
        if run.strict:
            raise UnfinishedRun(run.folder, METRICS)
        run.note(f"no {path.name}: no curves")
        return []
    lines, bad = [], 0
    odd: dict[str, int] = {}  # name of what is no finite number -> the step where it is first
    found = [*each_line(path)]
    for number, line in found:
        if isinstance(line, Exception):
            if run.strict and number < len(found):  # the last may be under way
                raise DamagedFile(path, f"line {number}: {line!r}", f"line {number}") from line
            bad += 1
            continue
        kept = {name: line[name] for name in (*TEXTS, "kind", "step") if name in line}
        lines.append(numbers(line) | kept)
        odd = {name: line["step"] for name in line if name not in lines[-1]} | odd
    if not lines and not bad:
        run.note(f"{path.name} is empty: no curves")
    if bad:
        run.note(f"{bad} line{'s' * (bad > 1)} of {path.name} cannot be read and left out")
    if odd:
        first = ", ".join(f"{name} (first in step {step})" for name, step in odd.items())
        run.note(f"left out of {path.name}, not finite: {first}")
    return lines


def _snapshots(run: RunFolder) -> list[Snapshot]:
    import numpy as np

    found, before = [], None
    for path in sorted((run.folder / SNAPSHOTS).glob("step-*.npz")):
        try:
            step = int(path.stem.removeprefix("step-"))
            with np.load(path, allow_pickle=False) as arrays:
                norms = arrays["norms"].astype(float)
                angles = arrays["angles"].astype(float) if "angles" in arrays else None
                since = int(arrays["since"]) if "since" in arrays else None
            if not len(norms) or not np.isfinite(norms if angles is None else norms + angles).all():
                raise ValueError("norms or angles are none or not finite")
            if since is None and before is not None and step - before == _every(run.values):
                since = before  # an older file does not say; its angles count from the one before
            found.append(Snapshot(step, norms, angles, since))
            before = step
        except UNREADABLE as error:
            run.fault(path, error)
    return found


def _every(values: dict[str, Any]) -> int | None:
    """Steps between two snapshots, where the recipe counts in steps."""
    loop = group(values, "loop")
    return loop.get("snapshot_every") if loop.get("unit", "steps") == "steps" else None
