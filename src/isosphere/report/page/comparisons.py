"""What the constraint changed, in sentences made of recorded numbers."""

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from isosphere.metrics import registry
from isosphere.metrics.registry import NORM_CV
from isosphere.recipes import labels
from isosphere.recipes.constraints import BASELINE
from isosphere.report.page.markup import number, percent
from isosphere.report.turns import turn_slopes
from isosphere.runs import Record, RunFolder


def comparisons(runs: Sequence[RunFolder]) -> list[str]:
    """A sentence for each run against one without a constraint that is the same in all else, or against the first.

    Where pairs differ in the same, of several seeds for instance, one more has their mean.
    """
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        if run.values:
            learned = labels.learned(run.values, "constraint.")
            groups.setdefault(json.dumps(learned, sort_keys=True), []).append(run)
    said: list[str] = []
    pairs: dict[str, list[tuple[RunFolder, RunFolder]]] = {}
    for group in groups.values():
        base = next((run for run in group if labels.method(run.values) == BASELINE), group[0])
        for run in group:
            mine, theirs = (labels.group(one.values, "constraint") for one in (run, base))
            if mine != theirs:
                what = f"{labels.constraint(run.values)}, not {labels.constraint(base.values)}"
                alone = f"{run.name} against {base.name}, differing in the constraint alone ({what})"
                said.append(f"{alone}: {_change(run, base)}.")
                pairs.setdefault(what, []).append((run, base))
    for what, its in pairs.items():
        means = changed_metrics(*(_means([pair[side].last for pair in its]) for side in (0, 1)))
        if len(its) > 1 and means:
            said.append(f"Mean of the {len(its)} pairs that differ so ({what}): {'; '.join(means)}.")
    if len(said) == 1:
        said.append("This is one seed, at one learning rate for both: others may say something else.")
    return said


def _change(run: RunFolder, base: RunFolder) -> str:
    """What was measured of both; turns at the same steps, and metrics at their last."""
    said = changed_metrics(run.last, base.last)
    steps = [[line["step"] for line in one.of_kind("test")][-1:] for one in (run, base)]
    if said and all(steps) and steps[0] != steps[1]:
        said.insert(0, f"evaluated in step {steps[0][0]}, not {steps[1][0]}")
    turns = [
        {(shot.since, shot.step): shot.angles for shot in one.snapshots if shot.angles is not None}
        for one in (run, base)
    ]
    both = [span for span in turns[0] if span in turns[1]]
    if both:
        since, step = both[-1]
        mine, theirs = (float(one[both[-1]].var()) for one in turns)
        said.append(f"variance of the turns {number(mine)} degrees², not {number(theirs)} (steps {since} to {step})")
    slopes = [dict(turn_slopes(one)) for one in (run, base)]
    shared = [step for step in slopes[0] if step in slopes[1]]
    if shared:
        mine, theirs = (number(one[shared[-1]]) for one in slopes)
        said.append(f"slope of log turn by log norm {mine}, not {theirs}")
    return "; ".join(said) or "nothing is measured of both"


def changed_metrics(mine: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """The main metrics of both in percent, and the spread of the norms, where both have it."""
    said: list[str] = []
    for metric in registry.main([name for name in mine if name in theirs]):
        one, other = mine[metric.key], theirs[metric.key]
        change = f"{100 * (one - other):+.1f}{' points' * (not said)}"
        said.append(f"{metric.heading} {percent(one)}{' %' * (not said)}, not {percent(other)} ({change})")
    if NORM_CV in mine and NORM_CV in theirs:
        said.append(f"spread of the norms (c.v.) {number(mine[NORM_CV])}, not {number(theirs[NORM_CV])}")
    return said


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number that all have."""
    shared = [name for name in (found[0] if found else {}) if all(name in one for one in found)]
    return {name: float(np.mean([one[name] for one in found])) for name in shared}


# ---------------------------------------------------------------- methods of a table


def method_changes(records: Sequence[Record], methods: Iterable[str]) -> list[str]:
    """A sentence for each constraint over all runs that differ from one without in that alone."""
    said: list[str] = []
    whole = [record for record in records if record["last"]]
    plain = {(r["cell"], r["seed"]): r for r in whole if labels.method(r["recipe"]) == BASELINE}
    for method in methods:
        own = [one for one in whole if one["method"] == method and labels.method(one["recipe"]) != BASELINE]
        every = [(one, plain[one["cell"], one["seed"]]) for one in own if (one["cell"], one["seed"]) in plain]
        pairs = [pair for pair in every if not _other_settings(*pair)]
        found = changed_metrics(*(_means([pair[side]["last"] for pair in pairs]) for side in (0, 1)))
        against = f"{labels.method_label(method)} against the baseline"
        if found:
            count = "one pair of runs" if len(pairs) == 1 else f"mean over {len(pairs)} pairs of runs"
            count += f" (of {len(every)})" * (len(pairs) < len(every))
            said.append(f"{against}, {count} that differ in it alone: {'; '.join(found)}.")
        elif every and not pairs:
            fields = ", ".join(dict.fromkeys(field for pair in every for field in _other_settings(*pair)))
            said.append(f"{against}: their runs differ in {fields} too, so nothing is said.")
    return said


def _other_settings(one: Record, other: Record) -> list[str]:
    """The fields, of those that decide what is learned, in which two records differ besides the constraint."""
    mine, theirs = (labels.learned(record["recipe"], "constraint.") for record in (one, other))
    return [field for field in mine | theirs if mine.get(field) != theirs.get(field)]
