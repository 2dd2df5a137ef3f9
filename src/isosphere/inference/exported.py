"""A model read back from an exported folder: safetensors for the weights, JSON for all else, no code."""

import json
from pathlib import Path
from typing import Any

import torch

from isosphere import runs
from isosphere.errors import BadArgument, DamagedFile, InputError, OtherVersion
from isosphere.models.weights import read_weights

from .loading import load_run, trained_model
from .trained import Trained

WEIGHTS, CONFIG, FORMAT = "model.safetensors", "config.json", 1
"""Files of the folder, and the version of the second."""


def load(
    path: str | Path, device: str | torch.device = "auto", model: object = None, last: bool = False
) -> Trained:
    """The trained model of an exported folder or of a run folder: its best by validation, or with `last` the last one.

    One that was trained with its `model` as an object needs it again. The device is cpu, cuda or cuda:1; "auto" is a
    GPU if there is one.
    """
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        return load_run(folder, device, model, last)
    if last:
        raise BadArgument("last", True, "left out: an exported model has one set of weights")
    saved = read_config(folder / CONFIG)
    try:
        recipe = runs.recipe_of(saved["recipe"])
    except InputError as error:
        raise OtherVersion(folder / CONFIG, str(error), "recipe") from error
    about: dict[str, Any] = {name: saved.get(name) for name in ("images", "stopped", "origin")}
    path = folder / WEIGHTS
    return trained_model(recipe, read_weights(str(path)), path, device, model, **about)


def read_config(path: Path) -> dict[str, Any]:
    """What `config.json` says, of a version that is known."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFile(path, str(error)) from error
    if not isinstance(saved, dict) or not isinstance(saved.get("recipe"), dict):
        raise DamagedFile(path, "it is not the config of a model that isosphere exported", "recipe")
    if saved.get("format") != FORMAT:
        raise OtherVersion(path, f"format {saved.get('format')!r}, where this one reads {FORMAT}", "format")
    return saved
