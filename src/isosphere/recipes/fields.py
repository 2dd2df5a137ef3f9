"""Fields of a recipe that hold paths, and those that do not change what is learned. One list for all."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from isosphere.recipes import schema

PLACES = ("root", "pack", "cache", "split", "pairs_root", "exclude", "probes", "distractors")
"""Fields of the data that hold paths."""
SHARED = ("probes", "distractors")
"""Those whose paths may end in a share of the frame, `lfw/singles.csv:0.52`."""
NO_PLACES = ("auto", "none")
"""Words that one of them, the cache, has in place of a path."""
NO_MATTER = {
    "model": ("weights", "width"),
    "data": ("download", "allow_missing", *PLACES),
    "loop": (
        "eval_every", "save_every", "log_every", "workers", "tensorboard", "snapshot_every", "snapshot_images",
        "save_embeddings", "compile",
    ),
}  # fmt: skip
FREE = ("claim", *(f"{group}.{name}" for group, names in NO_MATTER.items() for name in names))
"""Fields that do not change what is learned, or say where a moved file is: they may differ on resuming.

Compiling changes rounding alone, as another device or number of processes does. Images that are missing are no field's
matter: a checkpoint has the names of those it was trained on.
"""


def split_share(place: str) -> tuple[str, float | None]:
    """`lfw/singles.csv:0.52` -> the path and the share, which is None where there is none."""
    path, colon, share = place.rpartition(":")
    if not colon or Path(place).exists():
        return place, None
    try:
        return path, float(share)
    except ValueError:
        return place, None


def located(recipe: schema.Recipe, folders: Sequence[Path]) -> schema.Recipe:
    """The recipe with each relative path as seen from the first of these folders that has it. Others stay."""

    def found(place: str, field: str) -> str:
        path = split_share(place)[0] if field in SHARED else place
        for folder in folders if path and path not in NO_PLACES else ():
            if (folder / path).exists() and not (folder / path / "recipe.json").is_file():  # a run of that name
                return f"{(folder / path).resolve()}{place[len(path) :]}"
        return place

    data: Any = recipe.data
    model: Any = recipe.model
    places = {field.name: getattr(data, field.name) for field in fields(data) if field.name in PLACES}
    moved = {
        name: found(place, name) if isinstance(place, str) else tuple(found(one, name) for one in place)
        for name, place in places.items()
    }
    if isinstance(model, schema.Model) and model.weights:
        model = replace(model, weights=found(model.weights, "weights"))
    return replace(recipe, data=replace(data, **moved), model=model)


def unplaced(recipe: schema.Recipe) -> schema.Recipe:
    """The recipe without paths, which say nothing elsewhere."""
    data: Any = recipe.data
    model: Any = recipe.model
    source, colon, place = model.backbone.rpartition("local-dir:")
    backbone = f"{source}{colon}{Path(place).name}" if colon else model.backbone
    named = [field for field in fields(data) if field.name in PLACES]
    empty = {f.name: f.default if f.default in NO_PLACES else type(getattr(data, f.name))() for f in named}  # "" or ()
    return replace(
        recipe,
        data=replace(data, **empty),
        model=replace(model, weights=None, backbone=backbone) if isinstance(model, schema.Model) else model,
    )
