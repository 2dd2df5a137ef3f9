"""Named recipes, and how to change and read them."""

from typing import Any

from isosphere.recipes.contrastive import CONTRASTIVE
from isosphere.recipes.faces import FACES
from isosphere.recipes.options import RecipeError, override
from isosphere.recipes.retrieval import RETRIEVAL, SUFFIXES
from isosphere.recipes.schema import Recipe

RECIPES: dict[str, Recipe] = {**RETRIEVAL, **FACES, **CONTRASTIVE}


def find(name: str, changes: dict[str, Any]) -> Recipe:
    """The recipe of this name with fields changed."""
    if name not in RECIPES:
        import difflib

        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RecipeError(f"{name}: neither a recipe nor a path{hint} (`isosphere recipes` lists the recipes)")
    return override(RECIPES[name], changes)


__all__ = ["RECIPES", "SUFFIXES", "Recipe", "RecipeError", "find", "override"]
