"""The front door from Python: `fit` trains, and gives a run that embeds, measures and knows its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from isosphere import distributed, inference, recipes, runs, terminal
from isosphere.errors import BadArgument, UnfinishedRun
from isosphere.recipes import labels, options, own, rules, schema
from isosphere.recipes.checks import Checked
from isosphere.recipes.own import NO_OBJECTS, PARTS, Objects
from isosphere.train.loggers import Logger
from isosphere.train.loop import fitted
from isosphere.train.measure import measure_run

NAMED = {"data": "root", "model": "backbone"}
"""Which field of a part a plain text is for; of all others it is the `kind`."""


@dataclass(frozen=True)
class TrainedRun(inference.Trained):
    """A trained model with its run folder; `fit` and `load_run` give one."""

    folder: Path = Path()
    objects: Objects = NO_OBJECTS

    @property
    def metrics(self) -> dict[str, float]:
        """What the test measured, as fractions: {"recall@1": 0.81, ...}. With validation of the best checkpoint."""
        found = runs.read(self.folder).last
        if not found:
            raise UnfinishedRun(self.folder, runs.RESULT)
        return {name: value for name, value in found.items() if name != "step"}

    def evaluate(self, data: Any = None) -> dict[str, float]:
        """The metrics on the run's own test images, or on those of a folder, a CSV or a dataset of (image, label)."""
        return measure_run(self, data, self.objects)["last"]


def load_run(
    folder: str | Path,
    device: str = "auto",
    model: nn.Module | None = None,
    data: Any = None,
    evaluate: Any = None,
    last: bool = False,
) -> TrainedRun:
    """The trained run in a folder: with validation its best checkpoint, or with `last` the last one.

    A run that was given its `model` as an object needs it again. `run.evaluate()` needs its `data` and `evaluate`, too.
    The device is cpu, cuda (torch's current one) or cuda:1; "auto" is a GPU if there is one. torch.distributed is left
    as it is, also under torchrun.
    """
    objects = Objects(data=data, model=model, evaluation=evaluate)
    return TrainedRun(**vars(inference.load_run(folder, device, model, last)), folder=Path(folder), objects=objects)


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

    A part can be a name, an object, or the import path "package.module:attribute" of one.
    It can also be a dict of fields, as in `model={"backbone": net, "head": "bn_fc"}`.

    Args:
        recipe: A name that `isosphere recipes` lists, or a `Recipe`. Or the place of images, for a recipe by rule.
            The other arguments replace its parts.

        data: A folder of class folders, a CSV, or a map-style dataset of (image, label).
            A dataset is split by class. Two of them, (train, test), are taken as they are.

        model: The name of a backbone, or a module that gives (N, D).
            Pixels reach it normalized, float tensors as the dataset made them.
            A class or function is called after the seed is set.

        loss: The name of a loss, or a criterion (embeddings, labels) -> scalar on raw embeddings.

        constraint: The name of a constraint, or a function embeddings -> penalty, already weighted.

        evaluate: A dataset to test on, metrics (embeddings, labels) -> {name: value}, or "NormsOnly".

        callbacks: Functions f(step, {"train/loss": 0.5, ...}), called with each line of the journal.

        folder: The run folder, by default a new one under runs/.

        resume: Go on with the run in the folder, if there is one.
            It needs the same objects again.

        device: "auto", "cpu", "cuda" or "cuda:1".

        **fields: Other groups of the recipe, such as `loop={"steps": 400}` and `seed=1`.
    """
    if resume and folder is None:
        raise BadArgument("folder", folder, "the folder of the run to go on with")
    if hasattr(evaluate, "__getitem__") and not isinstance(evaluate, str | Mapping):
        if data is None or isinstance(data, str | Path | tuple | Mapping):
            expected = "metrics; a dataset to test on goes with one to train on"
            raise BadArgument("evaluate", type(evaluate).__name__, expected)
        data, evaluate = (data, evaluate), None
    loggers = [callbacks] if callable(callbacks) else list(callbacks)
    if wrong := [type(its).__name__ for its in loggers if not callable(its)]:
        raise BadArgument("callbacks", wrong[0], "functions (step, values)")
    given = {"data": data, "model": model, "loss": loss, "constraint": constraint, "evaluation": evaluate, **fields}
    known = recipes.RECIPES
    if isinstance(recipe, schema.Recipe):
        name, made = "run", recipe
    elif recipe not in known and Path(recipe).exists():
        name, made = "photos", _by_rule(recipe, given, device)
        known = {**known, name: rules.plain(made)}
    else:
        name, made = recipe, recipes.find(recipe, {})
    objects = NO_OBJECTS
    for part, value in given.items():
        if value is not None:
            made, found = _with(made, part, value)
            objects = objects if found is None else replace(objects, **{part: found})
    if isinstance(recipe, str):
        name, made = labels.named(name, made, known)
    done = fitted(made, folder, device, resume, objects, loggers, f"{name}-seed{made.seed}")
    distributed.on_first(lambda: None)  # all ranks wait for what the first one writes
    if done.run is None:
        found = inference.load_run(done.folder, device, objects.model)
    else:
        run, images = done.run, done.run.task.images
        found = inference.Trained(run.recipe, run.measured.eval(), run.device, images.classes, len(images))
    return TrainedRun(**vars(found), folder=done.folder, objects=done.objects)


def _by_rule(root: str, given: Mapping[str, Any], device: str) -> schema.Recipe:
    """The recipe by rule for the images in a place. Plain fields that are given are facts for the rules."""
    from isosphere.train.facts import by_rule

    named = {part: {NAMED[part]: value} for part, value in given.items() if part in NAMED and isinstance(value, str)}
    groups = {part: its for part, its in {**given, **named}.items() if isinstance(its, Mapping)}
    settled = {
        f"{part}.{name}": value
        for part, its in groups.items() for name, value in its.items()
        if isinstance(value, str | int | float | tuple) and name != "kind" and not own.is_path(value)
    }  # fmt: skip
    chosen = by_rule(root, settled, device)
    for choice in chosen.choices:
        terminal.say(f"isosphere: {choice}")
    return chosen.recipe


def _with(recipe: schema.Recipe, part: str, value: Any) -> tuple[schema.Recipe, Any]:
    """The recipe with a part of it replaced, and the object if it is one of the user's own."""
    if isinstance(value, Checked):
        values = options.to_dict(recipe) | {part: options.to_dict(value)}
        return options.from_dict(schema.Recipe, values), None
    if part not in PARTS and not isinstance(value, Mapping):
        return options.override(recipe, {part: value}), None
    named = NAMED.get(part, "kind")
    fields = dict(value) if isinstance(value, Mapping) else {named: value}
    if named in fields and (own.is_path(fields[named]) or not isinstance(fields[named], str | Path)):
        fields["kind"] = fields.pop(named)
    if part == "data" and "root" in fields and "kind" not in fields and "root" not in vars(recipe.data):
        raise BadArgument("data", type(recipe.data).__name__, 'a recipe for your own images, such as "photos"')
    kind = fields.pop("kind", None)
    if part in PARTS and kind is not None and not isinstance(kind, str):
        fields, found = {"kind": f"Own{part.capitalize()}", **own.described(kind), **fields}, kind
    else:
        fields, found = fields if kind is None else {"kind": kind, **fields}, None
    changes = {part if name == "kind" else f"{part}.{name}": its for name, its in fields.items()}
    return options.override(recipe, changes), found
