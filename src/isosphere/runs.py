"""A run folder, read and checked; and what older versions of isosphere wrote, in today's words."""

import warnings
from typing import Any

from isosphere.recipes import options, schema

RENAMED = {"optimiser": "optimizer"}  # fields of a recipe
KINDS = {"Unlabelled": "Unlabeled"}  # values of `kind`


def recipe_of(values: dict[str, Any]) -> schema.Recipe:
    """The recipe in a JSON of any version."""
    return options.from_dict(schema.Recipe, translate_recipe(values))


def translate_recipe(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe's JSON of any version as today's."""
    return _renamed(values)


def translate_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """`{"optimiser.lr": ...}` in today's fields, with one warning for all old ones."""
    found, old = {}, []
    for path, value in changes.items():
        group, _, rest = path.partition(".")
        if group in RENAMED:
            old.append(path)
            path = f"{RENAMED[group]}.{rest}" if rest else RENAMED[group]
        found[path] = KINDS.get(value, value) if isinstance(value, str) else value
    if old:
        warnings.warn(f"{', '.join(old)}: an old spelling; write {RENAMED[old[0].split('.')[0]]}", stacklevel=2)
    return found


def _renamed(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    kept = {RENAMED.get(key, key): _renamed(value) for key, value in values.items()}
    return kept | {"kind": KINDS.get(kept["kind"], kept["kind"])} if "kind" in kept else kept
