"""The paper: its tables, its printed numbers, its recipes, and the runs that check them."""

from collections.abc import Mapping
from typing import Any

from isosphere import recipes
from isosphere.paper.contrastive import CONTRASTIVE
from isosphere.paper.faces import FACES
from isosphere.paper.retrieval import RETRIEVAL
from isosphere.recipes.schema import Recipe

RECIPES: dict[str, Recipe] = {**RETRIEVAL, **FACES, **CONTRASTIVE}
"""Of the paper's benchmarks."""

ALL: dict[str, Recipe] = {**recipes.RECIPES, **RECIPES}


def find(name: str, changes: Mapping[str, Any]) -> Recipe:
    """The recipe of this name with fields changed: a user's, or one of the paper's."""
    return recipes.find(name, changes, ALL)


__all__ = ["ALL", "RECIPES", "find"]
