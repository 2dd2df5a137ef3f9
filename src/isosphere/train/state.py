"""Checkpoints: all that a run needs to go on, written so that a crash at any moment leaves a whole one."""

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from isosphere import runs
from isosphere.files import replacing
from isosphere.losses import sharded
from isosphere.recipes import options, schema

if TYPE_CHECKING:
    from isosphere.train.step import Run

CHECKPOINT = runs.CHECKPOINT
PLACES = ("root", "pack", "pairs_root", "exclude", "probes", "distractors")
FREE_FIELDS = ("claim", "model.weights", "data.download", *(f"data.{name}" for name in PLACES)) + tuple(
    f"loop.{name}"
    for name in (
        "eval_every", "save_every", "log_every", "workers", "tensorboard", "snapshot_every", "snapshot_images",
        "save_embeddings", "compile",
    )  # fmt: skip
)
"""Fields that may differ on resuming: they do not change what is learned, or say where a moved file is.

Compiling changes rounding alone, as another device or number of processes does.
"""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint: whatever happens, `path` is the old one or the new one."""
    try:
        with replacing(path, durable=True) as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        kept = f"the checkpoint before it is whole ({path})" if path.exists() else "there was none before it"
        raise OSError(f"could not save a checkpoint: {error}; {kept}") from error


def load(path: Path, recipe: schema.Recipe | None = None) -> dict[str, Any]:
    """Read a checkpoint without running code from it and, if a recipe is given, refuse one of another recipe."""
    if not path.is_file():
        begun = (path.parent / "recipe.json").is_file()
        told = "the run was stopped before its first" if begun else f"{path.parent} is not a run folder"
        told = "the run was to keep none (loop.save_every 0)" if (path.parent / "result.json").is_file() else told
        raise FileNotFoundError(f"no checkpoint {path}: {told}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch raise almost anything
        reason = str(error).split("\n")[0].split(" (1)")[0]
        raise ValueError(f"{path} is not a checkpoint that can be read safely: {reason}") from error
    if not isinstance(state, dict) or "recipe" not in state:
        raise ValueError(f"{path} is not a checkpoint of isosphere")
    if recipe is not None:
        saved = runs.recipe_of(state["recipe"])
        changed = {k: v for k, v in options.differences(saved, recipe).items() if k not in FREE_FIELDS}
        if changed:
            told = ", ".join(f"{key} {before!r} -> {after!r}" for key, (before, after) in changed.items())
            why = "; schedules depend on the length: train a new run" if "loop.steps" in changed else ""
            raise ValueError(f"{path} belongs to another recipe: {told}{why}")
    return runs.translate_checkpoint(state)


def put(module: nn.Module, weights: dict[str, Any]) -> None:
    """Load weights that must fit exactly."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"the checkpoint does not fit the model of its recipe: {reason[:200]}") from error


def capture(run: "Run") -> dict[str, Any]:
    """Everything that is needed to go on, whole on the first rank, though all must ask for it.

    Batches and augmentation are functions of the step and need nothing.
    """
    return {
        "recipe": options.to_dict(run.recipe),
        "step": run.step,
        "finished": run.step == run.loop.steps,
        "seconds": run.seconds + time.monotonic() - run.started,
        "classes": run.views.train.classes,
        "images": len(run.views.train),
        "names": _names(run.views.train),
        "model": run.model.state_dict(),
        "criterion": sharded.whole_state(run.criterion),
        "constraint": run.constraint.state_dict(),
        "optimizer": sharded.whole_optimizer_state(run.optimizer),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(run.device) if run.device.type == "cuda" else None,
    }


def _names(images: Any) -> str:
    """A digest of the images' classes and, if they are files, names, in order: batches are drawn by their numbers."""
    files = getattr(getattr(images, "images", images), "paths", None) or []  # a pack holds the images it was made of
    digest = hashlib.sha256(images.labels.cpu().numpy().tobytes())
    digest.update("\0".join(map(os.path.basename, files)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def restore(run: "Run", saved: dict[str, Any]) -> None:
    """Put a captured state back in place."""
    if saved["classes"] != run.views.train.classes:
        raise ValueError("the training classes are not those of the checkpoint: the images have changed since")
    if saved.get("images", len(run.views.train)) != len(run.views.train):
        told = f"{len(run.views.train)} training images, the checkpoint is of {saved['images']}"
        raise ValueError(f"there are {told}: put back what it was trained on, or begin anew")
    if saved.get("names", _names(run.views.train)) != _names(run.views.train):
        raise ValueError("the training images have other names than the checkpoint's: put them back, or begin anew")
    put(run.model, saved["model"])
    put(run.criterion, sharded.own_state(run.criterion, saved["criterion"]))
    put(run.constraint, saved["constraint"])
    # How this device runs the optimizer is not the checkpoint's business: it may come from another one. Set before it
    # is loaded, for torch goes by it when it puts Adam's count of steps on the CPU or beside the weights.
    own = [{key: group.get(key) for key in ("lr", "fused", "capturable")} for group in run.optimizer.param_groups]
    moments = sharded.own_optimizer_state(run.optimizer, saved["optimizer"])
    groups = [group | settings for group, settings in zip(moments["param_groups"], own, strict=True)]
    run.optimizer.load_state_dict(moments | {"param_groups": groups})
    for group, settings in zip(run.optimizer.param_groups, own, strict=True):
        group.update(settings)  # a rate on the device is the same tensor again
    run.step, run.seconds = saved["step"], saved["seconds"]
    torch.set_rng_state(saved["random"])
    if saved["random_cuda"] is not None and run.device.type == "cuda":
        torch.cuda.set_rng_state(saved["random_cuda"], run.device)
