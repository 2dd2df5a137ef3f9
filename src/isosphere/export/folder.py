"""A folder for a model hub: weights as safetensors, a config, and a model card. `isosphere.load` reads it."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import isosphere
from isosphere import files
from isosphere.errors import FolderExists
from isosphere.inference import CONFIG, FORMAT, WEIGHTS, Trained
from isosphere.recipes import options
from isosphere.recipes.fields import unplaced

from .card import CARD, card


def to_folder(trained: Trained, path: str | Path, metrics: Mapping[str, float] | None = None) -> None:
    """Write weights, config and card to a new folder, which appears when it is whole.

    Neither paths nor names of classes go along. `metrics` are those of the run's last evaluation, for the card.
    """
    from safetensors.torch import save

    folder = Path(path)
    files.writable(folder / WEIGHTS if folder.is_dir() else folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderExists(folder, "an exported model needs an empty folder, or a new one")
    temporary = Path(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=folder.parent))
    try:
        weights = {name: value.cpu().contiguous().clone() for name, value in trained.model.state_dict().items()}
        files.write(temporary / WEIGHTS, save(weights, {"format": "pt"}))
        files.write(temporary / CONFIG, json.dumps(config(trained), indent=2) + "\n")
        files.write(temporary / CARD, card(trained, folder.resolve().name, metrics or {}))
        os.chmod(temporary, 0o777 & ~_umask())
        if folder.is_dir():
            folder.rmdir()
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def config(trained: Trained) -> dict[str, Any]:
    """What `isosphere.load` needs: the recipe. The fields before it are for readers."""
    data, model = trained.recipe.data, trained.recipe.model
    return {
        "library_name": "isosphere",
        "format": FORMAT,
        "isosphere": isosphere.__version__,
        "backbone": model.backbone,
        "head": model.head,
        "dim": trained.model.dim,
        "preprocessing": {name: getattr(data, name) for name in ("size", "shorter", "fit", "resize")}
        | asdict(trained.model.preprocessing),
        "images": trained.images,
        "stopped": trained.stopped,
        "origin": trained.model.origin,
        "recipe": options.to_dict(unplaced(trained.recipe)),
    }


def _umask() -> int:
    """What new folders of this process are not allowed; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
