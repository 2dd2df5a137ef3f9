"""The course of the runs of a results file: what was watched, loss, norms, and how far directions turned."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from isosphere.figures.words import arm_words
from isosphere.page.charts import Series, line_chart
from isosphere.page.markup import folded, note
from isosphere.tables import WATCHED, columns

Records = Sequence[dict[str, Any]]
Styles = Mapping[str, int]  # of the arms, in their order
Course = Callable[[dict[str, Any]], list[tuple[float, float]]]  # of a record: (step, value)


def curves(groups: dict[tuple[str, str], Records], styles: Styles) -> str:
    """Per cell the course of what is watched, loss and norms, averaged over the seeds of an arm."""
    folds = []
    for cell in dict.fromkeys(cell for cell, _ in groups):
        its = {arm: found for (where, arm), found in groups.items() if where == cell}
        titles = columns([dict.fromkeys(WATCHED, 0.0)])
        watched = (_chart(f"{titles[name]} in test, %", its, styles, partial(_tested, name)) for name in WATCHED)
        charts = [
            next(filter(None, watched), ""),
            _chart("training loss", its, styles, partial(_trained, 1)),
            _chart("mean norm", its, styles, partial(_trained, 2), log=True),
            _chart("variance of the norms", its, styles, partial(_trained, 3), log=True),
            _chart("coefficient of variation of the norms", its, styles, _variation),
        ]
        drawn = "".join(charts)
        if drawn:
            title = f"curves of {cell}, means over seeds"
            folds.append(folded(title, f'<div class="charts">{drawn}</div>', unfolded=not folds))
    return "".join(folds)


def directions(groups: dict[tuple[str, str], Records], styles: Styles) -> str:
    """Per cell how far training images turned between snapshots, averaged over the seeds of an arm that tell it."""
    folds = []
    for cell in dict.fromkeys(cell for cell, _ in groups):
        its = {arm: found for (where, arm), found in groups.items() if where == cell}
        told = {
            "turn_mean": "mean turn since the snapshot before, degrees",
            "turn_variance": "variance of the turns, degrees²",
            "turn_slope": "slope of log turn by log norm",
        }
        charts = [
            _chart(title, its, styles, partial(_turned, name), log=name == "turn_variance", x_name="until step")
            for name, title in told.items()
        ]
        if any(charts):
            title = f"directions of {cell}, means over the seeds that recorded them"
            folds.append(folded(title, f'<div class="charts">{"".join(charts)}</div>', unfolded=not folds))
    return "".join(folds) or note("No directions recorded: there is nothing to tell of how far embeddings turn.")


def _turned(name: str, record: dict[str, Any]) -> list[tuple[float, float]]:
    return [(turn["step"], turn[name]) for turn in record["turns"] if turn.get(name) is not None]


def _tested(metric: str, record: dict[str, Any]) -> list[tuple[float, float]]:
    return [(test["step"], 100 * test[metric]) for test in record["tests"] if metric in test]


def _trained(column: int, record: dict[str, Any]) -> list[tuple[float, float]]:
    return [(line[0], line[column]) for line in record["norms"]]


def _variation(record: dict[str, Any]) -> list[tuple[float, float]]:
    return [(step, variance**0.5 / mean) for step, _, mean, variance in record["norms"] if mean > 0]


def _chart(
    title: str, arms: dict[str, Records], styles: Styles, course: Course, log: bool = False, x_name: str = "step"
) -> str:
    series = []
    for arm, found in arms.items():
        seeds: dict[float, list[float]] = {}
        for record in found:
            try:
                points = course(record)
            except (KeyError, ValueError, TypeError):  # not recorded in this file
                continue
            for step, value in points:
                seeds.setdefault(step, []).append(value)
        most = max(map(len, seeds.values()), default=0)
        points = [(step, float(np.mean(v))) for step, v in sorted(seeds.items()) if len(v) == most]
        series.append(Series(arm_words(arm), styles[arm], points))
    return line_chart(title, x_name, series, log)
