"""Tables of runs: side by side, over seeds, and the pooled differences between arms; from what result files hold."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

OTHERS = {
    "map@r": "MAP@R", "nmi": "NMI", "f1": "F1",
    "accuracy": "accuracy", "lfw": "LFW", "lfw_dev": "LFW view 1", "agedb_30": "AgeDB-30",
    "cfp_fp": "CFP-FP", "cfp_ff": "CFP-FF",
    "knn": "k-NN", "probe_top1": "probe top-1", "probe_top5": "top-5",
    "probe_best_top1": "best top-1, picked on test",
}  # fmt: skip
NORMS = {"norm_mean": "norm", "norm_variance": "variance"}
FACES = {
    "std": "deviation\nof folds", "auc": "AUC", "tar@0.01": "TAR at\nFAR 1 %", "tar@0.001": "TAR at\nFAR 0.1 %",
    "norm_auroc": "norm\nAUROC",
}  # fmt: skip
TELLS = "pairs told apart, and how well a low norm foretells an error (AUROC, 50 is chance); in %"
PAPER = {"agedb30": "agedb_30", "cfpfp": "cfp_fp", "top1": "probe_top1", "top5": "probe_top5"}  # its names -> ours
PRIMARY = ("recall@1", "map@r", "accuracy", "probe_top1")  # of which differences are told, and more of faces
WATCHED = ("recall@1", "accuracy", "knn")  # of which the course is told: no probe is trained on the way
ENOUGH = 3  # pairs of runs, to tell an interval
INTERVAL = f"95 % interval (bootstrap over cells and seeds; of one cell Student's t; from {ENOUGH} pairs on)"
Records = list[dict[str, Any]]  # each with cell, arm, seed and last


def show(table: Table | Group) -> None:
    """Print a table whole: beyond the width of a terminal its lines wrap, where rich alone would cut the numbers."""
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    Console(width=max(needed, console.width)).print(table)


def held_out(recipe: Mapping[str, Any]) -> str:
    """What a trial is judged on: of CIFAR some of the training images, else of their classes; "" for a final run."""
    data = recipe.get("data")
    if not isinstance(data, Mapping) or not data.get("held_out"):
        return ""
    return f"held-out training {'images' if data.get('kind') == 'Cifar' else 'classes'}"


def heading(metrics: Iterable[str], results: Iterable[Mapping[str, Any]]) -> str:
    """What was measured, in the runs' own words; older ones have none, and always tested what is usual.

    A trial takes held-out training data for test data and says so, so its recipe tells what they are.
    """
    names = set(metrics)
    usual = "test classes, never seen in training" if "recall@1" in names else "test images, not trained on"
    usual = usual if names else "the images"
    each = (held_out(its.get("recipe") or {}) or its.get("tested") or usual for its in results if its["last"])
    told = " or ".join(dict.fromkeys(each)) or usual
    return f"{told}; metrics in %" if names else f"norms of {told}"


def comparison(results: Mapping[Path, Mapping[str, Any]]) -> Table | Group:
    """Runs side by side: test metrics in percent and the norms, from what each result.json holds; more of faces."""
    metrics = columns([result["last"] for result in results.values()])
    title = escape(heading(metrics, results.values()))
    headings = ("run", *map(escape, metrics.values()), *NORMS.values())
    table = Table(*headings, title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for folder, result in results.items():
        last = result["last"]
        shown = [f"{100 * last[name]:.1f}" if name in last else "-" for name in metrics]
        table.add_row(escape(folder.name), *shown, *[f"{last[name]:.3g}" for name in NORMS])
    alone = sorted({int(result["last"].get("singletons", 0)) for result in results.values()} - {0})
    if alone:
        many = " or ".join(map(str, alone))
        table.caption = f"{many} queries have no other image of their class and count as wrong"
    return _with_faces(table, {folder.name: [result["last"]] for folder, result in results.items()})


def _with_faces(table: Table, runs: Mapping[str, list[Mapping[str, float]]]) -> Table | Group:
    """The table, and for faces another one of what each set of pairs and identification tell beside accuracy."""
    metrics = face_columns({name for found in runs.values() for one in found for name in one})
    if not metrics:
        return table
    headings = (table.columns[0].header, *map(escape, metrics.values()))
    more = Table(*headings, title=TELLS, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, column in enumerate(more.columns):
        column.justify, column.no_wrap = "right" if number else "left", True
    for run, found in runs.items():
        more.add_row(escape(run), *[spread([100 * one[name] for one in found if name in one]) for name in metrics])
    return Group(table, more)


def face_columns(names: Collection[str]) -> dict[str, str]:
    """Those of the metrics that a set of pairs and identification have beside accuracy, in lines of a heading."""
    sets = {name: OTHERS.get(name, name) for name in own_sets(names)} | {"rank1": "rank 1"}
    return {
        f"{name}_{kind}": f"{told}\n{heading}"
        for kind, heading in FACES.items() for name, told in sets.items() if f"{name}_{kind}" in names
    }  # fmt: skip


def own_sets(names: Iterable[str]) -> list[str]:
    """The sets of pairs among the names of metrics, known ones first: each has an area under its ROC."""
    found = {name.removesuffix("_auc") for name in names if name.endswith("_auc")}
    return [*(name for name in OTHERS if name in found), *sorted(found - OTHERS.keys())]


def columns(found: list[Mapping[str, float]]) -> dict[str, str]:
    """The names of those metrics that any of them has, in order: recalls, the others, identification by rank."""
    names = {name for one in found for name in one}
    recalls = sorted(int(name.split("@")[1]) for name in names if name.startswith("recall@"))
    shown = {f"recall@{k}": f"R@{k}" for k in recalls} | {key: told for key, told in OTHERS.items() if key in names}
    shown |= {name: OTHERS.get(name, name) for name in own_sets(names)}
    return shown | ranks(names)


def ranks(names: Iterable[str]) -> dict[str, str]:
    """Identification: among so many of all distractors, by their number, then among those of one set."""
    among = [name.removeprefix("rank1@") for name in names if name.startswith("rank1@")]
    counts = sorted(int(one) for one in among if one.isdecimal())
    sets = sorted(one for one in among if not one.isdecimal())
    return {f"rank1@{n}": f"rank 1 of {n:,}" for n in counts} | {f"rank1@{one}": f"rank 1 among {one}" for one in sets}


def compared(names: Collection[str]) -> dict[str, str]:
    """The metrics of which differences are told: what judges a task, and of faces each set of pairs, if there are some,
    rank 1 among the most distractors, and how well the norm foretells errors."""
    every, sets = columns([dict.fromkeys(names, 0.0)]), own_sets(names)
    most = [name for name in ranks(names) if name.removeprefix("rank1@").isdecimal()][-1:]
    chosen = [*(name for name in PRIMARY if name in names), *(sets if len(sets) > 1 else ()), *most]
    foretold = {name: told.replace("\n", " ") for name, told in face_columns(names).items() if "_norm_" in name}
    return {name: every[name] for name in chosen} | foretold


def paper_columns(metrics: Iterable[str]) -> list[str]:
    """The paper's metrics as ours are headed; one that is not measured here keeps its name."""
    ours = [PAPER.get(name, name) for name in metrics]
    known = columns([dict.fromkeys(ours, 0.0)])
    return [known.get(name, name) for name in ours]


# ---------------------------------------------------------------- over seeds


def seeds_table(records: Records) -> Table | Group:
    """Mean and standard deviation over the seeds of every arm of every cell, in percent, of the last checkpoints."""
    every = columns([record["last"] for record in records])
    probed = every.pop("probe_best_top1", None)
    metrics = {name: told for name, told in every.items() if name == "recall@1" or not name.startswith("recall@")}
    first = next(iter(metrics), "")
    oracle = metrics["probe_top1"] if probed else metrics.get(first, "")
    title = heading(metrics, records)
    headings = ("arm", "seeds", *map(escape, metrics.values()), *NORMS.values(), f"oracle {oracle},\npicked on test")
    table = Table(*headings, title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, column in enumerate(table.columns):
        column.justify, column.no_wrap = "right" if number else "left", True
    before = None
    for (cell, arm), found in _grouped(records).items():
        whole = [record["last"] for record in found if record["last"]]
        shown = [spread([100 * last[name] for last in whole if name in last]) for name in metrics]
        measured = [[last[name] for last in whole if name in last] for name in NORMS]
        norms = [f"{np.mean(values):.3g}" if values else "-" for values in measured]
        diverged = f" ({len(found) - len(whole)} diverged)" if len(whole) < len(found) else ""
        if probed:  # the best epoch of the probe, not the best evaluation on the way
            best = [last["probe_best_top1"] for last in whole if "probe_best_top1" in last]
        else:
            best = [max(test[first] for test in _tests(record)) for record in found if record["last"]]
        if cell != before:
            table.add_row(f"[bold]{escape(cell)}[/bold]")
        table.add_row(escape(arm), f"{len(whole)}{diverged}", *shown, *norms, spread([100 * v for v in best]))
        before = cell
    groups = _grouped(records).items()
    return _with_faces(table, {f"{cell} {arm}": [record["last"] for record in its] for (cell, arm), its in groups})


def _tests(record: Mapping[str, Any]) -> list[Mapping[str, float]]:
    """All evaluations of a run that are known."""
    return record.get("tests") or [record.get("oracle") or record["last"]]


def spread(values: list[float]) -> str:
    """Mean ± standard deviation, the mean alone for one value."""
    if not values:
        return "-"
    mean = f"{np.mean(values):.1f}"
    return f"{mean} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else mean


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
    """What the paper printed, in percent, as it stands there."""
    table = Table("arm", *map(escape, paper_columns(metrics)), title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for arm, values in rows.items():
        table.add_row(arm, *[f"{value:.2f}" for value in values])
    return table


def _grouped(records: Records) -> dict[tuple[str, str], Records]:
    groups: dict[tuple[str, str], Records] = {}
    cells = list(dict.fromkeys(record["cell"] for record in records))
    for record in sorted(records, key=lambda record: cells.index(record["cell"])):
        groups.setdefault((record["cell"], record["arm"]), []).append(record)
    return groups


# ---------------------------------------------------------------- over cells


@dataclass(frozen=True)
class Difference:
    """An arm less another: the differences of each cell by seed, the mean over cells, and its 95 % interval."""

    arm: str
    than: str
    cells: dict[str, list[float]]
    mean: float
    low: float | None  # None for fewer than three pairs of runs: an interval drawn from two is just these two
    high: float | None

    @property
    def positive(self) -> int:
        """In how many cells the mean over seeds is above zero."""
        return sum(np.mean(found) > 0 for found in self.cells.values())

    @property
    def pairs(self) -> int:
        """How many pairs of runs there are."""
        return sum(map(len, self.cells.values()))


def pooled(records: Records, metric: str, arm: str, than: str, resamples: int = 10_000) -> Difference | None:
    """The paired difference by seed within each cell, pooled over cells; None where no pair exists.

    The interval of several cells is a bootstrap that draws cells and, within each, seeds, both with replacement; that
    of one cell is Student's, as drawing from three differences would give just their range. There is none of fewer than
    three pairs.
    """
    values = {(r["cell"], r["arm"], r["seed"]): r["last"][metric] for r in records if metric in r["last"]}
    cells: dict[str, list[float]] = {}
    for (cell, name, seed), value in sorted(values.items()):
        if name == arm and (cell, than, seed) in values:
            cells.setdefault(cell, []).append(value - values[cell, than, seed])
    if not cells:
        return None
    mean = float(np.mean([np.mean(found) for found in cells.values()]))
    if sum(map(len, cells.values())) < ENOUGH:
        return Difference(arm, than, cells, mean, None, None)
    if len(cells) == 1:
        from scipy import special  # slow to import

        (found,) = cells.values()
        reach = float(special.stdtrit(len(found) - 1, 0.975) * np.std(found, ddof=1) / len(found) ** 0.5)
        return Difference(arm, than, cells, mean, mean - reach, mean + reach)
    generator = np.random.default_rng(0)
    drawn = np.stack(
        [generator.choice(found, (resamples, len(cells), len(found))).mean(2) for found in cells.values()], axis=2
    )  # (resamples, draw, cell): a fresh draw of each cell's seeds for every draw of a cell
    picks = generator.integers(len(cells), size=(resamples, len(cells)))
    low, high = np.quantile(np.take_along_axis(drawn, picks[..., None], 2).mean((1, 2)), (0.025, 0.975))
    return Difference(arm, than, cells, mean, float(low), float(high))


def differences_table(records: Records, where: str = "") -> Table:
    """All arms against no constraint, and relative SEC against SEC, pooled over cells, in points."""
    arms = list(dict.fromkeys(record["arm"] for record in records))
    metrics = compared({name for record in records for name in record["last"]})
    pairs = [(arm, "none") for arm in arms if arm != "none"]
    if {"sec", "sec-relative"} <= set(arms):
        pairs.append(("sec-relative", "sec"))
    title = f"paired differences in points: mean over cells, {INTERVAL}"
    title += f"; {escape(where)}" if where else ""
    table = Table("difference", "metric", "mean", "interval", "cells above 0", "pairs", title=title, box=box.SIMPLE)
    for arm, than in pairs:
        table.add_section()
        for metric, name in metrics.items():
            found = pooled(records, metric, arm, than)
            if found is not None:
                interval = "-" if found.low is None else f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
                cells = f"{found.positive} of {len(found.cells)}"
                told = (f"{100 * found.mean:+.1f}", interval, cells, str(found.pairs))
                table.add_row(escape(f"{arm} - {than}"), escape(name), *told)
    return table
