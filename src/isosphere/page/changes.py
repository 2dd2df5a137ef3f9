"""What the constraint changed, in sentences made of recorded numbers."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from isosphere.figures import words
from isosphere.figures.words import arm_words
from isosphere.page.markup import number, percent
from isosphere.page.metrics import main_metrics
from isosphere.page.panels import turn_slopes
from isosphere.page.recipes import differing, learned
from isosphere.page.sources import Run


def comparisons(runs: Sequence[Run]) -> list[str]:
    """A sentence for each run whose recipe differs in the constraint alone from one without, else from the first.

    Where pairs differ in the same, of several seeds for instance, one more tells their mean.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.recipe:
            groups.setdefault(json.dumps(learned(run.recipe, "constraint."), sort_keys=True), []).append(run)
    said: list[str] = []
    pairs: dict[str, list[tuple[Run, Run]]] = {}
    for group in groups.values():
        base = next((run for run in group if unconstrained(run.recipe)), group[0])
        for run in group:
            if constraint_of(run.recipe) != constraint_of(base.recipe):
                told = _constraints(run.recipe, base.recipe)
                alone = f"{run.name} against {base.name}, differing in the constraint alone ({told})"
                said.append(f"{alone}: {_change(run, base)}.")
                pairs.setdefault(told, []).append((run, base))
    for told, its in pairs.items():
        means = changed_metrics(*(_means([pair[side].last for pair in its]) for side in (0, 1)))
        if len(its) > 1 and means:
            said.append(f"Mean of the {len(its)} pairs that differ so ({told}): {'; '.join(means)}.")
    if len(said) == 1:
        said.append("This is one seed, at one learning rate for both: others may say otherwise.")
    return said


def constraint_of(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe's constraint; of another version's, nothing."""
    found = recipe.get("constraint")
    return found if isinstance(found, dict) else {}


def unconstrained(recipe: dict[str, Any]) -> bool:
    """Whether norms are left alone, and the gradient too."""
    return words.arm({"constraint": constraint_of(recipe)}) == "none"


def _constraints(recipe: dict[str, Any], base: dict[str, Any]) -> str:
    """How a recipe's constraint differs from that of another."""
    fields = differing([base, recipe])
    told = [f"{field} {new}, not {old}" for field, (old, new) in fields.items() if field.startswith("constraint.")]
    return "; ".join(told)


def _change(run: Run, base: Run) -> str:
    """What was measured of both; turns at the same steps, and metrics at their last."""
    told = changed_metrics(run.last, base.last)
    steps = [[line["step"] for line in one.lines if line["kind"] == "test"][-1:] for one in (run, base)]
    if told and all(steps) and steps[0] != steps[1]:
        told.insert(0, f"evaluated in step {steps[0][0]}, not {steps[1][0]}")
    turns = [{(shot.since, shot.step): shot.angles for shot in one.snapshots} for one in (run, base)]
    both = [span for span in turns[0] if turns[0][span] is not None and turns[1].get(span) is not None]
    if both:
        since, step = both[-1]
        mine, theirs = (float(one[both[-1]].var()) for one in turns)
        told.append(f"variance of the turns {number(mine)} degrees², not {number(theirs)} (steps {since} to {step})")
    slopes = [dict(turn_slopes(one)) for one in (run, base)]
    steps = [step for step in slopes[0] if step in slopes[1]]
    if steps:
        mine, theirs = (number(one[steps[-1]]) for one in slopes)
        told.append(f"slope of log turn by log norm {mine}, not {theirs}")
    return "; ".join(told) or "nothing is measured of both"


def changed_metrics(mine: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """The main metrics of both in percent, and the spread of the norms evaluated, where both have it."""
    told = []
    for name, title in main_metrics([name for name in mine if name in theirs]).items():
        first, points = not told, 100 * (mine[name] - theirs[name])
        change = f"{points:+.1f}{' points' * first}"
        told.append(f"{title} {percent(mine[name])}{' %' * first}, not {percent(theirs[name])} ({change})")
    if "norm_cv" in mine and "norm_cv" in theirs:
        told.append(f"spread of the norms (c.v.) {number(mine['norm_cv'])}, not {number(theirs['norm_cv'])}")
    return told


# ---------------------------------------------------------------- arms of a table


def arm_changes(records: Sequence[dict[str, Any]], arms: Iterable[str]) -> list[str]:
    """A sentence for each arm with a constraint, over all its runs that differ from one without in that alone."""
    said = []
    for arm in arms:
        every = [
            (one, other)
            for one in records if one["arm"] == arm and one["last"] and not unconstrained(one["recipe"])
            for other in records if (other["cell"], other["seed"]) == (one["cell"], one["seed"])
            if other["last"] and unconstrained(other["recipe"])
        ]  # fmt: skip
        pairs = [pair for pair in every if not _other_settings(*pair)]
        told = changed_metrics(*(_means([pair[side]["last"] for pair in pairs]) for side in (0, 1)))
        if told:
            count = "one pair of runs" if len(pairs) == 1 else f"mean over {len(pairs)} pairs of runs"
            count += f" (of {len(every)})" * (len(pairs) < len(every))
            said.append(f"{arm_words(arm)} against no constraint, {count} that differ in it alone: ")
            said[-1] += "; ".join(told) + "."
        elif every and not pairs:
            fields = dict.fromkeys(field for pair in every for field in _other_settings(*pair))
            but = ", ".join(fields)
            said.append(f"{arm_words(arm)} against no constraint: their runs differ in {but} too, so nothing is said.")
    return said


def _other_settings(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The fields, of those that decide what is learned, in which two records differ beside the constraint."""
    mine, theirs = (learned(record["recipe"], "constraint.") for record in (one, other))
    return [field for field in mine | theirs if mine.get(field) != theirs.get(field)]


def _means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each number that all have."""
    shared = [name for name in (found[0] if found else {}) if all(name in one for one in found)]
    return {name: float(np.mean([one[name] for one in found])) for name in shared}
