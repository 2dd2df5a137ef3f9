"""Train your own images, or a recipe.

  isosphere train ./my_photos                       chooses a recipe by rules, and says what and why
  isosphere train photos ./my_photos                without SEC: the recipe `photos`
  isosphere train ./my_photos --model.backbone resnet50 --model.weights resnet50.pth --model.freeze_bn true
  isosphere train rendered-sec --loss ArcFace --constraint.eta 0.5 --seed 1
  isosphere train photos ./my_photos --loss my_module:my_loss --model my_module:Net
  isosphere train --resume runs/my_photos-seed0
  torchrun --nproc-per-node 2 -m isosphere train ./my_photos

Images are a folder of class folders, or a CSV or Parquet file with the columns path and label. Labels may be
in names of files, too: --data.label_regex '(\\d+)_'. `isosphere recipes` lists the recipes.
`isosphere recipes NAME` shows all fields of one with their reasons. Each field is an option here.
`package.module:attribute` is a part of your own, also found in the current folder.
Under torchrun all processes share the batch.
"""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isosphere.cli.endings import note
from isosphere.cli.parser import Parser
from isosphere.errors import BadUsage, MovedData, Option

if TYPE_CHECKING:
    from isosphere.recipes import Recipe

SHOWN = {
    "model.backbone": "small_cnn, or a model of timm or torchvision by name",
    "model.weights": "a file of pretrained weights for it; by default it starts from scratch",
    "data.label_regex": "labels from names of files: the group in brackets of a pattern, such as (\\d+)_",
    "data.split": "a run's split.json, to train and test on the same classes again",
    "data.size": "pixels that the network sees: a side, or height x width, as 256x128",
    "data.fit": "how a whole image becomes this shape: crop, pad or squash",
    "loss": "one of",
    "constraint": "what is done about the norms, one of",
    "constraint.eta": "strength of the constraint; 0 is none",
    "batches.size": "images in a batch, over all processes",
    "optimizer.lr": "the learning rate; of the head alone if the backbone has its own",
    "loop.steps": "length of training; in epochs for faces and SimCLR",
    "seed": "seed of first weights, batches and augmentation; by default 0",
}
OWN = "photos"
"""What a run on a folder is called by that is given without a recipe."""


def declare(parser: Parser) -> None:
    parser.usage = "isosphere train [RECIPE] [IMAGES] [--out RUN] [--group.field VALUE ...]"
    parser.add_argument("what", nargs="?", default="", help="a recipe's name, a folder of class folders, or a CSV")
    parser.add_argument("images", nargs="?", default="", help="your images, after a recipe's name")
    parser.add_argument("--out", type=Path, help="the run folder; by default a new one under runs/")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on from the checkpoint in this run folder")
    parser.device()
    parser.fields(SHOWN)


def run(asked: Namespace) -> None:
    if asked.resume is not None:
        return _resume(asked)
    name, recipe = _named(asked)
    if asked.out is not None and asked.out.exists() and not asked.out.is_dir():
        raise BadUsage("isosphere train", f"--out {asked.out} is a file: name a folder for the run")

    from isosphere.train.loop import fitted

    found = fitted(recipe, asked.out, asked.device, name=f"{name}-seed{recipe.seed}")
    _show(recipe, found.folder, found.result)


def _resume(asked: Namespace) -> None:
    from isosphere.runs import read_recipe
    from isosphere.train.loop import fit
    from isosphere.train.state import missing_place, resumed_recipe

    if extra := asked.what or (asked.out and "--out"):
        raise BadUsage("isosphere train", f"--resume goes on with the folder's own recipe: leave out {extra}")
    recipe = resumed_recipe(read_recipe(asked.resume), asked.changes, asked.resume)
    try:
        _show(recipe, asked.resume, fit(recipe, asked.resume, asked.device, resume=True))
    except FileNotFoundError as error:
        if field := missing_place(recipe.data):
            raise MovedData(str(error), asked.resume, Option(field)) from error
        raise


def _show(recipe: "Recipe", folder: Path, result: dict[str, Any]) -> None:
    from isosphere.recipes.schema import Folder, Model
    from isosphere.report.tables import comparison, show

    if result:  # the first rank has it
        show(comparison({folder: result}))
        print(f"run folder: {folder}")
        if isinstance(recipe.data, Folder) and isinstance(recipe.model, Model) and recipe.model.weights is None:
            note(f"{recipe.model.backbone} began from scratch; --model.backbone and --model.weights begin better")


def _named(asked: Namespace) -> tuple[str, "Recipe"]:
    """What the run is called, and its recipe: the one named on these images, or one by rule on a path alone."""
    from isosphere.paper import ALL, find
    from isosphere.recipes import override
    from isosphere.recipes.labels import named

    if not asked.what:
        raise BadUsage("isosphere train", "name a recipe or a folder of images (`isosphere recipes` lists the recipes)")
    name, images = asked.what, asked.images
    if name not in ALL and Path(name).exists():
        if images:
            raise BadUsage("isosphere train", f"unexpected {images!r}")
        return _by_rule(asked)
    recipe, changes = find(name, {}), asked.changes
    if images:
        changes = _with_root(name, recipe, images, changes)
    return named(name, override(recipe, changes), ALL)


def _by_rule(asked: Namespace) -> tuple[str, "Recipe"]:
    """A recipe for these images by rule, whose choices are said."""
    from isosphere.paper import ALL
    from isosphere.recipes.labels import named
    from isosphere.recipes.rules import plain
    from isosphere.train.facts import by_rule

    if "data.root" in asked.changes:
        raise BadUsage("isosphere train", f"name the images once: {asked.what}, or --data.root")
    chosen = by_rule(asked.what, asked.changes, asked.device)
    for choice in chosen.choices:
        note(str(choice))
    return named(OWN, chosen.recipe, {**ALL, OWN: plain(chosen.recipe)})


def _with_root(name: str, recipe: "Recipe", images: str, changes: dict[str, Any]) -> dict[str, Any]:
    if "root" not in vars(recipe.data):
        raise BadUsage("isosphere train", f"unexpected {images!r}: {name} has no data.root")
    if "data.root" in changes:
        raise BadUsage("isosphere train", f"name the images once: {images}, or --data.root {changes['data.root']}")
    return {"data.root": images} | changes
