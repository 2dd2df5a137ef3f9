"""Metrics of finished runs against what was varied: the learning rate, or a constraint's strength."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isosphere.metrics import registry
from isosphere.recipes import constraints, labels
from isosphere.report import style
from isosphere.report.records import checked_metric, read_all
from isosphere.runs import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = dict[float, list[float]]  # x -> a value in percent for each seed, in rising order of x


def record_rate(record: Record) -> float:
    """The learning rate of the head."""
    return labels.rate(record["recipe"])


def points(records: Iterable[Record], metric: str, by: Callable[[Record], float] = record_rate) -> Points:
    """A metric of runs in percent by what was varied; those that diverged have none."""
    found: Points = {}
    for record in records:
        if metric in record["last"]:
            found.setdefault(by(record), []).append(100 * record["last"][metric])
    return dict(sorted(found.items()))


def rates(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric against the learning rate of the head: a line for each constraint, the seeds as points.

    Without a metric it is the one by which the runs are judged.
    """
    records = read_all(runs, finished=True)
    metric = checked_metric(metric, (record["last"] for record in records))
    groups = by_loss(records)
    recipes = [record["recipe"] for record in records]
    found = labels.labels(recipes, without=("rate", "seed", "loss", "data set"))
    styles = style.styles_of(found, recipes, one_loss=True)
    named = {id(record): label for record, label in zip(records, found, strict=True)}
    title = f"{registry.metric(metric).heading} against the learning rate\n{labels.about(recipes)}"
    rows, columns = style.rows_of(len(groups), 3)
    with style.sheet(out, title, rows, columns, size=(5.6, 3.8)) as (figure, panels):
        for panel, (name, its) in zip(panels, groups.items(), strict=False):
            lines: dict[str, list[Record]] = {}
            for record in its:
                lines.setdefault(named[id(record)], []).append(record)
            draw_rates(panel, lines, styles, metric)
            panel.set_ylabel(f"{registry.metric(metric).label}: mean (line) and seeds (points)")
            if len(groups) > 1:
                panel.set_title(name)
        style.blank(panels[len(groups) :])
        style.legend_below(figure, panels)
    return style.files(out)


def draw_rates(
    panel: "Axes", lines: Mapping[str, Sequence[Record]], styles: Mapping[str, tuple[str, str]], metric: str
) -> None:
    """Lines of runs by learning rate; how many diverged stands in the legend."""
    for label, its in lines.items():
        diverged = sum(not record["last"] for record in its)
        means_and_seeds(panel, points(its, metric), *styles[label], label + f", {diverged} diverged" * bool(diverged))
    log_ticks(panel, [record_rate(record) for its in lines.values() for record in its], "learning rate of the head")


def means_and_seeds(panel: "Axes", its: Points, color: str, line: str, label: str) -> None:
    """A line through the means. Where there are several seeds, each is a small point.

    A mean alone is a dash. x is a learning rate, on a logarithmic axis, or an integer place.
    """
    many = any(len(values) > 1 for values in its.values())
    means = [float(np.mean(values)) for values in its.values()]
    places = list(its)
    if many and len(its) == 1:
        (x,), means = places, 2 * means
        places = [x - 0.1, x + 0.1] if isinstance(x, int) else [x / 1.04, x * 1.04]
    panel.plot(places, means, color=color, linestyle=line, marker="" if many else "o", label=label)
    if many:
        seeds = [(x, value) for x, values in its.items() for value in values]
        panel.plot(*zip(*seeds, strict=True), "o", color=color, markersize=4, alpha=0.6, markeredgewidth=0)


def by_loss(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Runs by loss and, where there are several, by data set; constraints in their usual order."""
    alone = len({labels.dataset(record["recipe"]) for record in records}) == 1
    groups: dict[str, list[Record]] = {}
    for record in records:
        loss = labels.loss(record["recipe"])
        groups.setdefault(loss if alone else f"{labels.dataset(record['recipe'])}, {loss}", []).append(record)
    for its in groups.values():
        its.sort(key=lambda record: constraints.place(labels.method(record["recipe"])))
    return groups


def log_ticks(panel: "Axes", places: Iterable[float], name: str) -> None:
    """A logarithmic axis with a tick at each place and nowhere else."""
    ticks = sorted({place for place in places if place > 0})
    panel.set_xscale("log")
    panel.set_xlim(min(ticks, default=1) / 1.25, max(ticks, default=1) * 1.25)
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=30 if len(ticks) > 4 else 0)
    panel.set_xticks([], minor=True)
    panel.set_xlabel(name)
