"""What distinguishes the recipes of runs, each in full with the reasons, and where the runs come from."""

from collections.abc import Sequence
from typing import Any

from isosphere.recipes import labels, options
from isosphere.report.page.markup import folded, note, section, table
from isosphere.runs import RunFolder

ORIGIN = ("started", "seconds", "hardware", "versions", "git", "command")


def recipes_section(runs: Sequence[RunFolder]) -> str:
    """The fields in which recipes differ, all fields of each, and where the runs come from."""
    runs = [run for run in runs if not run.watched]
    if not runs:
        return ""
    named = [run for run in runs if run.values]
    parts = []
    if len(named) > 1:
        rows = [[field, *values] for field, values in labels.fields_apart([run.values for run in named]).items()]
        head = ["field", *[run.name for run in named]]
        same = note("All recipes are the same.")
        parts.append(table("fields in which the recipes differ", head, rows, words=len(head)) if rows else same)
    parts += [folded(f"all of {run.name}'s recipe", _whole(run)) for run in named]
    rows = [[run.name, *[_text(run.about.get(name)) for name in ORIGIN]] for run in runs]
    origin = "where the runs come from"
    parts.append(folded(origin, table(origin, ["run", *ORIGIN], rows, words=1 + len(ORIGIN))))
    return section("recipes", "Recipes", *parts)


def _whole(run: RunFolder) -> str:
    if run.recipe is None:  # of another version: no reasons for its fields
        return table(f"recipe of {run.name}", ["field", "value"], list(labels.flat(run.values).items()), words=2)
    fields = options.describe(run.recipe)
    rows = [[field, value, " ".join(reason.split())] for field, _, value, reason in fields]
    return table(f"recipe of {run.name}", ["field", "value", "reason"], rows, words=3)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{key} {each}" for key, each in value.items() if each is not None)
    return "-" if value is None else str(value)
