"""The experiment on causes in Markdown: tables, and sentences whose words follow from the intervals."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from isosphere.metrics import registry
from isosphere.metrics.registry import NORM_CV, NORM_MEAN, TURN_MEAN
from isosphere.paper import causes as measured
from isosphere.paper.causes import PRIMARY, SECOND, Gap, at_best_rates, at_equal_loss, at_equal_rates, of
from isosphere.recipes import constraints, labels
from isosphere.recipes.constraints import BASELINE, METHODS
from isosphere.report.rates import by_loss
from isosphere.report.tables import spread
from isosphere.runs import Record

SEC, LOGS, DECOUPLED, SCALE, PLACEBO = (
    option().method
    for option in (
        constraints.SEC, constraints.LogNorms, constraints.DecoupledSEC, constraints.ScaleCourse,
        constraints.ShuffledPulls,
    )
)  # fmt: skip
CHECKS = {
    LOGS: (NORM_CV, SEC), DECOUPLED: (NORM_CV, SEC), SCALE: (NORM_MEAN, SEC), PLACEBO: (NORM_CV, BASELINE)
}  # fmt: skip
"""Whether a method did its one thing: a number of its norms, and the method whose it should be."""
CAUSES = {
    LOGS: ("even norms", ", as the paper says"),
    DECOUPLED: ("even norms and a smaller scale", ", without Adam's moments"),
    PLACEBO: ("dilution of the criterion's steps", ", without even norms"),
    SCALE: ("a smaller scale", ", which acts as a learning rate"),
}
"""What each method does of what SEC does, and what to add if it has SEC's effect."""
COMPARED = {"at equal rates": at_equal_rates, "at best rates": at_best_rates, "at equal training loss": at_equal_loss}
GAIN = ("SEC loses.", "No effect shows, so a method that equals SEC proves no cause.", "SEC gains.")
CURVE = (
    "SEC lies below the baseline's curve.",
    "SEC lies on the baseline's curve, as far as the interval shows: a rate, no method.",
    "SEC lies above the baseline's curve: a method, more than a rate.",
)
DEFINED = f"""All numbers are of held-out classes, in percent, and differences are in points. The best rate of a method
is chosen by {registry.metric(PRIMARY).heading} on the same classes, so values at best rates are optimistic, for all
alike. One at the edge of the rates that were run is marked: a better one may lie beyond. Intervals are Student's, over
seeds: of two seeds they are wide. One that holds zero shows no difference, and does not show that there is none.

**Equal rates.** The mean over the rates that both methods have, without those at which one diverged. A seed counts if
it has both methods at all of these.

**Equal training loss.** Each evaluation has the criterion's mean since the one before, on directions alone. Lines join
the evaluations of a run. A method's curve is the highest of its lines at each training loss, over all its rates. The
baseline's curve is made alike. The height of a method is its curve less the baseline's: a mean over the training losses
that both have, within a seed. On the curve a gain is that of a rate; above it, of a method.

**The figure.** Points are means over seeds. The gray band is the baseline's curve. The color is the net turn between
two snapshots of training images over the steps between them. The scale leaves out the first of each run, where the
statistics of batch norm are new. A few of the lowest points lie below a panel."""


def markdown(records: Sequence[Record]) -> str:
    """The part of the evidence on causes, from the runs of any number of its files."""
    found = [DEFINED]
    for its in by_loss(records).values():
        about = labels.about([record["recipe"] for record in its])
        found += [f"### {about}, {measured.start(its)}", counted(its), values(its), norms(its), "\n".join(checks(its))]
        found += [best(its), against(its), "\n".join(verdicts(its))]
    return "\n\n".join(filter(None, found))


def methods(records: Iterable[Record]) -> list[str]:
    """In the order of legends."""
    return sorted({record["method"] for record in records}, key=lambda name: (constraints.place(name), name))


def table(*rows: Sequence[str]) -> str:
    """A table, its first row the headings."""
    first, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, "|---" * len(rows[0]) + "|", *rest])


def counted(records: Sequence[Record]) -> str:
    """How many runs there are, and how many diverged."""
    seeds = sorted({record["seed"] for record in records})
    lost = [f"{METHODS[r['method']].label} at {labels.rate(r['recipe']):g}" for r in records if not r["last"]]
    steps = max((test["step"] for record in records for test in record.get("tests") or ()), default=0)
    said = f" ({', '.join(dict.fromkeys(lost))})" if lost else ""
    return f"{len(records)} runs of {steps:,} steps, {len(seeds)} {'seeds' if len(seeds) > 1 else 'seed'}; " + (
        f"{len(lost)} diverged{said}."
    )


def by_rate(records: Sequence[Record], title: str, shown: Callable[[list[Record]], str]) -> str:
    """A table of methods by learning rate, with what `shown` makes of the runs of a place."""
    every = measured.rates(records)
    rows = [[labels.method_label(m), *[shown(of(records, m, rate)) for rate in every]] for m in methods(records)]
    return table([title, *[f"rate {rate:g}" for rate in every]], *rows)


def values(records: Sequence[Record]) -> str:
    """The metrics of the last step, mean ± standard deviation over seeds."""
    found = [
        by_rate(records, f"{registry.metric(metric).heading}, last step", partial(_scored, metric))
        for metric in (PRIMARY, SECOND)
    ]
    return "\n\n".join(found)


def _scored(metric: str, records: list[Record]) -> str:
    found = list(measured.scores(records, metric).values())
    lost = len(records) - len(found)
    return spread(found) + f" ({len(found)} of {len(records)}, the others diverged)" * bool(lost) if records else "-"


def norms(records: Sequence[Record]) -> str:
    """Mean norm, coefficient of variation and turn per step at the end, as means over seeds."""
    return by_rate(records, "mean norm; its coefficient of variation; degrees per step", _norms)


def _norms(records: list[Record]) -> str:
    whole = [record for record in records if record["last"]]
    turns = [turn for record in whole for turn in (record.get("turns") or ())[-1:]]
    if not whole:
        return "-"
    turned = np.mean([its[TURN_MEAN] / (its["step"] - its["since"]) for its in turns]) if turns else np.nan
    return f"{_mean(whole, NORM_MEAN):.1f}; {_mean(whole, NORM_CV):.2f}; {turned:.2f}"


def _mean(records: list[Record], name: str) -> float:
    return float(np.mean([record["last"][name] for record in records if name in record["last"]] or [np.nan]))


def checks(records: Sequence[Record]) -> list[str]:
    """Whether each method did its one thing to the norms, as ratios over the rates."""
    found = []
    for method, (name, than) in CHECKS.items():
        ratios = [
            _mean(whole, name) / _mean(other, name)
            for rate in measured.rates(records)
            if (whole := _finished(records, method, rate)) and (other := _finished(records, than, rate))
        ]
        if ratios:
            what, ends = registry.metric(name).heading, f"{min(ratios):.2f} to {max(ratios):.2f}"
            label, other = METHODS[method].label, METHODS[than].label
            found.append(f"- With {label} the {what} is {ends} times that of {other} runs, by rate.")
    return found


def _finished(records: Sequence[Record], method: str, rate: float) -> list[Record]:
    return [record for record in of(records, method, rate) if record["last"]]


# ---------------------------------------------------------------- differences


def said(gap: Gap) -> str:
    """A difference with its interval."""
    if not gap.seeds:
        return "-"
    ends = "one seed" if gap.ends is None else f"{' to '.join(map(signed, gap.ends))}, {len(gap.seeds)} seeds"
    return f"{signed(gap.mean)} ({ends})"


def signed(points: float) -> str:
    """One decimal and the sign, of zero too, which has a plus."""
    return f"{round(points, 1) + 0.0:+.1f}"


def best(records: Sequence[Record]) -> str:
    """Each method at its own best rate, and its height above the baseline's curve."""
    rows = [[
        "method", "best rate", *[registry.metric(metric).heading for metric in (PRIMARY, SECOND)],
        "less the baseline", f"{registry.metric(SECOND).heading} less the baseline", "height", "at losses",
        f"best {registry.metric(PRIMARY).heading} of any step",
    ]]  # fmt: skip
    for method in methods(records):
        its = of(records, method)
        rate = measured.best_rate(its)
        if rate is None:
            rows.append([labels.method_label(method), "all diverged", *["-"] * 7])
            continue
        edge = " (edge)" if rate in (measured.rates(its)[0], measured.rates(its)[-1]) else ""
        shown = [spread(list(measured.scores(of(its, method, rate), metric).values())) for metric in (PRIMARY, SECOND)]
        gaps = ["-"] * 3
        if method != BASELINE:
            each = [at_best_rates(records, method, BASELINE, metric) for metric in (PRIMARY, SECOND)]
            gaps = list(map(said, [*each, at_equal_loss(records, method, BASELINE, PRIMARY)]))
        rows.append([labels.method_label(method), f"{rate:g}{edge}", *shown, *gaps, _range(records, method), _top(its)])
    return table(*rows)


def _range(records: Sequence[Record], method: str) -> str:
    """The training losses at which the curves of a method and the baseline both lie, over the seeds compared."""
    both, seeds = measured.shared(records, method, BASELINE)
    compared = [r for r in records if r["last"] and r["seed"] in seeds and labels.rate(r["recipe"]) in both]
    courses = [[measured.course(r, PRIMARY) for r in of(compared, name)] for name in (method, BASELINE)]
    ends = list(map(measured.span, courses))
    return f"{max(low for low, _ in ends):.2f} to {min(high for _, high in ends):.2f}" if seeds else "-"


def _top(records: Sequence[Record]) -> str:
    """The best evaluation of any rate and step, a mean over the seeds that have all rates."""
    tops: dict[int, list[float]] = {}
    for record in records:
        values = [value for _, value in measured.course(record, PRIMARY)]
        tops.setdefault(record["seed"], []).append(max(values, default=np.nan))
    whole = [max(found) for found in tops.values() if len(found) == len(measured.rates(records))]
    return spread(whole)


def against(records: Sequence[Record]) -> str:
    """SEC less every other method, compared in three ways."""
    rows = [["SEC less", *COMPARED]]
    for method in methods(records) if of(records, SEC) else ():
        if method != SEC:
            gaps = [compared(records, SEC, method, PRIMARY) for compared in COMPARED.values()]
            rows.append([labels.method_label(method), *map(said, gaps)])
    return table(*rows) if len(rows) > 1 else ""


def verdicts(records: Sequence[Record]) -> list[str]:
    """What these differences say: SEC's effect, and which method that does a part of it has the same effect."""
    found = []
    for where, compared in COMPARED.items():
        effect = compared(records, SEC, BASELINE, PRIMARY)
        words = outcome(effect, CURVE if compared is at_equal_loss else GAIN)
        line = f"- **{where.capitalize()}** SEC less the baseline is {said(effect)}. {words}"
        if effect.sign:
            gaps = {method: compared(records, SEC, method, PRIMARY) for method in methods(records) if method in CAUSES}
            line += "".join(f"\n  - {reading(method, gap, effect)}" for method, gap in gaps.items() if gap.seeds)
        found += [line] * bool(effect.seeds)
    return found


def outcome(effect: Gap, words: tuple[str, str, str]) -> str:
    """SEC's effect in words: those for below, holding or above zero."""
    return "One seed gives no verdict." if effect.sign is None else words[effect.sign + 1]


def reading(method: str, gap: Gap, effect: Gap) -> str:
    """Whether what a method does can be the cause of SEC's effect, from SEC less that method."""
    cause, more = CAUSES[method]
    fact = f"SEC less {METHODS[method].label} is {said(gap)}"
    if gap.sign is None:
        return f"{fact}: one seed gives no verdict."
    if gap.sign == 0:
        return f"{fact}, no difference shows: {cause} may explain the effect{more}."
    if gap.sign == effect.sign:
        return f"{fact}: the effect is not explained by {cause} alone."
    return f"{fact}: with {cause} alone the effect is larger."
