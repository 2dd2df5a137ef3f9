"""The trained run that `evaluate` and `embed` are given."""

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isosphere.cli.parser import Parser
    from isosphere.inference import Trained


def declare_last(parser: "Parser") -> None:
    """The option that takes the last weights of a run where validation chose others."""
    parser.add_argument("--last", action="store_true", help="the last weights, not the best by validation")


def load(asked: Namespace, others: bool) -> "Trained":
    """The run, or the exported model, for its own images or for others, with fields of the data changed."""
    from isosphere import inference
    from isosphere.recipes import override

    trained = inference.load(asked.run, asked.device, last=asked.last)
    recipe = inference.for_other_images(trained.recipe) if others else trained.recipe
    return replace(trained, recipe=override(recipe, asked.changes))
