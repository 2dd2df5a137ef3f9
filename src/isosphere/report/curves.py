"""What was measured over the steps of training: a metric, and the norms (Fig. 4 and 6)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isosphere.errors import InputError, MissingPart, NotResults, Option
from isosphere.metrics import registry
from isosphere.recipes import constraints as known_constraints
from isosphere.recipes import labels
from isosphere.report import style
from isosphere.report.records import checked_metric, measured_on, read_all
from isosphere.runs import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[float, float]]  # step and value
Style = tuple[str, str]  # color and line


def metric_curve(record: Record, metric: str) -> Points:
    """A metric at every evaluation that has it, fractions in percent."""
    scale = 100 if registry.metric(metric).unit == "%" else 1
    return [(test["step"], scale * test[metric]) for test in record.get("tests") or () if metric in test]


def norm_curve(record: Record, name: str) -> Points:
    """`loss`, `norm_mean`, `norm_variance` or `norm_cv` of training batches."""
    rows = [(row[0], *row[1:4]) for row in record.get("norms") or () if row[3] is not None]
    if name == registry.NORM_CV:
        return [(step, variance**0.5 / mean) for step, _, mean, variance in rows if mean > 0]
    column = {"loss": 1, registry.NORM_MEAN: 2, registry.NORM_VARIANCE: 3}[name]
    return [(row[0], row[column]) for row in rows if row[column] is not None and np.isfinite(row[column])]


def turn_curve(record: Record, name: str) -> Points:
    """`turn_mean`, `turn_variance` or `turn_slope` of every snapshot that has it."""
    return [(turn["step"], turn[name]) for turn in record.get("turns") or () if turn.get(name) is not None]


def mean_curve(curves: Sequence[Points]) -> Points:
    """The mean over seeds, at the steps that most of them have."""
    found: dict[float, list[float]] = {}
    for step, value in (point for curve in curves for point in curve):
        found.setdefault(step, []).append(value)
    most = max(map(len, found.values()), default=0)
    return [(step, float(np.mean(values))) for step, values in sorted(found.items()) if len(values) == most]


def draw_curve(panel: "Axes", points: Points, own: Style, label: str, marker: str = "", width: float = 1.6) -> None:
    """A line over steps."""
    steps, values = zip(*points, strict=True) if points else ((), ())
    panel.plot(steps, values, color=own[0], linestyle=own[1], marker=marker, linewidth=width, label=label)


# ---------------------------------------------------------------- figures


def convergence(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric over steps: a panel for each data set, loss and learning rate. Seeds look alike.

    After tuning every constraint may have a rate of its own. Then these share a panel, and the labels have the rates.
    Without a metric it is the one that is measured on the way.
    """
    records = read_all(runs)
    metric = _checked(records, metric)
    records, left_out = _with_all(records, {metric: lambda record: metric_curve(record, metric)})
    groups, named, styles = _grouped(records)
    recipes, heading = [record["recipe"] for record in records], registry.metric(metric).heading
    title = f"{heading} on {measured_on(records)} during training\n{labels.about(recipes)}{left_out}"
    rows, columns = style.rows_of(len(groups), 3)
    with style.sheet(out, title, rows, columns, size=(5.0, 3.2), sharey="row") as (figure, panels):
        for panel, (place, its) in zip(panels, groups.items(), strict=False):
            _draw(panel, its, named, styles, lambda record: metric_curve(record, metric), marker="o")
            panel.set_title(place)
        for panel in panels[::columns]:
            panel.set_ylabel(registry.metric(metric).label)
        style.blank(panels[len(groups) :])
        style.legend_below(figure, panels)
    return style.files(out)


def constraints(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric, and mean and variance of the batch's norms, over steps. A row is a panel of `convergence`."""
    records = read_all(runs)
    metric = _checked(records, metric)
    on = f"{registry.metric(metric).heading} on {measured_on(records)} (%)"
    drawn: dict[str, Callable[[Record], Points]] = {
        on: lambda record: metric_curve(record, metric),
        "mean norm in a batch": lambda record: norm_curve(record, registry.NORM_MEAN),
        "variance of norms in a batch": lambda record: norm_curve(record, registry.NORM_VARIANCE),
    }
    records, left_out = _with_all(records, drawn)
    groups, named, styles = _grouped(records)
    about = labels.about([record["recipe"] for record in records])
    title = f"Constraints on the norms during training\n{about}{left_out}"
    with style.sheet(out, title, len(groups), 3, size=(4.0, 3.2)) as (figure, panels):
        for row, (place, its) in enumerate(groups.items()):
            line = panels[3 * row : 3 * row + 3]
            for panel, (what, curve) in zip(line, drawn.items(), strict=True):
                _draw(panel, its, named, styles, curve, "o" if panel is line[0] else "")
                panel.set_ylabel(what)
                panel.set_title(place)
            line[2].set_yscale("log")
        style.legend_below(figure, panels)
    return style.files(out)


def _checked(records: Sequence[Record], metric: str) -> str:
    """The metric to draw; where no run was evaluated on the way, why."""
    tests = [test for record in records for test in record.get("tests") or ()]
    if not tests:
        raise _missing(records[0], "course of a metric")
    return checked_metric(metric, tests, training=True)


def _missing(record: Record, part: str) -> InputError:
    """What to do about a run without a curve."""
    if "folder" not in record:
        return NotResults(record.get("name") or record["cell"], f"it has no {part}: draw it from its run folder")
    return MissingPart(record["folder"], part, (Option("loop.eval_every"), Option("loop.log_every")))


def _with_all(records: Sequence[Record], curves: dict[str, Callable[[Record], Points]]) -> tuple[list[Record], str]:
    """The runs that have all curves, and words for a title that count the others. If none has, the reason."""
    found = [record for record in records if all(curve(record) for curve in curves.values())]
    if not found:
        part = next(name for name, curve in curves.items() if not curve(records[0]))
        raise _missing(records[0], f"course of {part}")
    count = len(records) - len(found)
    return found, f"; {count} of {len(records)} runs have no course and are left out" if count else ""


def _grouped(records: Sequence[Record]) -> tuple[dict[str, list[Record]], dict[int, str], dict[str, Style]]:
    """Runs by the title of their panel, labels by a run's id, and the style of each label."""
    recipes = [record["recipe"] for record in records]
    sets, losses = list(dict.fromkeys(map(labels.dataset, recipes))), list(dict.fromkeys(map(labels.loss, recipes)))
    kinds = [(labels.dataset(recipe), labels.loss(recipe), labels.constraint(recipe)) for recipe in recipes]
    rates = list(map(labels.rate, recipes))
    swept = len(set(rates)) == 1 or len(set(zip(kinds, rates, strict=True))) > len(set(kinds))
    groups: dict[tuple, list[Record]] = {}
    for record, (dataset, loss, _), rate in zip(records, kinds, rates, strict=True):
        groups.setdefault((sets.index(dataset), losses.index(loss), rate if swept else 0.0), []).append(record)
    titled: dict[str, list[Record]] = {}
    for (dataset, loss, rate), its in sorted(groups.items()):
        said = [sets[dataset]] * (len(sets) > 1) + [losses[loss]] * (len(losses) > 1)
        its.sort(key=lambda record: known_constraints.place(labels.method(record["recipe"])))
        titled.setdefault(", ".join(said + [f"learning rate {rate:g}"] * swept), []).extend(its)
    found = labels.labels(recipes, without=("loss", "data set", "seed", *(["rate"] if swept else [])))
    named = {id(record): label for record, label in zip(records, found, strict=True)}
    return titled, named, style.styles_of(found, recipes, one_loss=True)


def _draw(
    panel: "Axes",
    records: Sequence[Record],
    named: dict[int, str],
    styles: dict[str, Style],
    curve: Callable[[Record], Points],
    marker: str,
) -> None:
    many = len(records) > len({named[id(record)] for record in records})  # seeds: thinner
    for record in records:
        label = named[id(record)]
        draw_curve(panel, curve(record), styles[label], label, marker, 1.0 if many else 1.6)
    panel.set_xlabel("training step")
