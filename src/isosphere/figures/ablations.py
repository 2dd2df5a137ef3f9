"""Metrics against a constraint's strength (Tables 2, 8, 9) and against the learning rate, from finished runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isosphere.figures import style, words
from isosphere.figures.runs import Record, read_all
from isosphere.paper import published
from isosphere.paper.tables import TUNINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = dict[float, list[float]]  # x -> a value in percent for each seed, in rising order of x

PRINTED = {
    "sec": (published.RETRIEVAL_METRICS["cars196"], published.SEC_ABLATION),
    "l2reg": (published.L2REG_METRICS, published.L2REG_ABLATION),
    "sec-ema": (published.RHO_METRICS, published.RHO_ABLATION),
}
"""Constraint -> metrics and what the paper printed by strength, for Cars196 and the triplet loss."""


def strength(record: Record) -> float:
    """What an ablation varies: rho of SEC-EMA, else eta."""
    return float(record.recipe["constraint"]["rho" if words.arm(record.recipe) == "sec-ema" else "eta"])


def points(records: Iterable[Record], metric: str, by: str = "strength") -> Points:
    """A metric of runs in percent by their `strength` or learning `rate`; those that diverged have none."""
    found: Points = {}
    for record in records:
        if metric in record.last:
            x = strength(record) if by == "strength" else words.rate(record.recipe)
            found.setdefault(x, []).append(100 * record.last[metric])
    return dict(sorted(found.items()))


def printed(arm: str, metric: str) -> tuple[dict[float, float], float | None]:
    """The paper's numbers for a constraint by strength, and for none, in percent; empty where it has none."""
    names, rows = PRINTED.get(arm, ((), {}))
    if metric not in names:
        return {}, None
    column = names.index(metric)
    values = {float(x or 0): row[column] for x, row in rows.items()}
    base = values.pop(0.0, None)
    return dict(sorted(values.items())), base


def ablation(runs: list[Path], out: Path, metrics: Sequence[str] = ("recall@1", "nmi", "f1")) -> list[Path]:
    """Draw metrics against eta, or rho for SEC-EMA: a row for each constraint, no constraint as a level.

    The runs may differ in the constraint and the seed alone.
    """
    records = read_all(runs, finished=True)
    _check(records, metrics)
    swept = sorted({words.arm(record.recipe) for record in records} - {"none", "balanced"}, key=words.place)
    if not swept:
        raise ValueError("an ablation needs runs with a constraint, such as those of `isosphere reproduce table2`")
    mixed = words.differing([record.recipe for record in records], without=("rho", "seed"))
    if mixed:
        raise ValueError(f"an ablation varies the constraint alone, but these runs differ in {' and '.join(mixed)}")
    papers = {(r.recipe["data"].get("name"), r.recipe["loss"]["kind"]) for r in records} == {("cars196", "Triplet")}
    title = f"Strength of the constraint\n{words.about([record.recipe for record in records])}"
    with style.sheet(out, title, len(swept), len(metrics), size=(3.8, 2.9)) as (figure, panels):
        for number, panel in enumerate(panels):
            arm, metric = swept[number // len(metrics)], metrics[number % len(metrics)]
            name, what = words.arm_words(arm), "ρ" if arm == "sec-ema" else "η"
            its = points((r for r in records if words.arm(r.recipe) == arm), metric)
            theirs, level = printed(arm, metric) if papers else ({}, None)
            places = sorted(its.keys() | theirs.keys())  # drawn side by side: 0.9 and 1 would overlap on any scale
            beside = {places.index(x): values for x, values in its.items()}
            means_and_seeds(panel, beside, style.ARM_COLORS.get(arm, style.BLACK), "-", name)
            base = points((r for r in records if words.arm(r.recipe) == "none"), metric)
            for values in base.values():
                panel.axhline(
                    np.mean(values), color=style.ARM_COLORS["none"], linestyle="--", label=words.arm_words("none")
                )
            if theirs:
                look = {"color": style.GRAY, "markerfacecolor": "none", "label": "the paper's, BN-Inception"}
                panel.plot([places.index(x) for x in theirs], list(theirs.values()), ":o", **look)
                panel.axhline(
                    level, color=style.GRAY, linestyle=":", linewidth=1, label="the paper's without constraint"
                )
            panel.set_xticks(range(len(places)), [f"{place:g}" for place in places])
            panel.set_xlim(-0.4, len(places) - 0.6)
            panel.set_xlabel(f"{what} of {name}")
            panel.set_ylabel(f"{words.metric(metric)} (%)")
        style.legend_below(figure, panels)
    return style.files(out)


def rates(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric against the learning rate of the head: a line for each constraint, the seeds as points.

    Without a metric it is the one by which the runs are judged.
    """
    records = read_all(runs, finished=True)
    metric = metric or words.headline(record.last for record in records)
    _check(records, [metric])
    groups = _grouped(records)
    recipes = [record.recipe for record in records]
    labels = words.labels(recipes, without=("rate", "seed", "loss", "data set"))
    looks = style.looks(labels, list(map(words.arm, recipes)), [""] * len(recipes))  # a loss has its own panel
    named = {id(record): label for record, label in zip(records, labels, strict=True)}
    title = f"{words.metric(metric)} against the learning rate\n{words.about(recipes)}"
    rows, columns = style.rows_of(len(groups), 3)
    with style.sheet(out, title, rows, columns, size=(5.6, 3.8)) as (figure, panels):
        for panel, (name, its) in zip(panels, groups.items(), strict=False):
            for label in dict.fromkeys(named[id(record)] for record in its):
                chosen = [record for record in its if named[id(record)] == label]
                diverged = sum(not record.last for record in chosen)
                told = f"{label}, {diverged} diverged" if diverged else label
                means_and_seeds(panel, points(chosen, metric, "rate"), *looks[label], told)
            _marked(panel, {words.rate(record.recipe) for record in its}, "learning rate of the head")
            panel.set_ylabel(f"{words.metric(metric)} (%): mean (line) and seeds (points)")
            if len(groups) > 1:
                panel.set_title(name)
        for panel in panels[len(groups) :]:
            panel.set_axis_off()
        style.legend_below(figure, panels)
    return style.files(out)


def trials(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw what trials scored against the learning rate: a panel for each loss, a line for each strength of an arm.

    Without a metric it is the one by which the best trial is chosen.
    """
    records = read_all(runs, "trials", finished=True)
    for record in records:
        if not record.recipe["data"].get("held_out"):
            told = "is no trial: it was measured on test images, on which nothing may be chosen"
            raise ValueError(f"{record.name} {told}; a trial has data.held_out")
    scores = {TUNINGS[record.recipe["data"]["name"]].scores[0] for record in records}
    if not metric and len(scores) > 1:
        raise ValueError(f"these trials are judged by {' and '.join(sorted(scores))}: choose one with --metric")
    metric = metric or scores.pop()
    _check(records, [metric])
    groups = _grouped(records)
    title = f"Trials: {words.metric(metric)} by learning rate, a star at the best of each constraint\n"
    title += words.about([record.recipe for record in records])
    rows, columns = style.rows_of(len(groups), 4)
    with style.sheet(out, title, rows, columns, size=(3.6, 3.4), sharey="row") as (figure, panels):
        for panel, (name, its) in zip(panels, groups.items(), strict=False):
            for arm in dict.fromkeys(words.arm(record.recipe) for record in its):
                own = [record for record in its if words.arm(record.recipe) == arm]
                color = style.ARM_COLORS.get(arm, style.BLACK)
                kinds = sorted(set(map(_forces, own)))
                lengths, decays = ({kind[place] for kind in kinds} for place in (0, 2))
                for number, (length, eta, decay) in enumerate(kinds):
                    chosen = [record for record in own if _forces(record) == (length, eta, decay)]
                    signs = [f"η {eta:g}"] * (arm != "none")
                    signs += [f"weight decay {decay:.2g}"] * (len(decays) > 1 or arm == "none")
                    signs += [f"{length} {own[0].recipe['loop']['unit']}"] * (len(lengths) > 1)
                    told = ", ".join([words.arm_words(arm), *signs])
                    line = style.LINES[number % len(style.LINES)]
                    means_and_seeds(panel, points(chosen, metric, "rate"), color, line, told)
                best = max(own, key=lambda record: (_forces(record)[0], record.last.get(metric, -1.0)))
                if metric in best.last:
                    place = words.rate(best.recipe), 100 * best.last[metric]
                    panel.plot(*place, "*", color=color, markersize=11, markeredgecolor="white")
            _marked(panel, {words.rate(record.recipe) for record in its}, "learning rate of the head")
            panel.set_title(name)
        for panel in panels[::columns]:
            panel.set_ylabel(f"{words.metric(metric)} (%)")
        for panel in panels[len(groups) :]:
            panel.set_axis_off()
        style.legend_below(figure, panels)
    return style.files(out)


def _forces(record: Record) -> tuple[int, float, float]:
    """How long a trial is, and what is tuned beside the learning rate: eta, and weight decay."""
    recipe = record.recipe
    return recipe["loop"]["steps"], recipe["constraint"].get("eta", 0.0), recipe["optimizer"]["weight_decay"]


def means_and_seeds(panel: "Axes", its: Points, color: str, line: str, label: str) -> None:
    """A line through the means; where there are several seeds, each as a small point.

    A mean alone is a dash: x is a learning rate, on a logarithmic axis, or an integer place.
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


def _check(records: Sequence[Record], metrics: Sequence[str]) -> None:
    """Refuse runs of which none has one of the metrics; those that diverged have none."""
    for metric in metrics:
        if not any(metric in record.last for record in records):
            known = ", ".join(max((record.last for record in records), key=len))
            known = f"{known}; choose with --metric{'s' * (len(metrics) > 1)}" if known else ""
            raise ValueError(f"no run has {metric}; they have {known or 'none at all: they diverged'}")


def _grouped(records: Sequence[Record]) -> dict[str, list[Record]]:
    """By loss and, where there are several, by data set; constraints in their usual order."""
    alone = len({words.dataset(record.recipe) for record in records}) == 1
    groups: dict[str, list[Record]] = {}
    for record in records:
        loss = words.loss(record.recipe)
        groups.setdefault(loss if alone else f"{words.dataset(record.recipe)}, {loss}", []).append(record)
    return {name: sorted(its, key=lambda record: words.place(words.arm(record.recipe))) for name, its in groups.items()}


def _marked(panel: "Axes", places: Iterable[float], name: str) -> None:
    """A logarithmic axis with a tick at each place and nowhere else."""
    ticks = sorted(place for place in places if place > 0)
    panel.set_xscale("log")
    panel.set_xlim(min(ticks, default=1) / 1.25, max(ticks, default=1) * 1.25)
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=30 if len(ticks) > 4 else 0)
    panel.set_xticks([], minor=True)
    panel.set_xlabel(name)
