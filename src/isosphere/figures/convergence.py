"""R@1 and the norms over the steps of training (Fig. 4 and 6)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isosphere.figures import style, words
from isosphere.figures.runs import Record, read_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[list[float], list[float]]  # steps and values


def metric_curve(record: Record, metric: str = "recall@1") -> Curve:
    """Steps and a metric in percent, at every evaluation that has it."""
    points = [(test["step"], 100 * test[metric]) for test in record.tests if metric in test]
    if not points:
        raise ValueError(f"{record.name} has no course of {metric}: draw it from its run folder, see --loop.eval_every")
    return [step for step, _ in points], [value for _, value in points]


def norm_curve(record: Record, which: str) -> Curve:
    """Steps and the `mean` or `variance` of the norms in a training batch."""
    if not record.norms:
        raise ValueError(f"{record.name} has no line with norms; --loop.log_every says how often to write one")
    column = {"mean": 1, "variance": 2}[which]
    return [row[0] for row in record.norms], [row[column] for row in record.norms]


def convergence(runs: list[Path], out: Path, metric: str = "recall@1") -> list[Path]:
    """Draw a metric over steps: a panel for each data set and learning rate, runs that differ in the seed alike."""
    records = read_all(runs)
    alone, groups = len({words.dataset(record.recipe) for record in records}) == 1, {}
    for record in records:
        place = f"learning rate {words.rate(record.recipe):g}"
        groups.setdefault(place if alone else f"{words.dataset(record.recipe)}, {place}", []).append(record)
    title = f"{words.metric(metric)} on test images during training\n{words.about([r.recipe for r in records])}"
    rows, columns = style.rows_of(len(groups), 3)
    with style.sheet(out, title, rows, columns, size=(5.0, 3.2), sharey="row") as (figure, panels):
        recipes = [record.recipe for record in records]
        labels = words.labels(recipes, without=("rate", "data", "seed"))
        looks = style.looks(labels, list(map(words.arm, recipes)), list(map(words.loss, recipes)))
        named = {id(record): label for record, label in zip(records, labels, strict=True)}
        for panel, (place, its) in zip(panels, groups.items(), strict=False):
            _draw(panel, its, named, looks, lambda record: metric_curve(record, metric), marker="o")
            panel.set_title(place)
        for panel in panels[::columns]:
            panel.set_ylabel(f"{words.metric(metric)} (%)")
        for panel in panels[len(groups) :]:
            panel.set_axis_off()
        style.legend_below(figure, panels)
    return style.files(out)


def constraints(runs: list[Path], out: Path, metric: str = "recall@1") -> list[Path]:
    """Draw a metric, and the mean and variance of the norms in a batch, over steps."""
    records = read_all(runs)
    recipes = [record.recipe for record in records]
    labels = words.labels(recipes, without=("seed",))
    looks = style.looks(labels, list(map(words.arm, recipes)), list(map(words.loss, recipes)))
    named = {id(record): label for record, label in zip(records, labels, strict=True)}
    title = f"Constraints on the norms during training\n{words.about(recipes)}"
    with style.sheet(out, title, columns=3, size=(4.0, 3.2)) as (figure, panels):
        drawn: list[tuple[str, Callable[[Record], Curve], str]] = [
            (f"{words.metric(metric)} on test images (%)", lambda record: metric_curve(record, metric), "o"),
            ("mean norm in a batch", lambda record: norm_curve(record, "mean"), ""),
            ("variance of the norms in a batch", lambda record: norm_curve(record, "variance"), ""),
        ]
        for panel, (what, curve, marker) in zip(panels, drawn, strict=True):
            _draw(panel, records, named, looks, curve, marker)
            panel.set_ylabel(what)
        panels[2].set_yscale("log")
        style.legend_below(figure, panels)
    return style.files(out)


def _draw(
    panel: "Axes",
    records: Sequence[Record],
    named: dict[int, str],
    looks: dict[str, tuple[str, str]],
    curve: Callable[[Record], Curve],
    marker: str,
) -> None:
    many = len(records) > len({named[id(record)] for record in records})  # seeds: thinner
    for record in records:
        label = named[id(record)]
        colour, line = looks[label]
        width = 1.0 if many else 1.6
        panel.plot(*curve(record), color=colour, linestyle=line, marker=marker, linewidth=width, label=label)
    panel.set_xlabel("training step")
