"""What distinguishes the recipes of runs, each in full with the reasons, and where the runs come from."""

from collections.abc import Sequence
from typing import Any

from isosphere.page.markup import folded, note, section, table
from isosphere.page.sources import Run
from isosphere.recipes import options, schema

ORIGIN = ("started", "seconds", "hardware", "versions", "git", "command")
FREE = ("claim", "data.pack", "data.pairs_root", "data.download") + tuple(
    f"loop.{name}"
    for name in (
        "eval_every", "save_every", "log_every", "workers", "tensorboard", "snapshot_every", "snapshot_images",
        "save_embeddings", "compile",
    )  # fmt: skip
)
"""Fields that say where files are and how often something is written: they do not change what is learned."""

RATES = ("seed", "optimizer.lr", "optimizer.backbone_lr", "optimizer.class_lr")  # in which trials of one line differ


def differing(recipes: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The fields in which any recipe differs from the first, and their values in all of them."""
    fields = dict.fromkeys(key for other in recipes[1:] for key in options.differences(recipes[0], other))
    return {field: [value_of(recipe, field) for recipe in recipes] for field in fields}


def value_of(recipe: dict[str, Any], field: str) -> str:
    """The value at "group.field" as text in six digits, a dash where the recipe has no such field."""
    node: Any = recipe
    for part in field.split("."):
        node = node.get(part, "-") if isinstance(node, dict) else "-"
    return "none" if node is None else str(float(f"{node:.6g}") if isinstance(node, float) else node)


def learned(recipe: dict[str, Any], *but: str) -> dict[str, str]:
    """The fields, with their values, that decide what is learned, but for those that begin so."""
    data = recipe.get("data")
    named = isinstance(data, dict) and "name" in data  # a benchmark is the same wherever it is
    skipped = FREE + but + (("data.root",) if named else ())
    return {field: value_of(recipe, field) for field in fields_of(recipe) if not field.startswith(skipped)}


def recipes_section(runs: Sequence[Run]) -> str:
    """What distinguishes the recipes, each in full with the reasons, and where the runs come from."""
    runs = [run for run in runs if not run.watched]
    if not runs:
        return ""
    named = [run for run in runs if run.recipe]
    parts = []
    if len(named) > 1:
        fields = differing([run.recipe for run in named])
        rows = [[field, *values] for field, values in fields.items()]
        head = ["field", *[run.name for run in named]]
        same = note("All recipes are the same.")
        parts.append(table("fields in which the recipes differ", head, rows, words=len(head)) if rows else same)
    parts += [folded(f"all of {run.name}'s recipe", _whole(run)) for run in named]
    head = ["run", *ORIGIN]
    rows = [[run.name, *_origin(run.about)] for run in runs]
    parts.append(folded("where the runs come from", table("where the runs come from", head, rows, words=len(head))))
    return section("recipes", "Recipes", *parts)


def _whole(run: Run) -> str:
    try:
        recipe = options.from_dict(schema.Recipe, run.recipe)
    except ValueError:  # of another version: no reasons for its fields
        rows = [[field, value_of(run.recipe, field)] for field in fields_of(run.recipe)]
        return table(f"recipe of {run.name}", ["field", "value"], rows, words=2)
    rows = [[field, value, " ".join(reason.split())] for field, _, value, reason in options.describe(recipe)]
    return table(f"recipe of {run.name}", ["field", "value", "reason"], rows, words=3)


def fields_of(recipe: dict[str, Any], prefix: str = "") -> list[str]:
    """The names of all fields, as "group.field"."""
    found = []
    for name, value in recipe.items():
        found += fields_of(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return found


def _origin(about: dict[str, Any]) -> list[str]:
    found = []
    for name in ORIGIN:
        value = about.get(name)
        if isinstance(value, dict):
            value = ", ".join(f"{key} {each}" for key, each in value.items() if each is not None)
        found.append("-" if value is None else str(value))
    return found
