"""Tuning trials of a results file: the score by learning rate, a line for each arm and strength, and their courses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isosphere.figures.words import constraint
from isosphere.page.changes import constraint_of
from isosphere.page.charts import Series, legend, line_chart
from isosphere.page.lines import numbers
from isosphere.page.markup import folded, number, percent, table
from isosphere.page.metrics import headlines
from isosphere.page.recipes import RATES, differing, learned
from isosphere.tables import WATCHED, columns, held_out

Records = Sequence[dict[str, Any]]


def trials_part(trials: Records, styles: Mapping[str, int], unfolded: bool) -> str:
    """Per cell the score by learning rate and what was watched on the way; then a table of all."""
    if not trials:
        return ""
    charts = []
    for cell in dict.fromkeys(trial["cell"] for trial in trials):
        drawn = _charts([trial for trial in trials if trial["cell"] == cell], styles)
        charts.append(folded(f"trials of {cell}", drawn, unfolded=not charts))
    fields = differing([trial["recipe"] for trial in trials])
    fields = {field: values for field, values in fields.items() if field not in ("claim",)}
    metrics = headlines(trials)
    values = zip(*fields.values(), strict=True) if fields else [()] * len(trials)
    rows = []
    for trial, found in zip(trials, values, strict=True):
        shown = [percent(trial["last"].get(name)) for name in metrics]
        rows.append([trial["cell"], trial["arm"], *shown, *found])
    head = ["cell", "arm", *metrics.values(), *fields]
    judged = " or ".join(dict.fromkeys(filter(None, (held_out(trial["recipe"]) for trial in trials))))
    told = "tuning trials" + f", judged on {judged}" * bool(judged) + "; metrics in %"
    return folded(f"{len(trials)} tuning trials", "".join(charts) + table(told, head, rows, words=2), unfolded)


def _charts(trials: Records, styles: Mapping[str, int]) -> str:
    """The headline by learning rate, and for every rate the course of what was watched."""
    lines, rates = _lines(trials), sorted({_rate(trial) for trial in trials} - {0.0})
    looks, counts = {}, dict.fromkeys(styles, 0)
    for name, its in lines.items():  # an arm's lines have its color
        looks[name] = styles[its[0]["arm"]] + 8 * counts[its[0]["arm"]]
        counts[its[0]["arm"]] += 1
    charts = []
    for metric, title in list(headlines(trials).items())[:1]:
        series = []
        for name, its in lines.items():
            scores = [(_rate(trial), trial["last"].get(metric)) for trial in its if _rate(trial)]
            series.append(Series(name, looks[name], _means(scores)))
        charts.append(line_chart(f"{title}, %, by learning rate", "learning rate of the head", series, log_x=True))
    watched = next((name for name in WATCHED for trial in trials for test in _tests(trial) if name in test), "")
    for rate in rates if watched else ():
        series = []
        for name, its in lines.items():
            tests = [test for trial in its if _rate(trial) == rate for test in _tests(trial)]
            series.append(Series(name, looks[name], _means([(test["step"], test.get(watched)) for test in tests])))
        title = f"{columns([{watched: 0.0}])[watched]} on the way, %, learning rate {number(rate)}"
        charts.append(line_chart(title, "step", series))
    return f'{legend(looks)}<div class="charts">{"".join(charts)}</div>' if any(charts) else ""


def _means(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """By x the mean in percent of all that have a value."""
    found: dict[float, list[float]] = {}
    for x, value in points:
        if value is not None:
            found.setdefault(x, []).append(100 * value)
    return [(x, float(np.mean(values))) for x, values in sorted(found.items())]


def _lines(trials: Records) -> dict[str, Records]:
    """The trials that differ in learning rate alone, by their constraint and what else parts them from others."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        groups.setdefault(str((trial["arm"], learned(trial["recipe"], *RATES))), []).append(trial)
    firsts = [its[0] for its in groups.values()]
    found: dict[str, Records] = {}
    for its in groups.values():
        alike = [one["recipe"] for one in firsts if one["arm"] == its[0]["arm"]]
        fields = differing([its[0]["recipe"], *alike])
        but = ("claim", "constraint.eta", *RATES)
        more = [f"{field} {values[0]}" for field, values in fields.items() if not field.startswith(but)]
        name = ", ".join([constraint({"constraint": constraint_of(its[0]["recipe"])}), *more])
        found[name if name not in found else f"{name} ({len(found) + 1})"] = its
    return found


def _rate(trial: dict[str, Any]) -> float:
    return max(0.0, numbers(trial["recipe"].get("optimizer")).get("lr", 0.0))


def _tests(trial: dict[str, Any]) -> Records:
    return trial.get("tests") or []
