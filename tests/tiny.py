"""A tiny recipe that trains in a second, as the tests of the loop use it."""

from isosphere.paper import find
from isosphere.recipes import schema

TINY = {
    "data.classes": "24",
    "data.per_class": "6",
    "data.size": "12",
    "model.dim": "16",
    "batches.size": "24",
    "batches.per_class": "3",
    "loop.steps": "20",
    "loop.eval_every": "20",
    "loop.save_every": "5",
    "loop.log_every": "1",
}

FIELDS = [word for key, value in TINY.items() for word in (f"--{key}", value)]
"""The same on the command line."""

PHOTOS = "--data.size 16 --data.shorter 20 --model.dim 16 --batches.size 12 --batches.per_class 3 --loop.steps 4"
"""Fields for the photographs of conftest.py."""


def tiny_recipe(name: str = "rendered-sec", changes: dict[str, object] | None = None) -> schema.Recipe:
    """A named recipe on a few small characters, with fields changed."""
    return find(name, TINY | {key: str(value) for key, value in (changes or {}).items()})
