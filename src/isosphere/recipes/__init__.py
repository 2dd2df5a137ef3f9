"""Recipes for your own images, and how to change and read recipes. The paper's are in `isosphere.paper`."""

from collections.abc import Mapping
from typing import Any

from isosphere.errors import UnknownRecipe
from isosphere.recipes.contrastive import CONTRASTIVE
from isosphere.recipes.faces import FACES
from isosphere.recipes.options import override
from isosphere.recipes.retrieval import DEMO, RETRIEVAL, SUFFIXES
from isosphere.recipes.schema import Recipe

RECIPES: dict[str, Recipe] = {**RETRIEVAL, **FACES, **CONTRASTIVE, **DEMO}


def find(name: str, changes: Mapping[str, Any], known: Mapping[str, Recipe] = RECIPES) -> Recipe:
    """The recipe of this name with fields changed."""
    if name not in known:
        import difflib

        raise UnknownRecipe(name, tuple(difflib.get_close_matches(name, known, n=3) or known))
    return override(known[name], dict(changes))


__all__ = ["RECIPES", "SUFFIXES", "Recipe", "find", "override"]
