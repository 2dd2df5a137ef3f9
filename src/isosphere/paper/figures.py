"""The paper's own figures: sketches, feature maps, ablations with its numbers, trials of how methods are tuned."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from isosphere.errors import BadArgument
from isosphere.metrics import registry
from isosphere.metrics.registry import leading
from isosphere.paper import published
from isosphere.paper.published import Row
from isosphere.paper.tables import TUNINGS
from isosphere.recipes import constraints, labels
from isosphere.report import FIGURES as OURS
from isosphere.report import style
from isosphere.report.figure import Figure
from isosphere.report.rates import by_loss, log_ticks, means_and_seeds, points, record_rate
from isosphere.report.records import checked_metric, read_all
from isosphere.runs import Record

FIGURES = {
    "turn-sketch": Figure(
        "how far an update turns an embedding, by its norm (Fig. 2); needs no run", "isosphere.paper.sketches:turn"
    ),
    "sec-sketch": Figure("what SEC adds to an update (Fig. 3); needs no run", "isosphere.paper.sketches:sec"),
    "feature-maps": Figure(
        "the six strongest channels of the last layer (Fig. 8)", "isosphere.paper.feature_maps:feature_maps"
    ),
    "ablation": Figure("metrics against eta or rho (Tables 2, 8, 9)", "isosphere.paper.figures:ablation"),
    "trials": Figure(
        "what the trials scored on held-out training classes or images", "isosphere.paper.figures:trials"
    ),
    "causes": Figure(
        "R@1, or --metric, against the training loss; in color the turn", "isosphere.paper.causes_figure:causes"
    ),
}
ALL = OURS | FIGURES
"""Those of any run, and the paper's own."""
BASELINE, L2REG, PLAIN, EMA = published.ROWS
PRINTED: dict[str, tuple[tuple[str, ...], Mapping[float, Row] | Mapping[float | None, Row]]] = {
    PLAIN: (published.RETRIEVAL_METRICS["cars196"], published.SEC_ABLATION),
    L2REG: (published.L2REG_METRICS, published.L2REG_ABLATION),
    EMA: (published.RHO_METRICS, published.RHO_ABLATION),
}
"""Constraint -> metrics and what the paper printed by strength, for Cars196 and the triplet loss."""


def strength(record: Record) -> float:
    """What an ablation varies: rho of SEC-EMA, else eta."""
    return float(record["recipe"]["constraint"].get("rho" if _method(record) == EMA else "eta", 0))


def _method(record: Record) -> str:
    """The constraint, which in a table of strengths is not the name of the method."""
    return labels.method(record["recipe"])


def printed(method: str, metric: str) -> tuple[dict[float, float], float | None]:
    """The paper's numbers for a constraint by strength, and for none, in percent; empty where it has none."""
    names, rows = PRINTED.get(method, ((), {}))
    if metric not in names:
        return {}, None
    column = names.index(metric)
    values = {float(x or 0): row[column] for x, row in rows.items()}
    base = values.pop(0.0, None)
    return dict(sorted(values.items())), base


def ablation(runs: list[Path], out: Path, metrics: Sequence[str] = (leading("retrieval"), "nmi", "f1")) -> list[Path]:
    """Draw metrics against eta, or rho for SEC-EMA: a row for each constraint, no constraint as a level.

    The runs may differ in the constraint and the seed alone.
    """
    records = read_all(runs, finished=True)
    for metric in metrics:
        checked_metric(metric, (record["last"] for record in records))
    recipes = [record["recipe"] for record in records]
    weighted = {_method(one) for one in records if "eta" in one["recipe"]["constraint"]}
    swept = sorted(weighted - {BASELINE}, key=constraints.place)
    if not swept:
        raise BadArgument("runs", sorted(set(map(_method, records))), "runs with a constraint that has a strength")
    mixed = labels.differing(recipes, without=("rho", "seed"))
    if mixed:
        raise BadArgument("runs", f"runs that differ in {' and '.join(mixed)}", "runs that differ in the constraint")
    papers = {(labels.group(r, "data").get("name"), r["loss"]["kind"]) for r in recipes} == {("cars196", "Triplet")}
    title = f"Strength of the constraint\n{labels.about(recipes)}"
    with style.sheet(out, title, len(swept), len(metrics), size=(3.8, 2.9)) as (figure, panels):
        for number, panel in enumerate(panels):
            method, metric = swept[number // len(metrics)], metrics[number % len(metrics)]
            name, what = labels.method_label(method), "ρ" if method == EMA else "η"
            its = points((one for one in records if _method(one) == method), metric, strength)
            theirs, level = printed(method, metric) if papers else ({}, None)
            places = sorted(its.keys() | theirs.keys())  # drawn side by side: 0.9 and 1 would overlap on any scale
            ordered: dict[float, list[float]] = {places.index(x): values for x, values in its.items()}
            means_and_seeds(panel, ordered, style.METHOD_COLORS.get(method, style.BLACK), "-", name)
            for values in points((one for one in records if _method(one) == BASELINE), metric, strength).values():
                color, label = style.METHOD_COLORS[BASELINE], labels.method_label(BASELINE)
                panel.axhline(float(np.mean(values)), color=color, linestyle="--", label=label)
            if theirs:
                panel.plot(
                    [places.index(x) for x in theirs], list(theirs.values()), ":o",
                    color=style.GRAY, markerfacecolor="none", label="the paper's, BN-Inception",
                )  # fmt: skip
            if level is not None:
                words = "the paper's without constraint"
                panel.axhline(level, label=words, color=style.GRAY, linestyle=":", linewidth=1)
            panel.set_xticks(range(len(places)), [f"{place:g}" for place in places])
            panel.set_xlim(-0.4, len(places) - 0.6)
            panel.set_xlabel(f"{what} of {name}")
            panel.set_ylabel(registry.metric(metric).label)
        style.legend_below(figure, panels)
    return style.files(out)


def trials(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw what trials scored against the learning rate: a panel for each loss, a line for each strength of a method.

    Without a metric it is the one by which the best trial is chosen.
    """
    records = read_all(runs, "trials", finished=True)
    tested = [record for record in records if not labels.held_out(record["recipe"])]
    if tested:  # on whose test images nothing may be chosen
        raise BadArgument("runs", tested[0].get("name") or tested[0]["cell"], "trials, with data.held_out")
    judged = {TUNINGS[record["recipe"]["data"]["name"]].scores[0] for record in records}
    if not metric and len(judged) > 1:
        raise BadArgument("metric", metric, f"chosen, one of {', '.join(sorted(judged))}")
    metric = checked_metric(metric or judged.pop(), (record["last"] for record in records))
    groups = by_loss(records)
    title = f"Trials: {registry.metric(metric).heading} by learning rate, a star at the best of each constraint\n"
    title += labels.about([record["recipe"] for record in records])
    rows, columns = style.rows_of(len(groups), 4)
    with style.sheet(out, title, rows, columns, size=(3.6, 3.4), sharey="row") as (figure, panels):
        for panel, (name, its) in zip(panels, groups.items(), strict=False):
            for method in dict.fromkeys(map(_method, its)):
                own = [record for record in its if _method(record) == method]
                color = style.METHOD_COLORS.get(method, style.BLACK)
                kinds = sorted(set(map(_forces, own)))
                lengths, decays = ({kind[place] for kind in kinds} for place in (0, 2))
                for number, (length, eta, decay) in enumerate(kinds):
                    chosen = [record for record in own if _forces(record) == (length, eta, decay)]
                    signs = [f"η {eta:g}"] * (method != BASELINE)
                    signs += [f"weight decay {decay:.2g}"] * (len(decays) > 1 or method == BASELINE)
                    signs += [f"{length} {own[0]['recipe']['loop']['unit']}"] * (len(lengths) > 1)
                    label = ", ".join([labels.method_label(method), *signs])
                    line = style.LINES[number % len(style.LINES)]
                    means_and_seeds(panel, points(chosen, metric), color, line, label)
                best = max(own, key=lambda record: (_forces(record)[0], record["last"].get(metric, -1.0)))
                if metric in best["last"]:
                    place = record_rate(best), 100 * best["last"][metric]
                    panel.plot(*place, "*", color=color, markersize=11, markeredgecolor="white")
            log_ticks(panel, map(record_rate, its), "learning rate of the head")
            panel.set_title(name)
        for panel in panels[::columns]:
            panel.set_ylabel(registry.metric(metric).label)
        style.blank(panels[len(groups) :])
        style.legend_below(figure, panels)
    return style.files(out)


def _forces(record: Record) -> tuple[int, float, float]:
    """How long a trial is, and what is tuned besides the learning rate: eta, and weight decay."""
    recipe = record["recipe"]
    return recipe["loop"]["steps"], recipe["constraint"].get("eta", 0.0), recipe["optimizer"]["weight_decay"]
