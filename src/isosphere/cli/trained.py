"""The trained run that `evaluate` and `embed` are given."""

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isosphere.inference import Trained


def load(asked: Namespace, others: bool) -> "Trained":
    """The run, or the exported model, for its own images or for others, with fields of the data changed."""
    from isosphere import inference
    from isosphere.recipes import override

    trained = inference.load(asked.run, asked.device)
    recipe = inference.for_other_images(trained.recipe) if others else trained.recipe
    return replace(trained, recipe=override(recipe, asked.changes))
