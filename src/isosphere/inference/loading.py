"""From a run folder to its trained model: the checkpoint, the network and its weights."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isosphere import distributed, runs
from isosphere.data.fits import Size, sides
from isosphere.errors import BadCheckpoint, DamagedFile, NoCheckpoint
from isosphere.models.embedder import Embedder, build_embedder
from isosphere.models.own import build_own_embedder
from isosphere.recipes import own, schema
from isosphere.recipes.fields import located
from isosphere.tensor_files import read_tensors

from .trained import Trained

HELD: dict[str, Any] = {
    "step": int, "finished": bool, "seconds": (int, float), "classes": list, "model": dict, "criterion": dict,
    "constraint": dict, "optimizer": dict, "random": Tensor,
}  # fmt: skip
"""What every checkpoint has besides its recipe."""


def load_run(
    folder: str | Path, device: str | torch.device = "auto", model: object = None, last: bool = False
) -> Trained:
    """The trained model of a run folder, or with `model` that of a run that was given its network as an object.

    Of a run with validation these are its best weights, or with `last` the last ones. Relative paths in its recipe
    begin where it was trained.
    """
    folder = Path(folder)
    saved = read_checkpoint(folder / runs.CHECKPOINT)
    recipe = located(runs.recipe_in(saved["recipe"], folder / runs.CHECKPOINT), runs.bases(folder))
    stopped = None if saved["finished"] else saved["step"]
    about: dict[str, Any] = {"classes": saved["classes"], "images": saved.get("images"), "stopped": stopped}
    about["origin"] = saved.get("origin")
    best = {} if last else saved.get("best", {}).get("model", {})
    weights = best or saved.get("average") or saved["model"]
    return trained_model(recipe, weights, folder / runs.CHECKPOINT, device, model, **about)


def trained_model(
    recipe: schema.Recipe,
    weights: dict[str, Any],
    path: Path,
    device: str | torch.device = "auto",
    model: object = None,
    classes: Sequence[str] = (),
    images: int | None = None,
    stopped: int | None = None,
    origin: dict[str, Any] | None = None,
) -> Trained:
    """The network that a recipe names, with the weights that were read from `path`, on its device.

    `origin` builds a backbone of timm's hub without it.
    """
    plain = recipe.model
    if isinstance(plain, schema.Model):  # these are all the weights, so a file may be gone, or a hub
        plain = replace(plain, weights=None, pretrained=False)
    network = build_model(plain, recipe.data.shape, model, origin=origin)
    load_weights(network, weights, path)
    chosen = distributed.find_device(device)
    if chosen.type == "cuda" and chosen.index is None:  # it stays there, whatever is the current one later
        chosen = torch.device("cuda", torch.cuda.current_device())
    return Trained(recipe, network.to(chosen).eval(), chosen, list(classes), images, stopped)


def build_model(
    model: schema.Networks,
    size: Size,
    given: object = None,
    images: Tensor | None = None,
    origin: dict[str, Any] | None = None,
) -> Embedder:
    """The embedder that the recipe names, for images of this size.

    A network of the user's own is the one `given`, or what its path names; `images` (N, C, H, W) show what it gives.
    With an `origin` from a checkpoint, one of timm's is built without its hub.
    """
    if isinstance(model, schema.OwnModel):
        module: Any = own.find("model", model, given)
        module = own.called("model", module) if callable(module) and not isinstance(module, nn.Module) else module
        images = torch.zeros(2, 3, *sides(size), dtype=torch.uint8) if images is None else images
        settings = (model.head, model.dim, model.freeze_bn, model.preprocessing, model.width)
        return build_own_embedder(module, *settings, images)
    fields = {name: value for name, value in vars(model).items() if name != "head_start"}  # done before the first step
    if origin is not None:
        fields["pretrained"] = False
    return build_embedder(**fields, size=size, origin=origin)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A run's checkpoint, read without running code from it; the tensors are on the CPU."""
    if not path.is_file():
        begun, finished = ((path.parent / name).is_file() for name in (runs.RECIPE, runs.RESULT))
        reason = "the run was stopped before its first" if begun else f"{path.parent} is not a run folder"
        raise NoCheckpoint(path, "the run kept none (loop.save_every 0)" if finished else reason)
    try:
        saved = read_tensors(path, ours=True)
    except DamagedFile as error:
        raise BadCheckpoint(path, error.reason) from None
    if not isinstance(saved, dict) or "recipe" not in saved:
        raise BadCheckpoint(path, "it was not written by isosphere")
    saved = runs.translate_checkpoint(saved)
    for name, kind in HELD.items():
        if not isinstance(saved.get(name), kind):
            raise BadCheckpoint(path, f"its {name} is missing or odd")
    return saved


def load_weights(module: nn.Module, weights: dict[str, Any], path: str | Path = runs.CHECKPOINT) -> None:
    """Load weights that must fit exactly."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise BadCheckpoint(path, f"it does not fit its recipe: {reason[:200]}") from error
