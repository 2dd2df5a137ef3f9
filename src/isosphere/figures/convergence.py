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
        hint = "draw it from its run folder" if record.folder is None else "no evaluation yet, see --loop.eval_every"
        if record.tests:
            had = ", ".join(name for name in record.tests[-1] if name not in ("step", "kind"))
            hint = f"it has {had}; choose one with --metric"
        raise ValueError(f"{record.folder or record.name} has no course of {metric}: {hint}")
    return [step for step, _ in points], [value for _, value in points]


def norm_curve(record: Record, which: str) -> Curve:
    """Steps and the `mean` or `variance` of the norms in a training batch."""
    if not record.norms:
        raise ValueError(f"{record.name} has no line with norms; --loop.log_every says how often to write one")
    column = {"mean": 1, "variance": 2}[which]
    return [row[0] for row in record.norms], [row[column] for row in record.norms]


def convergence(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric over steps: a panel for each data set, loss and learning rate, runs that differ in the seed alike.

    Where every constraint has a rate of its own, as after tuning, these share a panel and the labels tell the rates.
    Without a metric it is what is watched on the way.
    """
    records = read_all(runs)
    metric = metric or words.watched(test for record in records for test in record.tests)
    (curve,) = curves = [lambda record: metric_curve(record, metric)]
    records, left_out = _with_all(records, curves)
    groups, named, looks = _grouped(records)
    recipes = [record.recipe for record in records]
    title = f"{words.metric(metric)} on {words.tested(recipes)} during training\n{words.about(recipes)}{left_out}"
    rows, columns = style.rows_of(len(groups), 3)
    with style.sheet(out, title, rows, columns, size=(5.0, 3.2), sharey="row") as (figure, panels):
        for panel, (place, its) in zip(panels, groups.items(), strict=False):
            _draw(panel, its, named, looks, curve, marker="o")
            panel.set_title(place)
        for panel in panels[::columns]:
            panel.set_ylabel(f"{words.metric(metric)} (%)")
        for panel in panels[len(groups) :]:
            panel.set_axis_off()
        style.legend_below(figure, panels)
    return style.files(out)


def constraints(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric, and mean and variance of the batch's norms, over steps; a row where `convergence` has a panel."""
    records = read_all(runs)
    metric = metric or words.watched(test for record in records for test in record.tests)
    watched = f"{words.metric(metric)} on {words.tested(record.recipe for record in records)} (%)"
    drawn: dict[str, Callable[[Record], Curve]] = {
        watched: lambda record: metric_curve(record, metric),
        "mean norm in a batch": lambda record: norm_curve(record, "mean"),
        "variance of norms in a batch": lambda record: norm_curve(record, "variance"),
    }
    records, left_out = _with_all(records, list(drawn.values()))
    groups, named, looks = _grouped(records)
    title = f"Constraints on the norms during training\n{words.about([r.recipe for r in records])}{left_out}"
    with style.sheet(out, title, len(groups), 3, size=(4.0, 3.2)) as (figure, panels):
        for row, (place, its) in enumerate(groups.items()):
            line = panels[3 * row : 3 * row + 3]
            for panel, (what, curve) in zip(line, drawn.items(), strict=True):
                _draw(panel, its, named, looks, curve, "o" if panel is line[0] else "")
                panel.set_ylabel(what)
                panel.set_title(place)
            line[2].set_yscale("log")
        style.legend_below(figure, panels)
    return style.files(out)


def _with_all(records: Sequence[Record], curves: Sequence[Callable[[Record], Curve]]) -> tuple[list[Record], str]:
    """The runs that have all curves, and words for a title that count the others; where none has, why."""
    found, reasons = [], []
    for record in records:
        try:
            for curve in curves:
                curve(record)
            found.append(record)
        except ValueError as error:
            reasons.append(error)
    if not found:
        raise reasons[0]
    return found, f"; {len(reasons)} of {len(records)} runs have no course and are left out" if reasons else ""


def _grouped(records: Sequence[Record]) -> tuple[dict[str, list[Record]], dict[int, str], dict[str, tuple[str, str]]]:
    """Runs by what a panel's title tells, labels by the id of a run, and the look of each label."""
    recipes = [record.recipe for record in records]
    sets, losses = list(dict.fromkeys(map(words.dataset, recipes))), list(dict.fromkeys(map(words.loss, recipes)))
    kinds = [(words.dataset(recipe), words.loss(recipe), words.constraint(recipe)) for recipe in recipes]
    rates = list(map(words.rate, recipes))
    swept = len(set(rates)) == 1 or len(set(zip(kinds, rates, strict=True))) > len(set(kinds))
    groups: dict[tuple, list[Record]] = {}
    for record, (dataset, loss, _), rate in zip(records, kinds, rates, strict=True):
        groups.setdefault((sets.index(dataset), losses.index(loss), rate if swept else 0.0), []).append(record)
    titled: dict[str, list[Record]] = {}
    for (dataset, loss, rate), its in sorted(groups.items()):
        said = [sets[dataset]] * (len(sets) > 1) + [losses[loss]] * (len(losses) > 1)
        its.sort(key=lambda record: words.place(words.arm(record.recipe)))
        titled.setdefault(", ".join(said + [f"learning rate {rate:g}"] * swept), []).extend(its)
    labels = words.labels(recipes, without=("loss", "data set", "seed", *(["rate"] if swept else [])))
    looks = style.looks(labels, list(map(words.arm, recipes)), [""] * len(recipes))
    return titled, {id(record): label for record, label in zip(records, labels, strict=True)}, looks


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
        color, line = looks[label]
        width = 1.0 if many else 1.6
        panel.plot(*curve(record), color=color, linestyle=line, marker=marker, linewidth=width, label=label)
    panel.set_xlabel("training step")
