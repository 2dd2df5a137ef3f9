"""Whether two recipes learn the same and are measured the same, wherever their files are. A short name for that."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from isosphere.recipes import options
from isosphere.recipes.fields import FREE
from isosphere.recipes.schema import Recipe

NAMED = [("model", "weights"), ("data", "split"), ("data", "exclude"), ("data", "probes"), ("data", "distractors")]
"""Files that count by their names."""


def alike(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes train and are measured the same, wherever their files are. Files in `NAMED` count by name."""
    return not changes(one, other)


def changes(one: Recipe, other: Recipe) -> dict[str, tuple[object, object]]:
    """The fields in which two recipes are not alike, with both values."""
    one, other = settled(one, other), settled(other, one)
    found = {key: values for key, values in options.differences(one, other).items() if key not in FREE}
    names = zip(NAMED, _names(one), _names(other), strict=True)
    return found | {".".join(field): (first, second) for field, first, second in names if first != second}


def settled(recipe: Recipe, begun: Recipe) -> Recipe:
    """The recipe with what the same run found out as it began, where it says nothing: the interpolation."""
    data, found = recipe.data, begun.data.interpolation
    if found is None or data.interpolation is not None or "interpolation" not in vars(data):
        return recipe
    known: Any = data
    return replace(recipe, data=replace(known, interpolation=found))


def digest(recipe: Recipe) -> str:
    """Six letters that differ for recipes that are not alike. The seed does not count."""
    fields = options.differences(Recipe(), replace(recipe, seed=0))
    kept = {key: value for key, (_, value) in fields.items() if key not in FREE}
    kept |= {".".join(field): names for field, names in zip(NAMED, _names(recipe), strict=True) if names}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:6]


def base_names(paths: str | Iterable[str]) -> str | list[str]:
    """Paths without their folders."""
    return Path(paths).name if isinstance(paths, str) else [Path(path).name for path in paths]


def _names(recipe: Recipe) -> list[str | list[str]]:
    return [base_names(getattr(getattr(recipe, group), name, None) or "") for group, name in NAMED]
