"""The front door from Python: `fit` trains, and gives a run that embeds, measures and knows its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from isosphere import inference, recipes, runs
from isosphere.errors import BadArgument, UnfinishedRun
from isosphere.recipes import labels, options, own, schema
from isosphere.recipes.checks import Checked
from isosphere.recipes.own import Objects, Own
from isosphere.sphere import directions
from isosphere.train.loggers import Logger
from isosphere.train.loop import fitted
from isosphere.train.measure import measure_run

OWN: dict[str, type[Own]] = {
    "data": schema.OwnData, "model": schema.OwnModel, "loss": schema.OwnLoss, "constraint": schema.OwnConstraint,
    "evaluation": schema.OwnEvaluation,
}  # fmt: skip


@dataclass(frozen=True)
class TrainedRun(inference.Trained):
    """A trained model with its run folder; `fit` and `load_run` give one."""

    folder: Path = Path()
    objects: Objects = Objects()

    @property
    def metrics(self) -> dict[str, float]:
        """What the last evaluation measured, as fractions: {"recall@1": 0.81, ...}."""
        found = runs.read(self.folder).last
        if not found:
            raise UnfinishedRun(self.folder, runs.RESULT)
        return found

    def encode(self, images: Any, normalize: bool = True) -> Tensor:
        """Unit embeddings (N, D), as search wants them; `normalize=False` leaves them raw, as `embed` does."""
        found = self.embed(images)
        return directions(found) if normalize else found

    def evaluate(self, data: Any = None) -> dict[str, float]:
        """The metrics on the run's own test images, or on those of a folder, a CSV or a dataset of (image, label)."""
        return measure_run(self, data, self.objects)["last"]


def load_run(folder: str | Path, device: str = "auto", model: nn.Module | None = None) -> TrainedRun:
    """The trained run in a folder; `model` is the network of one that was given it as an object.

    The device is cpu, cuda (torch's current one) or cuda:1; "auto" is a GPU if there is one. torch.distributed is left
    as it is, also under torchrun.
    """
    return _run(inference.load_run(folder, device, model), Path(folder), Objects(model=model))


def fit(
    recipe: str | schema.Recipe,
    *,
    data: Any = None,
    model: Any = None,
    loss: Any = None,
    constraint: Any = None,
    evaluate: Any = None,
    callbacks: Logger | Sequence[Logger] = (),
    folder: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    **fields: Any,
) -> TrainedRun:
    """Train a model, and return it with its run folder.

    Args:
        recipe: A name that `isosphere recipes` lists, or a `Recipe`. What follows replaces parts of it. A part is a
            name, a dict of its fields, an option, an object of your own, or the import path of one as
            "package.module:attribute".
        data: A folder of class folders, a CSV, any map-style dataset of (image, label), or a pair of datasets to train
            and to test on.
        model: The name of a backbone, or any module that gives (N, D). It gets float RGB images, normalized, or the
            dataset's own float tensors. A function that makes one is called after the seed is set.
        loss: The name of a loss, or any criterion (embeddings, labels) -> scalar on raw embeddings.
        constraint: The name of a constraint, or any embeddings -> penalty, already weighted.
        evaluate: A test dataset, metrics of your own as (embeddings, labels) -> {name: value}, or "NormsOnly".
        callbacks: Functions f(step, {"train/loss": 0.5, ...}), called with every line of the run's journal. What one
            raises ends the run.
        folder: The run folder; by default a new one under runs/.
        resume: Go on with the run in the folder if there is one. Objects must be given again.
        device: "auto", "cpu", "cuda" or "cuda:1".
        **fields: Other groups of the recipe, such as `loop={"steps": 400}`, `optimizer={"lr": 2e-5}`, and `seed`.
    """
    if evaluate is not None and hasattr(evaluate, "__getitem__") and not isinstance(evaluate, str | Mapping):
        if data is None or isinstance(data, str | Path | tuple):
            raise BadArgument("evaluate", type(evaluate), "metrics; a test set goes with a dataset: data=(train, test)")
        data, evaluate = (data, evaluate), None
    named, made = ("run", recipe) if isinstance(recipe, schema.Recipe) else (recipe, recipes.find(recipe, {}))
    given = {"data": data, "model": model, "loss": loss, "constraint": constraint, "evaluation": evaluate, **fields}
    objects = Objects()
    for part, value in given.items():
        if value is not None:
            made, found = _with(made, part, value)
            objects = objects if found is None else replace(objects, **{part: found})
    if isinstance(recipe, str):
        named, made = labels.named(recipe, made, recipes.RECIPES)
    loggers = [callbacks] if callable(callbacks) else list(callbacks)
    done = fitted(made, folder, device, resume, objects, loggers, f"{named}-seed{made.seed}")
    if done.run is None:
        return _run(inference.load_run(done.folder, device, objects.model), done.folder, done.objects)
    run = done.run
    trained = inference.Trained(run.recipe, run.model.eval(), run.device, run.task.images.classes, len(run.task.images))
    return _run(trained, done.folder, done.objects)


def _run(trained: inference.Trained, folder: Path, objects: Objects) -> TrainedRun:
    return TrainedRun(**{name: getattr(trained, name) for name in trained.__dataclass_fields__}, folder=folder,
                      objects=objects)  # fmt: skip


def _with(recipe: schema.Recipe, part: str, value: Any) -> tuple[schema.Recipe, Any]:
    """The recipe with a part of it replaced, and the object that it names if it is one of the user's own."""
    if isinstance(value, Checked):
        return replace(recipe, **{part: value}), None
    if isinstance(value, Mapping):
        inner = value.get("backbone") if part == "model" else None
        apart = {"kind", "backbone" if inner is not None else ""}
        rest = {f"{part}.{name}": its for name, its in value.items() if name not in apart}
        if "kind" in value:
            recipe = options.override(recipe, {part: value["kind"]})
        found = None
        if inner is not None:
            recipe, found = _with(recipe, part, inner)
        return options.override(recipe, rest), found
    if isinstance(value, str | Path) and not own.is_path(value):
        return options.override(recipe, {_field(recipe, part): value}), None
    if part not in OWN:
        return options.override(recipe, {part: value}), None
    kind = OWN[part]
    fields = {"path": value} if isinstance(value, str) else own.described(value)
    before = vars(getattr(recipe, part))
    kept = {name: before[name] for name in kind.__dataclass_fields__ if name in before and name in KEPT}
    return replace(recipe, **{part: kind(**fields, **kept)}), None if isinstance(value, str) else value


KEPT = ("size", "shorter", "scale", "flip", "train_fraction", "dim")
"""Fields that parts of the user's own take over from what they replace."""


def _field(recipe: schema.Recipe, part: str) -> str:
    """The field that a plain text is for."""
    if part == "data":
        if "root" not in vars(recipe.data):
            raise BadArgument("data", type(recipe.data).__name__, "a recipe for your own images, such as \"photos\"")
        return "data.root"
    return "model.backbone" if part == "model" else part
