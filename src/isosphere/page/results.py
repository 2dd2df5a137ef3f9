"""The sections about a results file of `reproduce`: mean and spread over seeds, pooled differences, curves, recipes."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from isosphere.figures.words import arm_words
from isosphere.page.changes import arm_changes
from isosphere.page.charts import Series, interval_chart, legend, line_chart
from isosphere.page.courses import Records, Styles, curves, directions
from isosphere.page.lines import numbers
from isosphere.page.markup import folded, listed, note, number, section, table
from isosphere.page.metrics import ACCURACY, EXPLAINED, NORMS, headlines, metric_names, parted
from isosphere.page.recipes import RATES, differing, learned
from isosphere.page.sources import Results
from isosphere.page.trials import trials_part
from isosphere.paper.tables import printed
from isosphere.tables import INTERVAL, TELLS, Difference, compared, heading, paper_columns, pooled, spread


def results_section(results: Results, place: str, every: Styles) -> str:
    """Everything about one file, its arms in the styles that they have in every file."""
    parts = []
    if results.runs:
        styles, groups = {arm: every[arm] for arm in in_order(results.runs)}, grouped(results.runs)
        found = differences(results.runs, styles)
        parts += [listed(arm_changes(results.runs, styles)), over_seeds(groups), _legend(styles)]
        parts += ['<div class="charts">', rates_chart(groups, styles), means_chart(groups, styles)]
        parts += [*differences_charts(found, styles), "</div>", differences_table(found)]
        parts += [_printed(results.name, groups), curves(groups, styles), directions(groups, styles)]
        parts.append(_recipes(groups))
    else:
        parts.append(note("This file holds tuning trials only: no final run has been made yet."))
    parts.append(trials_part(results.trials, every, unfolded=not results.runs))
    parts.append(note("A results file keeps neither embeddings nor images: name run folders to see a gallery."))
    return section(place, f"Results of {results.name}", *parts)


def _legend(styles: Styles) -> str:
    return legend({arm_words(arm): style for arm, style in styles.items()})


def grouped(records: Records) -> dict[tuple[str, str], Records]:
    """The records of every (cell, arm); cells that end in a number in its order, arms as `in_order`."""
    arms, groups = in_order(records), {}
    for record in sorted(records, key=lambda record: (_natural(record["cell"]), arms.index(record["arm"]))):
        groups.setdefault((record["cell"], record["arm"]), []).append(record)
    return groups


def in_order(records: Records) -> list[str]:
    """The arms as they first appear, but no constraint before all."""
    return sorted(dict.fromkeys(record["arm"] for record in records), key=lambda arm: arm != "none")


def _natural(cell: str) -> tuple[str, float]:
    name, found = re.fullmatch(r"(.*?)(\d+(?:\.\d+)?(?:e-?\d+)?)?", cell, re.DOTALL).groups()
    return name, float(found or 0)


def over_seeds(groups: dict[tuple[str, str], Records]) -> str:
    """Mean ± standard deviation over the seeds of every arm of every cell; another table of faces."""
    metrics, more = parted(metric_names([record["last"] for found in groups.values() for record in found]))
    rows, others = [], []
    for (cell, arm), found in groups.items():
        whole = [record["last"] for record in found if record["last"]]
        lost = [record for record in found if not record["last"]]
        why = "diverged" if all("diverged" in record for record in lost) else "without numbers"
        diverged = f" ({len(lost)} {why})" if lost else ""
        shown = {name: spread([100 * last[name] for last in whole if name in last]) for name in (*metrics, *more)}
        norms = [_mean(whole, name) for name in NORMS]
        rows.append([cell, arm, f"{len(whole)}{diverged}", *[shown[name] for name in metrics], *norms])
        others.append([cell, arm, *[shown[name] for name in more]])
    head = ["cell", "arm", "seeds", *metrics.values(), *NORMS.values()]
    told = heading(metrics, [record for found in groups.values() for record in found])
    drawn = table(f"{told}, mean ± standard deviation over seeds", head, rows, words=2)
    drawn += note(ACCURACY) if "accuracy" in metrics else ""
    return drawn + (table(TELLS, ["cell", "arm", *more.values()], others, words=2) + note(EXPLAINED) if more else "")


def _mean(found: Sequence[dict[str, float]], name: str) -> str:
    values = [last[name] for last in found if name in last]
    return number(float(np.mean(values))) if values else "-"


def means_chart(groups: dict[tuple[str, str], Records], styles: Styles) -> str:
    """The headline of every arm by cell: its mean, and the least and greatest of its seeds."""
    metrics = headlines([record for found in groups.values() for record in found])
    if not metrics:
        return ""
    name, title = next(iter(metrics.items()))
    cells: dict[str, list] = {}
    for (cell, arm), found in groups.items():
        values = [100 * record["last"][name] for record in found if name in record["last"]]
        if values:
            bar = (arm_words(arm), styles[arm], float(np.mean(values)), min(values), max(values), spread(values))
            cells.setdefault(cell, []).append(bar)
    return interval_chart(f"{title}, %: mean, least and greatest of the seeds", list(cells.items()))


def rates_chart(groups: dict[tuple[str, str], Records], styles: Styles) -> str:
    """The headline of every arm by learning rate, where its cells differ in nothing else; seeds as a band."""
    metrics = headlines([record for found in groups.values() for record in found])
    if not metrics:
        return ""
    name, title = next(iter(metrics.items()))
    series = []
    for arm, style in styles.items():
        records = [record for (_, its), found in groups.items() if its == arm for record in found]
        if any(learned(record["recipe"], *RATES) != learned(records[0]["recipe"], *RATES) for record in records):
            return ""
        rates: dict[float, list[float]] = {}
        for record in records:
            rate = numbers(record["recipe"].get("optimizer")).get("lr", 0)
            if rate > 0 and name in record["last"]:
                rates.setdefault(rate, []).append(100 * record["last"][name])
        points = [(rate, float(np.mean(values))) for rate, values in sorted(rates.items())]
        band = [(rate, min(its), max(its)) for rate, its in sorted(rates.items())]
        series.append(Series(arm_words(arm), style, points, band))
    told = f"{title}, %, by learning rate: mean, least to greatest of the seeds"
    return line_chart(told, "learning rate of the head", series, log_x=True)


# ---------------------------------------------------------------- differences


def differences(records: Records, arms: Iterable[str]) -> dict[str, list[Difference]]:
    """By the metric's title, all arms less no constraint, and relative SEC less SEC, pooled over cells."""
    pairs = [(arm, "none") for arm in arms if arm != "none"]
    if {"sec", "sec-relative"} <= set(arms):
        pairs.append(("sec-relative", "sec"))
    found = {}
    metrics = compared({name for record in records for name in record["last"]}) or headlines(records)
    for metric, title in metrics.items():
        its = [pooled(list(records), metric, arm, than) for arm, than in pairs]
        found[title] = [one for one in its if one is not None]
    return found


def differences_table(found: dict[str, list[Difference]]) -> str:
    """The pooled differences in points with their intervals."""
    rows = [
        [f"{one.arm} - {one.than}", title,
         *["-" if v is None else f"{100 * v:+.1f}" for v in (one.mean, one.low, one.high)],
         f"{one.positive} of {len(one.cells)}", one.pairs]
        for title, its in found.items() for one in its
    ]  # fmt: skip
    head = ["difference", "metric", "mean", "from", "to", "cells above 0", "pairs"]
    told = f"paired differences in points: mean over cells, {INTERVAL}"
    return table(told, head, rows, words=2) if rows else ""


def differences_charts(found: dict[str, list[Difference]], styles: Styles) -> list[str]:
    """The same as intervals beside zero; how well the norm foretells errors by itself."""
    foretold = {title: its for title, its in found.items() if title.endswith("norm AUROC")}
    others = {title: its for title, its in found.items() if title not in foretold}
    return [_differences_chart(others, styles, ""), _differences_chart(foretold, styles, " of the norm's AUROC")]


def _differences_chart(found: dict[str, list[Difference]], styles: Styles, what: str) -> str:
    groups: dict[str, list] = {}
    for metric, its in found.items():
        for one in its:
            # Too few pairs have no interval: the point alone is drawn.
            mean, low, high = (100 * (one.mean if v is None else v) for v in (one.mean, one.low, one.high))
            place = f"{metric}, less {arm_words(one.than)}"
            count = "one pair" if one.pairs == 1 else f"{one.pairs} pairs"
            told = f"{mean:+.1f}" + f" ({count})" * (one.low is None)
            groups.setdefault(place, []).append((arm_words(one.arm), styles[one.arm], mean, low, high, told))
    known = any(one.low is not None for its in found.values() for one in its)
    title = f"differences{what} in points, pooled over cells" + ", 95 % intervals" * known
    return interval_chart(title, list(groups.items()), level=0.0)


# ---------------------------------------------------------------- recipes, and what the paper printed


def _recipes(groups: dict[tuple[str, str], Records]) -> str:
    """The fields in which the arms' recipes differ, seeds apart."""
    fields = differing([found[0]["recipe"] for found in groups.values()])
    fields = {field: values for field, values in fields.items() if field not in ("seed", "claim")}
    if not fields:
        return ""
    rows = [[*key, *values] for key, values in zip(groups, zip(*fields.values(), strict=True), strict=True)]
    head = ["cell", "arm", *fields]
    return table("fields in which the recipes differ", head, rows, words=len(head))


def _printed(name: str, groups: dict[tuple[str, str], Records]) -> str:
    """What the paper printed for these cells, if this is one of its tables."""
    folds = []
    for cell in dict.fromkeys(cell for cell, _ in groups):
        metrics, rows = printed(name.split("_")[0], cell)
        if rows:
            title = f"printed in the paper for {cell}, % (another protocol)"
            shown = [[arm, *[f"{value:.2f}" for value in values]] for arm, values in rows.items()]
            folds.append(folded(title, table(title, ["arm", *paper_columns(metrics)], shown)))
    return "".join(folds)
