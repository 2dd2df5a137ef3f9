"""Recipes for your own images, and how to change and read recipes. The paper's are in `isosphere.paper`."""

from collections.abc import Mapping
from typing import Any

from isosphere.recipes.contrastive import CONTRASTIVE
from isosphere.recipes.faces import FACES
from isosphere.recipes.options import RecipeError, override
from isosphere.recipes.retrieval import DEMO, RETRIEVAL, SUFFIXES
from isosphere.recipes.schema import Recipe

RECIPES: dict[str, Recipe] = {**RETRIEVAL, **FACES, **CONTRASTIVE, **DEMO}


def find(name: str, changes: Mapping[str, Any], known: Mapping[str, Recipe] = RECIPES) -> Recipe:
    """The recipe of this name with fields changed."""
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RecipeError(f"{name}: neither a recipe nor a path{hint} (`isosphere recipes` lists the recipes)")
    return override(known[name], dict(changes))


__all__ = ["RECIPES", "SUFFIXES", "Recipe", "RecipeError", "find", "override"]
