"""Tables of runs: next to each other, over seeds, and the pooled differences between methods."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from isosphere.metrics import registry
from isosphere.metrics.registry import Metric
from isosphere.recipes import labels
from isosphere.report.differences import INTERVAL, Difference, compared_methods, pooled
from isosphere.runs import Record

__all__ = [
    "Difference", "comparison", "differences_table", "pooled", "printed_table", "probe_table", "seeds_table", "show",
    "spread", "tested_on",
]  # fmt: skip

NORMS = tuple(map(registry.metric, (registry.NORM_MEAN, registry.NORM_VARIANCE)))
UNTRAINED = "untrained backbone"
DETAILS = "pairs judged, and how well a low norm predicts an error (AUROC, 50 is chance); in %"
R = TypeVar("R", bound=Mapping[str, Any])
Records = Sequence[Record]


def show(table: Table | Group) -> None:
    """Print a table whole. Beyond the width of a terminal its lines wrap, where rich alone would cut the numbers."""
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    Console(width=max(needed, console.width)).print(table)


def tested_on(metrics: Iterable[Metric], results: Iterable[Mapping[str, Any]]) -> str:
    """What was measured, in the runs' own words. Older runs have none, and always tested what is usual.

    A trial takes held-out training data for test data and says so, so its recipe decides what they are.
    """
    names = {one.key for one in metrics}
    retrieved = registry.leading("retrieval") in names
    usual = "test classes, never seen in training" if retrieved else "test images, not trained on"
    usual = usual if names else "the images"
    each = (labels.held_out(its.get("recipe") or {}) or its.get("tested") or usual for its in results if its["last"])
    found = " or ".join(dict.fromkeys(each)) or usual
    return f"{found}; metrics in %" if names else f"norms of {found}"


def comparison(results: Mapping[Path, Mapping[str, Any]]) -> Table | Group:
    """Runs in rows: test metrics in percent and the norms, from what each result.json holds; more of faces.

    What the backbones measured before training comes first. A run with validation has a row for its best checkpoint,
    and one for its last.
    """
    named = {folder.name: result for folder, result in results.items()}
    found = untrained_rows({name: result.get("untrained") or {} for name, result in named.items()})
    measured = [row for name, result in named.items() for row in checkpoint_rows(name, result)]
    metrics = registry.scores(_names(last for _, last in measured))
    found += measured
    headings = ["run", *[one.column for one in (*metrics, *NORMS)]]
    table = _table(tested_on(metrics, results.values()), headings, 1)
    for name, last in found:
        table.add_row(escape(name), *[one.shown(last.get(one.key)) for one in (*metrics, *NORMS)])
    alone = sorted({int(last.get("singletons", 0)) for _, last in found} - {0})
    if alone:
        table.caption = f"{' or '.join(map(str, alone))} queries have no other image of their class and count as wrong"
    return _with_details(table, {name: [last] for name, last in measured})


def untrained_rows(found: Mapping[str, Mapping[str, float]]) -> list[tuple[str, Mapping[str, float]]]:
    """What the backbone's features of each run measured before training, once where that is the same."""
    apart = {json.dumps(its, sort_keys=True): (name, its) for name, its in reversed([*found.items()]) if its}
    rows = [*reversed(apart.values())]
    return [(UNTRAINED + f" of {name}" * (len(rows) > 1), its) for name, its in rows]


def checkpoint_rows(name: str, result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    """What a run measured at its end: with validation its best checkpoint, and then its last one."""
    if "best" not in result:
        return [(name, result["last"])]
    best, step = result["best"], result["validation"]["last"]["step"]
    rows = [(f"{name}, best by validation, step {best['step']:,}", best)]
    return rows + [(f"{name}, last, step {step:,}", result["last"])] * (best["step"] != step)


def _with_details(table: Table, runs: Mapping[str, list[Mapping[str, float]]]) -> Table | Group:
    """The table, and for faces another one of what sets of pairs and identification have besides accuracy."""
    metrics = registry.pair_details(_names(one for found in runs.values() for one in found))
    if not metrics:
        return table
    headings = [textwrap.fill(one.heading, 16) for one in metrics]  # narrow
    more = _table(DETAILS, [str(table.columns[0].header), *headings], 1)
    for run, found in runs.items():
        more.add_row(escape(run), *[spread(values_of(found, one.key)) for one in metrics])
    return Group(table, more)


def _table(title: str, headings: Iterable[str], words: int) -> Table:
    """An empty table whose first `words` columns are words, and the others numbers."""
    table = Table(*map(escape, headings), title=escape(title), box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, column in enumerate(table.columns):
        column.justify, column.no_wrap = "left" if number < words else "right", True
    return table


def _names(found: Iterable[Mapping[str, float]]) -> set[str]:
    return {name for one in found for name in one}


def values_of(found: Iterable[Mapping[str, float]], name: str) -> list[float]:
    """A fraction in percent, of all that have it."""
    return [100 * one[name] for one in found if name in one]


def mean_of(found: Iterable[Mapping[str, float]], name: str) -> float | None:
    """The mean of all that have a number; None where nothing has."""
    values = [one[name] for one in found if name in one]
    return float(np.mean(values)) if values else None


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation, the mean alone for one value."""
    if not values:
        return "-"
    mean = f"{np.mean(values):.1f}"
    return f"{mean} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else mean


# ---------------------------------------------------------------- over seeds and cells


def seeds_table(records: Records) -> Table | Group:
    """Mean and standard deviation over the seeds of every method of every cell, in percent, at the end."""
    every = {one.key: one for one in registry.scores(_names(record["last"] for record in records))}
    probe, picked = next(iter(registry.PICKED.items()))
    probed = every.pop(picked, None)
    metrics = registry.one_recall(every.values())
    first = metrics[0].key if metrics else ""
    oracle = every[probe] if probed else every.get(first)
    oracle = f"oracle {oracle.heading if oracle else ''},\npicked on test"
    headings = ("method", "seeds", *[one.column for one in (*metrics, *NORMS)], oracle)
    table = _table(tested_on(metrics, records), headings, 1)
    groups = by_method(records)
    untrained = {cell: [its.get("untrained") or {} for its in records if its["cell"] == cell] for cell, _ in groups}
    before = None
    for (cell, method), found in groups.items():
        whole = [record["last"] for record in found if record["last"]]
        scores = [spread(values_of(whole, one.key)) for one in metrics]
        norms = [one.shown(mean_of(whole, one.key)) for one in NORMS]
        diverged = f" ({len(found) - len(whole)} diverged)" if len(whole) < len(found) else ""
        if probed:  # the best epoch of the probe, not the best evaluation on the way
            best = values_of(whole, picked)
        else:
            best = [max(values_of(_tests(record), first)) for record in found if record["last"]]
        if cell != before:
            table.add_row(f"[bold]{escape(cell)}[/bold]")
            if first_of := next((its for its in untrained[cell] if its), {}):
                shown = [spread(values_of([first_of], one.key)) for one in metrics]
                table.add_row(UNTRAINED, "-", *shown, *["-" for _ in NORMS], "-")
        table.add_row(escape(method), f"{len(whole)}{diverged}", *scores, *norms, spread(best))
        before = cell
    return _with_details(table, {" ".join(key): [record["last"] for record in its] for key, its in groups.items()})


def _tests(record: Record) -> Sequence[Mapping[str, float]]:
    """All evaluations of a run that are known."""
    return record.get("tests") or [record.get("oracle") or record["last"]]


def by_method(records: Iterable[R]) -> dict[tuple[str, str], list[R]]:
    """The records of every (cell, method), in the order of cells."""
    groups: dict[tuple[str, str], list[R]] = {}
    records = list(records)
    cells = list(dict.fromkeys(record["cell"] for record in records))
    for record in sorted(records, key=lambda record: cells.index(record["cell"])):
        groups.setdefault((record["cell"], record["method"]), []).append(record)
    return groups


def differences_table(records: Records, where: str = "") -> Table:
    """All methods against the baseline, and relative SEC against SEC, pooled over cells, in points."""
    title = f"paired differences in points: mean over cells, {INTERVAL}" + (f"; {where}" if where else "")
    headings = ("difference", "metric", "mean", "interval", "cells above 0", "pairs")
    table = Table(*headings, title=escape(title), box=box.SIMPLE)
    for method, than in compared_methods(records):
        table.add_section()
        for metric in registry.compared(_names(record["last"] for record in records)):
            found = pooled(records, metric.key, method, than)
            if found is not None:
                ends = [f"{100 * end:+.1f}" for end in (found.low, found.high) if end is not None]
                cells = f"{found.positive} of {len(found.cells)}"
                values = (f"{100 * found.mean:+.1f}", " to ".join(ends) or "-", cells, str(found.pairs))
                table.add_row(escape(f"{method} - {than}"), escape(metric.heading), *values)
    return table


# ---------------------------------------------------------------- the probe, and what the paper printed


def probe_table(found: Mapping[float, Mapping[str, Any]], run: str, tested: str) -> Table:
    """The linear probe at several learning rates on what was tested, last and best epoch, in percent."""
    table = Table("lr", "top-1", "top-5", "best top-1*", "best top-5*", "epoch*", box=box.SIMPLE)
    table.title = escape(f"linear probe of {run} on {tested}; in %")
    table.caption = "* in the epoch that is best on test"
    for lr, its in found.items():
        shares = [its[name] for name in ("top1", "top5", "best_top1", "best_top5")]
        shown = [f"diverged in epoch {its['diverged']}"] if its["diverged"] else [f"{100 * s:.1f}" for s in shares]
        table.add_row(f"{lr:g}", *shown, *([] if its["diverged"] else [str(its["best_epoch"])]))
    return table


def printed_table(metrics: Iterable[str], rows: Mapping[str, Iterable[float]], title: str) -> Table:
    """What the paper printed, in percent, unchanged, under our headings."""
    headings = [registry.metric(registry.PAPER.get(name, name)).heading for name in metrics]
    table = Table("method", *map(escape, headings), title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for method, values in rows.items():
        table.add_row(method, *[f"{value:.2f}" for value in values])
    return table
