"""Parts of a run that are the user's own, given as objects or by import path."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from inspect import isclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from isosphere.data.own import DatasetImages, OwnView
from isosphere.data.split import split_classes
from isosphere.data.transforms import TrainView
from isosphere.errors import BadArgument, TooFewClasses
from isosphere.inference import evaluation_view
from isosphere.losses.constraint import Constraint
from isosphere.recipes import own, schema
from isosphere.recipes.constraints import OwnConstraint
from isosphere.recipes.own import NO_OBJECTS, PARTS, Objects, Own
from isosphere.train.contrastive import Unlabeled
from isosphere.train.evaluation import Embedded
from isosphere.train.retrieval import Retrieval, check_parts, own_retrieval
from isosphere.train.task import Task, noted

Metrics = Callable[[Tensor, Tensor], Mapping[str, float]]  # (embeddings (N, D), labels (N,)) -> {name: value}
Opened = tuple[DatasetImages, DatasetImages | None]  # to train and to test on


def found(recipe: schema.Recipe, objects: Objects = NO_OBJECTS) -> tuple[schema.Recipe, Objects]:
    """The recipe with the source hashes of its own parts, and those parts as objects; another source is refused.

    Called once for a run: data are opened here.
    """
    for part in PARTS:
        option = getattr(recipe, part)
        if not isinstance(option, Own):
            continue
        given = own.find(part, option, getattr(objects, part))
        changes: dict[str, Any] = {} if option.source == own.ANY else {"source": own.source_hash(given)}
        if isinstance(option, schema.OwnData):
            given = opened(given)
            changes["transformed"] = given[0].transformed
        known: Any = replace(option, **changes)
        recipe = replace(recipe, **{part: known})
        objects = replace(objects, **{part: given})
    return recipe, objects


# ---------------------------------------------------------------- data and evaluation


def own_task(data: schema.OwnData, given: Any = None) -> Task:
    """A dataset split by class, or a pair of datasets to train and to test on."""
    train, test = given if _is_opened(given) else opened(own.find("data", data, given))
    if test is None:
        if len(train.classes) < 4 and data.split_by == "classes":
            raise TooFewClasses(data.place, "train and test", len(train.classes), 4)
        train, test = split_classes(
            train, data.train_fraction, data.seed, folds=data.folds, fold=data.fold, file=data.split, by=data.split_by
        )
    check_parts(train, test, data.place)
    parts = {"train": train, "test": test}
    if data.transformed:
        return Task(train, OwnView(), own_retrieval(test, None), parts=parts)
    view = TrainView(data.shape, data.shorter, data.scale, flip=data.flip, fit=data.fit, interpolation=data.resize)
    return Task(train, view, own_retrieval(test, evaluation_view(data)), noted(train.note), parts=parts)


def opened(given: Any) -> Opened:
    """A dataset, or one to train and one to test on; a class or function makes them."""
    makes = callable(given) and (isclass(given) or not hasattr(given, "__getitem__"))
    dataset = own.called("data", given) if makes else given
    if not isinstance(dataset, tuple):
        return DatasetImages(dataset), None
    if len(dataset) != 2:
        raise BadArgument("data", f"{len(dataset)} datasets", "one dataset, or two: (train, test)")
    train, test = map(DatasetImages, dataset)
    if train.transformed != test.transformed:
        raise BadArgument("data", "of two kinds", "float tensors to train and to test on, or pixels for both")
    return train, test


def _is_opened(given: Any) -> bool:
    return isinstance(given, tuple) and isinstance(given[0], DatasetImages)


@dataclass(frozen=True)
class OwnMetrics(Retrieval):
    """What retrieval measures, and metrics of one's own."""

    function: Metrics = lambda embeddings, labels: {}

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        values = self.function(embedded["embeddings"], self.images.labels.to(embedded["embeddings"].device))
        if not isinstance(values, Mapping):
            raise BadArgument("evaluate", type(values).__name__, "a function that returns {name: value}")
        ours = super().measure(embedded, final, seed)
        if taken := ours.keys() & values:
            raise BadArgument("evaluate", min(taken), "a function whose metrics have names of their own")
        return ours | {str(name): float(value) for name, value in values.items()}


def evaluated(task: Task, option: schema.Evaluation, given: Any = None) -> Task:
    """The task measured as the option says."""
    before = task.evaluation
    if isinstance(option, schema.NormsOnly):
        return replace(task, evaluation=Unlabeled(before.images, before.view))
    if not isinstance(option, schema.OwnEvaluation):
        return task
    assert isinstance(before, Retrieval), "a recipe refuses metrics of one's own for other tasks"
    function = own.made("evaluate", own.find("evaluation", option, given))
    if not callable(function):
        raise BadArgument("evaluate", type(function).__name__, "a function (embeddings, labels) -> {name: value}")
    return replace(task, evaluation=OwnMetrics(**vars(before), function=function))


# ---------------------------------------------------------------- criterion and constraint


class OwnCriterion(nn.Module):
    """Any function (embeddings, labels) -> scalar as a criterion."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        value = self.function(embeddings, labels)
        learns = embeddings.requires_grad and torch.is_grad_enabled()
        if not isinstance(value, Tensor) or value.ndim or (learns and not value.requires_grad):
            _refuse("loss", value, "a function (embeddings, labels) -> scalar tensor with a gradient")
        return value


def own_criterion(option: schema.OwnLoss, given: Any, dim: int, classes: int) -> nn.Module:
    """The criterion; a class is made with those of `dim` and `classes` that it asks for."""
    criterion = own.made("loss", own.find("loss", option, given), dim=dim, classes=classes)
    if not callable(criterion):
        _refuse("loss", criterion, "a function or module (embeddings, labels) -> scalar")
    return OwnCriterion(criterion)


class OwnPenalty(Constraint):
    """Any function or module embeddings -> penalty as a constraint."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        value = self.function(embeddings)
        if not isinstance(value, Tensor) or value.ndim:
            _refuse("constraint", value, "a function embeddings -> scalar tensor")
        return value


def own_constraint(option: OwnConstraint, given: Any = None) -> Constraint:
    """The constraint, as what a loop asks of one."""
    constraint = own.made("constraint", own.find("constraint", option, given))
    if not callable(constraint):
        _refuse("constraint", constraint, "a function or module embeddings -> penalty")
    # A copy, as the loop changes `sync`, and the user's object stays as it is.
    return copy(constraint) if isinstance(constraint, Constraint) else OwnPenalty(constraint)


def _refuse(part: str, value: Any, expected: str) -> NoReturn:
    """Say what a part of the user's own is, or gives, in place of what it should."""
    if not isinstance(value, Tensor):
        raise BadArgument(part, type(value).__name__, expected)
    found = f"a tensor of shape {tuple(value.shape)}" if value.ndim else "a scalar without a gradient"
    raise BadArgument(part, found, expected)
