"""Checkpoints: all that a run needs to go on. A crash at any moment leaves a whole one."""

import hashlib
import os
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from isosphere import runs
from isosphere.data.images import Images
from isosphere.errors import BadCheckpoint, DiskFull, IsosphereError, NotSaved, OtherImages, OtherRecipe, words
from isosphere.files import replacing
from isosphere.inference import load_weights, read_checkpoint
from isosphere.losses import sharded
from isosphere.recipes import options, schema
from isosphere.recipes.fields import FREE, located
from isosphere.recipes.identity import settled
from isosphere.recipes.own import PARTS, Own, same

if TYPE_CHECKING:
    from isosphere.train.step import Run


def resumed_recipe(recipe: schema.Recipe, changes: dict[str, Any], run: Path) -> schema.Recipe:
    """A run's recipe with fields changed. All paths are absolute if it is resumed in another folder."""
    begun, *_ = folders = runs.bases(run)
    if begun.resolve() == Path.cwd():
        return options.override(recipe, changes)
    return located(options.override(located(recipe, folders), changes), [Path.cwd()])


def missing_place(data: schema.Data) -> str:
    """The first field of the data whose folder is not there, or nothing."""
    places = {field.name: getattr(data, field.name) for field in fields(data) if field.name in ("root", "pairs_root")}
    return next((f"data.{name}" for name, place in places.items() if not Path(place).exists()), "")


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint: whatever happens, `path` is the old one or the new one."""
    try:
        with replacing(path, durable=True, size=_bytes(state)) as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:  # torch reports what a file raised as a RuntimeError
        before = "the one before it is whole" if path.exists() else "there was none before it"
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        reason = error.reason if isinstance(error, DiskFull) else str(cause)
        raise NotSaved(path, reason, before) from error


def _bytes(state: Any) -> int:
    """What the tensors of a state take."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    inner = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return sum(map(_bytes, inner))


def load(path: Path, recipe: schema.Recipe) -> dict[str, Any]:
    """Read the checkpoint of a run to go on with; one of another recipe is refused."""
    saved = read_checkpoint(path)
    then = runs.recipe_in(saved["recipe"], path)
    for part in PARTS:
        before, now = getattr(then, part), getattr(recipe, part)
        if isinstance(before, Own) and isinstance(now, Own):
            same(part, before, now)
            moved: Any = replace(before, path=now.path, source=now.source, given=now.given)
            then = replace(then, **{part: moved})
    differences = options.differences(then, settled(recipe, then))
    changed = {field: values for field, values in differences.items() if field not in FREE}
    if changed:
        raise OtherRecipe(path, changed)
    return saved


def capture(run: "Run") -> dict[str, Any]:
    """Everything that is needed to go on, whole on the first rank, though all must ask for it.

    Batches and augmentation are functions of the step and need nothing.
    """
    return {
        "recipe": options.to_dict(run.recipe),
        "step": run.step,
        "finished": run.over,
        "seconds": run.seconds + time.monotonic() - run.started,
        "classes": run.task.images.classes,
        "images": len(run.task.images),
        "names": _names(run.task.images),
        "model": run.model.state_dict(),
        "average": None if run.average is None else run.average.state_dict(),
        "origin": run.model.origin,
        "criterion": sharded.whole_state(run.criterion),
        "constraint": run.constraint.state_dict(),
        "optimizer": sharded.whole_optimizer_state(run.optimizer),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(run.device) if run.device.type == "cuda" else None,
    } | ({} if run.watch is None else {"best": run.watch.state()})


def _names(images: Images) -> str:
    """A digest of the images' classes and, if they are files, names, in order. Batches are drawn by their numbers."""
    digest = hashlib.sha256(images.labels.cpu().numpy().tobytes())
    digest.update("\0".join(map(os.path.basename, images.paths or [])).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def restore(run: "Run", saved: dict[str, Any]) -> None:
    """Put a captured state back in place."""
    _check_images(run.task.images, saved)
    try:
        _restore(run, saved)
    except IsosphereError:
        raise
    except Exception as error:  # which is about the file: what it holds may be anything
        reason = f"it does not fit its recipe ({type(error).__name__}: {words(error)})"
        raise BadCheckpoint(runs.CHECKPOINT, reason) from error


def _restore(run: "Run", saved: dict[str, Any]) -> None:
    load_weights(run.model, saved["model"])
    if run.average is not None:
        load_weights(run.average, saved["average"])
    load_weights(run.criterion, sharded.own_state(run.criterion, saved["criterion"]))
    load_weights(run.constraint, saved["constraint"])
    restore_optimizer(run.optimizer, saved["optimizer"])
    run.step = run.saved = saved["step"]
    run.seconds = saved["seconds"]
    if run.watch is not None:
        run.watch.restore(saved["best"])
    torch.set_rng_state(saved["random"])
    if saved.get("random_cuda") is not None and run.device.type == "cuda":
        torch.cuda.set_rng_state(saved["random_cuda"], run.device)


def _check_images(images: Images, saved: dict[str, Any]) -> None:
    if saved["classes"] != images.classes:
        raise OtherImages("classes", len(images.classes), len(saved["classes"]))
    if saved.get("images", len(images)) != len(images):
        raise OtherImages("number", len(images), saved["images"])
    if saved.get("names", _names(images)) != _names(images):
        raise OtherImages("names", _names(images)[:8], str(saved["names"])[:8])


SETTINGS = ("lr", "fused", "capturable")  # how this device runs the optimizer, which is not the checkpoint's business


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load moments into an optimizer that may be on another device than the one they were saved from."""
    own = [{key: group[key] for key in SETTINGS if key in group} for group in optimizer.param_groups]
    moments = sharded.own_optimizer_state(optimizer, saved)
    groups = [
        {key: value for key, value in group.items() if key not in SETTINGS} | settings
        for group, settings in zip(moments["param_groups"], own, strict=True)
    ]
    optimizer.load_state_dict(moments | {"param_groups": groups})
    for group, settings in zip(optimizer.param_groups, own, strict=True):
        group.update(settings)  # a rate on the device is the same tensor again
        on_device = settings.get("fused") or settings.get("capturable")
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items():
                state[name] = _like_parameter(name, value, parameter, bool(on_device))


def _like_parameter(name: str, value: Any, parameter: torch.Tensor, on_device: bool) -> Any:
    """A value of an optimizer's state as this parameter needs it.

    A fused step wants moments with the strides of the weights. These are channels last on a GPU and plain on a CPU. A
    fused or captured Adam wants its count of steps on the weights' device, any other on the CPU.
    """
    if name == "step":
        return torch.as_tensor(value, dtype=torch.float32).to(parameter.device if on_device else "cpu", copy=True)
    if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
        return torch.empty_like(parameter, requires_grad=False).copy_(value)
    return value.to(parameter.device) if isinstance(value, torch.Tensor) else value
