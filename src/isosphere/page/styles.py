"""In which color, line and mark a run or an arm is drawn: a constraint has its color of the figures."""

from collections.abc import Sequence
from itertools import count

from isosphere.figures.words import arm
from isosphere.page.changes import constraint_of
from isosphere.page.recipes import learned
from isosphere.page.sources import Results, Run

ARM_STYLES = {
    "sec": 0, "none": 1, "sec-relative": 2, "sec-initial": 3, "l2reg": 4, "balanced": 5, "sec-ema": 22, "sec-fixed": 11,
}  # fmt: skip
"""Style -> color s0 to s7 of page.css, by its remainder: those of the figures' ARM_COLORS, dark or light enough.

What is beyond 7 has another mark than its like: SEC-EMA, near SEC in color, is not near it in shape."""


def run_styles(runs: Sequence[Run]) -> list[int]:
    """Those of the runs' constraints, where these part them, else by order."""
    return [ARM_STYLES[name] for name in _arms(runs)] if _parted(runs) else list(range(len(runs)))


def _arms(runs: Sequence[Run]) -> list[str]:
    return [arm({"constraint": constraint_of(run.recipe)}) if run.recipe else "" for run in runs]


def _parted(runs: Sequence[Run]) -> bool:
    """Whether every run has a known constraint, and no two the same."""
    return len(set(_arms(runs))) == len(runs) and all(name in ARM_STYLES for name in _arms(runs))


def arm_styles(runs: Sequence[Run], tables: Sequence[Results]) -> dict[str, int]:
    """A style for every arm, the same in all tables: its own, but where runs go by order that of a run with its recipe.

    An arm that has none gets one that nothing else has.
    """
    records = [record for results in tables for record in (*results.runs, *results.trials)]
    arms = list(dict.fromkeys(record["arm"] for record in records))
    taken = {run.style for run in runs}
    own = {name: ARM_STYLES[name] for name in arms if name in ARM_STYLES}
    styles = own if _parted(runs) else _of_runs(runs, records)
    free = (style for style in count() if style not in taken | set(styles.values()))
    others = sorted((name for name in arms if name not in styles), key=lambda name: name != "none")
    return styles | dict(zip(others, free, strict=False))


def _of_runs(runs: Sequence[Run], records: Sequence[dict]) -> dict[str, int]:
    """The arms of which there is a run, in its style."""
    apart = ("seed", "model.weights")  # where the weights lay may be left out of a table
    recipes = [learned(run.recipe, *apart) if run.recipe else None for run in runs]
    styles: dict[str, int] = {}
    for record in records:
        recipe = learned(record["recipe"], *apart)
        if recipe in recipes and (style := runs[recipes.index(recipe)].style) not in styles.values():
            styles.setdefault(record["arm"], style)
    return styles
