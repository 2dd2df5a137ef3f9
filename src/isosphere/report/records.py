"""Runs as figures need them: strictly read, with one error that says what is missing."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from isosphere import runs
from isosphere.errors import BadArgument, MissingPart, NotResults, Option, UnfinishedRun
from isosphere.metrics import registry
from isosphere.metrics.registry import NORM_MEAN, NORM_VARIANCE, TRAINING_LOSS
from isosphere.recipes import labels
from isosphere.runs import Embedded, Line, Record, RunFolder, Snapshot


def read_folders(paths: Sequence[Path]) -> list[RunFolder]:
    """Run folders, at least one."""
    if not paths:
        raise BadArgument("runs", [], "at least one run folder")
    return [runs.read(path, strict=True) for path in paths]


def read_all(paths: Sequence[Path], kind: str = "runs", finished: bool = False) -> list[Record]:
    """All runs of run folders, and all `runs` or `trials` of files of results, in order."""
    if not paths:
        raise BadArgument("runs", [], "at least one run folder or file of results")
    found: list[Record] = []
    for path in paths:
        if path.suffix != ".json":
            run = runs.read(path, strict=True)
            if finished and not run.finished:
                raise UnfinishedRun(path, runs.RESULT)
            found.append(record_of(run))
            continue
        held = runs.read_results(path)
        its, others = (held.runs, held.trials) if kind == "runs" else (held.trials, held.runs)
        if not its:
            raise NotResults(path, f"it holds no {kind}, only {len(others)} {'trials' if kind == 'runs' else 'runs'}")
        found += its
    return found


def record_of(run: RunFolder) -> Record:
    """A run folder as a record of a file of results, with its folder."""
    lines = [line for line in run.of_kind("train") if NORM_MEAN in line and NORM_VARIANCE in line]
    record: Record = {
        "cell": f"{labels.dataset(run.values)}, {labels.loss(run.values)}", "method": labels.method(run.values),
        "seed": run.values.get("seed", 0), "recipe": run.values, "last": run.last if run.finished else {},
        "name": run.name, "folder": run.folder, "turns": run.of_kind("turn"),
        "tests": with_training_loss(run.of_kind(run.on_the_way), run.of_kind("train")), "untrained": run.untrained,
        "norms": [[its["step"], its.get("loss"), its[NORM_MEAN], its[NORM_VARIANCE]] for its in lines],
    }  # fmt: skip
    if run.on_the_way == "validation":
        record["validation"] = run.about.get("validation", {})
    return record


def measured_on(records: Iterable[Record]) -> str:
    """What these runs were measured on while they trained."""
    each = ("validation images" if "validation" in record else labels.held_out(record["recipe"]) for record in records)
    return " and ".join(dict.fromkeys(its or "test images" for its in each))


def with_training_loss(tests: Iterable[Line], logged: Sequence[Line]) -> list[Line]:
    """Each evaluation with the mean of the criterion, without the penalty, at the steps logged since the one before."""
    found, before = [], -1
    for test in tests:
        losses = [line["metric"] for line in logged if before < line["step"] <= test["step"] and "metric" in line]
        found.append({**test, **({TRAINING_LOSS: sum(losses) / len(losses)} if losses else {})})
        before = test["step"]
    return found


def checked_metric(metric: str, found: Iterable[Collection[str]], training: bool = False) -> str:
    """A metric that at least one of these has. Without a name it is the one by which they are judged."""
    names = [list(one) for one in found]
    every = list(dict.fromkeys(name for its in names for name in its if name not in ("step", "kind")))
    metric = metric or registry.headline(every, training)
    if metric not in every:
        raise BadArgument("metric", metric, f"one of {', '.join(every)}" if every else "measured: no run has any")
    return metric


def embedded(run: RunFolder) -> Embedded:
    """The test embeddings of a run; one without is refused."""
    if run.embedded is None:
        raise MissingPart(run.folder, "test embeddings", (Option("loop.save_embeddings", True),))
    return run.embedded


def snapshots(run: RunFolder, part: str = "snapshots of its training images") -> list[Snapshot]:
    """The snapshots of a run; one without is refused, with ten as the advice."""
    if not run.snapshots:
        raise missing_snapshots(run, part)
    return run.snapshots


def missing_snapshots(run: RunFolder, part: str) -> MissingPart:
    """The options with which a run records its snapshots."""
    every = max(1, labels.group(run.values, "loop").get("steps", 1000) // 10)
    return MissingPart(run.folder, part, (Option("loop.snapshot_every", every), Option("loop.snapshot_images", 0)))
