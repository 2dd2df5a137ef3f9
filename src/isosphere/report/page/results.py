"""The sections about a file of results: mean and spread over seeds, pooled differences, curves, trials, recipes."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from isosphere.metrics import registry
from isosphere.metrics.registry import Metric
from isosphere.recipes import labels
from isosphere.recipes.constraints import BASELINE
from isosphere.report import style
from isosphere.report.curves import mean_curve, metric_curve, norm_curve, turn_curve
from isosphere.report.differences import (
    INTERVAL,
    all_differences,
    cells_in_order,
    compared_methods,
    draw_forest,
    pooled,
)
from isosphere.report.page.comparisons import method_changes
from isosphere.report.page.markup import charts, folded, listed, note, number, section, table, titled
from isosphere.report.page.measured import NORMS, explained, shown_metrics
from isosphere.report.page.panels import Styles, line_chart
from isosphere.report.rates import draw_rates, record_rate
from isosphere.report.svg import legend, panel_svg
from isosphere.report.tables import DETAILS, UNTRAINED, by_method, mean_of, spread, tested_on, values_of
from isosphere.runs import Record, Results

Groups = Mapping[tuple[str, str], Sequence[Record]]  # by cell and method
RATES = ("seed", "optimizer.lr", "optimizer.backbone_lr", "optimizer.class_lr")  # in which runs of one line differ


def results_section(results: Results, place: str, styles: Styles) -> str:
    """Everything about one file, its methods in the colors that they have in every file."""
    parts = [listed(results.problems)]
    if results.runs:
        methods = in_order(results.runs)
        groups = by_method(sorted(results.runs, key=lambda one: (_natural(one["cell"]), methods.index(one["method"]))))
        its = {labels.method_label(method): styles[method] for method in methods}
        parts += [listed(method_changes(results.runs, methods)), over_seeds(groups), legend(its)]
        parts += [charts(rates_chart(results.runs, its), *forests(results.runs)), differences_table(results.runs)]
        parts += [curves(groups, its), directions(groups, its), _recipes(groups)]
    else:
        parts.append(note("This file holds tuning trials only: no final run has been made yet."))
    parts.append(trials_part(results.trials, unfolded=not results.runs))
    parts.append(note("A file of results keeps neither embeddings nor images: name run folders to see a gallery."))
    return section(place, f"Results of {results.name}", *parts)


def in_order(records: Sequence[Record]) -> list[str]:
    """The methods as they first appear, but the baseline before all."""
    return sorted(dict.fromkeys(record["method"] for record in records), key=lambda method: method != BASELINE)


def _natural(cell: str) -> tuple[str, float]:
    """Cells that end in a number in its order."""
    matched: Any = re.fullmatch(r"(.*?)(\d+(?:\.\d+)?(?:e-?\d+)?)?", cell, re.DOTALL)
    name, found = matched.groups()
    return name, float(found or 0)


def over_seeds(groups: Groups) -> str:
    """Mean ± standard deviation over the seeds of every method of every cell; another table of faces."""
    every = [record for found in groups.values() for record in found]
    metrics, more = shown_metrics([record["last"] for record in every])
    rows: list[list[str]] = []
    others = []
    for (cell, method), found in groups.items():
        first = next((its["untrained"] for its in every if its["cell"] == cell and its.get("untrained")), None)
        if first and cell not in (row[0] for row in rows):
            shown = [spread(values_of([first], one.key)) for one in metrics]
            rows.append([cell, UNTRAINED, "-", *shown, *["-" for _ in NORMS]])
        whole = [record["last"] for record in found if record["last"]]
        lost = [record for record in found if not record["last"]]
        why = "diverged" if all("diverged" in record for record in lost) else "without numbers"
        seeds = f"{len(whole)}" + (f" ({len(lost)} {why})" if lost else "")
        norms = [number(mean_of(whole, one.key)) for one in NORMS]
        rows.append([cell, method, seeds, *[spread(values_of(whole, one.key)) for one in metrics], *norms])
        others.append([cell, method, *[spread(values_of(whole, one.key)) for one in more]])
    head = ["cell", "method", "seeds", *[one.column for one in (*metrics, *NORMS)]]
    title = f"{tested_on(metrics, every)}, mean ± standard deviation over seeds"
    drawn = table(title, head, rows, words=2) + explained(metrics)
    if more:
        drawn += table(DETAILS, ["cell", "method", *[one.heading for one in more]], others, words=2) + explained(more)
    return drawn


def headline(records: Sequence[Record]) -> Metric | None:
    """The metric by which methods are compared; of an unknown task its first."""
    names = dict.fromkeys(name for record in records for name in record["last"])
    found = registry.headline(names)
    return registry.metric(found) if found else next(iter(shown_metrics([dict.fromkeys(names, 0.0)])[0]), None)


# ---------------------------------------------------------------- charts


def rates_chart(records: Sequence[Record], styles: Styles) -> str:
    """The headline by learning rate, a line a method, where its runs differ in nothing else."""
    metric = headline(records)
    lines: dict[str, list[Record]] = {}
    for record in records:
        lines.setdefault(labels.method_label(record["method"]), []).append(record)
    for its in lines.values():
        if len({tuple(labels.learned(record["recipe"], *RATES).items()) for record in its}) > 1:
            return ""
    return _rates_chart(metric, lines, styles)


def _rates_chart(metric: Metric | None, lines: Mapping[str, Sequence[Record]], styles: Styles) -> str:
    rates = {record_rate(record) for its in lines.values() for record in its if record["last"]}
    if metric is None or len(rates) < 2:
        return ""
    title = f"{metric.heading}, %, by learning rate: mean (line) and seeds (points)"
    words = "; ".join(f"{name} has at most {spread([_best(metric, its)])}" for name, its in lines.items())
    return titled(title, panel_svg(lambda panel: draw_rates(panel, lines, styles, metric.key), f"{title}: {words}"))


def _best(metric: Metric, records: Sequence[Record]) -> float:
    return max(values_of([record["last"] for record in records], metric.key), default=0.0)


def forests(records: Sequence[Record]) -> list[str]:
    """The headline of every method less the baseline: a row a cell, and the pooled mean."""
    metric = headline(records)
    if metric is None:
        return []
    found = all_differences(records, metric.key)
    cells = cells_in_order(records, found)
    drawn = []
    for its in found:
        ends = [f"{100 * end:+.1f}" for end in (its.low, its.high) if end is not None]
        interval = f", 95 % interval {' to '.join(ends)}" if ends else ""
        pairs = "one pair" if its.pairs == 1 else f"{its.pairs} pairs"
        title = f"{labels.method_label(its.method)}: {metric.heading} less the baseline, points"
        svg = panel_svg(
            partial(draw_forest, its=its, cells=cells),
            f"{title}: {100 * its.mean:+.1f}{interval} ({pairs})", (3.7, 1.0 + 0.22 * (len(cells) + 1)),
        )  # fmt: skip
        drawn.append(titled(title, svg))
    return drawn


def curves(groups: Groups, styles: Styles) -> str:
    """Per cell the course of evaluation, loss and norms, averaged over the seeds of a method."""
    tests = [test for found in groups.values() for record in found for test in record.get("tests") or ()]
    on_the_way = registry.headline({name for test in tests for name in test}, training=True)
    wanted: dict[str, tuple] = {}
    if on_the_way:
        where = "validation" if all("validation" in its for found in groups.values() for its in found) else "test"
        wanted[f"{registry.metric(on_the_way).heading} in {where}, %"] = (metric_curve, on_the_way)
    for name in ("loss", *registry.NORMS):
        wanted[registry.metric(name).heading] = (norm_curve, name)
    return _courses(groups, styles, wanted, "curves of {}, means over seeds")


def directions(groups: Groups, styles: Styles) -> str:
    """Per cell how far training images turned between snapshots, averaged over the seeds that recorded it."""
    wanted = {registry.metric(name).label: (turn_curve, name) for name in registry.TURNS}
    title = "directions of {}, means over the seeds that recorded them"
    return _courses(groups, styles, wanted, title) or note("No directions were recorded.")


def _courses(groups: Groups, styles: Styles, wanted: Mapping[str, tuple], heading: str) -> str:
    folds: list[str] = []
    for cell in dict.fromkeys(cell for cell, _ in groups):
        its = {labels.method_label(method): found for (where, method), found in groups.items() if where == cell}
        drawn = []
        for title, (curve, name) in wanted.items():
            lines = {method: mean_curve([curve(record, name) for record in found]) for method, found in its.items()}
            drawn.append(line_chart(title, lines, styles, name in registry.LOGARITHMIC))
        folds.append(folded(heading.format(cell), charts(*drawn), unfolded=not any(folds)))
    return "".join(folds)


# ---------------------------------------------------------------- tables


def differences_table(records: Sequence[Record]) -> str:
    """The pooled differences in points with their intervals."""
    rows = []
    metrics = registry.compared({name for record in records for name in record["last"]})
    for metric in metrics or filter(None, [headline(records)]):
        for method, than in compared_methods(records):
            one = pooled(records, metric.key, method, than)
            if one is not None:
                ends = ["-" if value is None else f"{100 * value:+.1f}" for value in (one.mean, one.low, one.high)]
                cells = f"{one.positive} of {len(one.cells)}"
                rows.append([f"{method} - {than}", metric.heading, *ends, cells, one.pairs])
    head = ["difference", "metric", "mean", "from", "to", "cells above 0", "pairs"]
    title = f"paired differences in points: mean over cells, {INTERVAL}"
    return table(title, head, rows, words=2) if rows else ""


def trials_part(trials: Sequence[Record], unfolded: bool) -> str:
    """Per cell the score by learning rate; then a table of all."""
    if not trials:
        return ""
    drawn: list[str] = []
    metric = headline(trials)
    for cell in dict.fromkeys(trial["cell"] for trial in trials):
        its = [trial for trial in trials if trial["cell"] == cell]
        recipes = [trial["recipe"] for trial in its]
        named = labels.labels(recipes, without=("rate", "seed", "loss", "data set"))
        styles = style.styles_of(named, recipes, one_loss=True)
        lines: dict[str, list[Record]] = {}
        for label, trial in zip(named, its, strict=True):
            lines.setdefault(label, []).append(trial)
        chart = _rates_chart(metric, lines, styles)
        drawn.append(folded(f"trials of {cell}", legend(styles) + charts(chart) if chart else "", not any(drawn)))
    fields = labels.fields_apart([trial["recipe"] for trial in trials])
    fields = {field: values for field, values in fields.items() if field != "claim"}
    metrics, _ = shown_metrics([trial["last"] for trial in trials])
    values = zip(*fields.values(), strict=True) if fields else [()] * len(trials)
    rows = []
    for trial, found in zip(trials, values, strict=True):
        shown = [one.shown(trial["last"].get(one.key)) for one in metrics]
        rows.append([trial["cell"], trial["method"], *shown, *found])
    head = ["cell", "method", *[one.heading for one in metrics], *fields]
    judged = " or ".join(dict.fromkeys(filter(None, (labels.held_out(trial["recipe"]) for trial in trials))))
    title = "tuning trials" + f", judged on {judged}" * bool(judged) + "; metrics in %"
    return folded(f"{len(trials)} tuning trials", "".join(drawn) + table(title, head, rows, words=2), unfolded)


def _recipes(groups: Groups) -> str:
    """The fields in which the methods' recipes differ, seeds apart."""
    fields = labels.fields_apart([found[0]["recipe"] for found in groups.values()])
    fields = {field: values for field, values in fields.items() if field not in ("seed", "claim")}
    if not fields:
        return ""
    rows = [[*key, *values] for key, values in zip(groups, zip(*fields.values(), strict=True), strict=True)]
    head = ["cell", "method", *fields]
    return table("fields in which the recipes differ", head, rows, words=len(head))
