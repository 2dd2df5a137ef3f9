"""Parts of a run that are the user's own, given as objects or by import path."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from isosphere.data.images import split_classes
from isosphere.data.own import DatasetImages, OwnView
from isosphere.data.transforms import TrainView
from isosphere.errors import BadArgument, Incompatible, Option
from isosphere.inference import evaluation_view
from isosphere.losses.constraint import Constraint
from isosphere.recipes import own, schema
from isosphere.recipes.constraints import OwnConstraint
from isosphere.recipes.own import NO_OBJECTS, Objects, Own
from isosphere.train.contrastive import Unlabeled
from isosphere.train.evaluation import Embedded
from isosphere.train.retrieval import Retrieval
from isosphere.train.task import Task

PARTS = ("data", "model", "loss", "constraint", "evaluation")
Metrics = Callable[[Tensor, Tensor], Mapping[str, float]]  # (embeddings (N, D), labels (N,)) -> {name: value}


def found(recipe: schema.Recipe, objects: Objects = NO_OBJECTS) -> tuple[schema.Recipe, Objects]:
    """The recipe with the source hashes of its own parts, and those parts as objects; another source is refused.

    Called once for a run: data are opened here.
    """
    for part in PARTS:
        option = getattr(recipe, part)
        if not isinstance(option, Own):
            continue
        given = own.find(part, option, getattr(objects, part))
        changes: dict[str, Any] = {"source": own.source_hash(given)}
        if isinstance(option, schema.OwnData):
            given = opened(given)
            changes["transformed"] = given[0].transformed
        recipe = replace(recipe, **{part: replace(option, **changes)})
        objects = replace(objects, **{part: given})
    return recipe, objects


# ---------------------------------------------------------------- data and evaluation


def own_task(data: schema.OwnData, given: tuple[DatasetImages, DatasetImages | None] | None = None) -> Task:
    """A dataset split by class, or a pair of datasets to train and to test on."""
    train, test = given or opened(own.find("data", data))
    if test is None:
        train, test = split_classes(train, data.train_fraction)
    if data.transformed:
        return Task(train, OwnView(), Retrieval(test, None))
    view = TrainView(data.size, data.shorter, data.scale, flip=data.flip)
    return Task(train, view, Retrieval(test, evaluation_view(data)))


def opened(given: Any) -> tuple[DatasetImages, DatasetImages | None]:
    """A dataset, or one to train and one to test on; a class or function makes them."""
    if isinstance(given, tuple) and all(isinstance(one, DatasetImages | None) for one in given):
        return given
    dataset = own.called(given) if callable(given) and not hasattr(given, "__getitem__") else given
    if isinstance(dataset, tuple) and len(dataset) == 2:
        return DatasetImages(dataset[0]), DatasetImages(dataset[1])
    return DatasetImages(dataset), None


@dataclass(frozen=True)
class OwnMetrics(Retrieval):
    """What retrieval measures, and metrics of one's own."""

    function: Metrics = lambda embeddings, labels: {}

    def measure(self, embedded: Embedded, final: bool, seed: int) -> dict[str, float]:
        values = self.function(embedded["embeddings"], self.images.labels.to(embedded["embeddings"].device))
        if not isinstance(values, Mapping):
            raise BadArgument("evaluate", type(values), "a function that returns {name: value}")
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
    if not isinstance(before, Retrieval):
        remedies = (Option("evaluation", "TaskMetrics"), Option("evaluation", "NormsOnly"))
        raise Incompatible(("evaluation", "data"), "metrics of your own are for retrieval", remedies)
    function = own.made(own.find("evaluation", option, given))
    if not callable(function):
        raise BadArgument("evaluate", type(function), "a function (embeddings, labels) -> {name: value}")
    return replace(task, evaluation=OwnMetrics(before.images, before.view, before.is_query, before.recalls, function))


# ---------------------------------------------------------------- criterion and constraint


class OwnCriterion(nn.Module):
    """Any function (embeddings, labels) -> scalar as a criterion."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.function(embeddings, labels)


def own_criterion(option: schema.OwnLoss, given: Any, dim: int, classes: int) -> nn.Module:
    """The criterion; a class is made with those of `dim` and `classes` that it asks for."""
    criterion = own.made(own.find("loss", option, given), dim=dim, classes=classes)
    if not callable(criterion):
        raise BadArgument("loss", type(criterion), "a function or module (embeddings, labels) -> scalar")
    return criterion if isinstance(criterion, nn.Module) else OwnCriterion(criterion)


class OwnPenalty(Constraint):
    """Any function or module embeddings -> penalty as a constraint."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        return self.function(embeddings)


def own_constraint(option: OwnConstraint, given: Any = None) -> Constraint:
    """The constraint, as what a loop asks of one."""
    constraint = own.made(own.find("constraint", option, given))
    if not callable(constraint):
        raise BadArgument("constraint", type(constraint), "a function or module embeddings -> penalty")
    return constraint if isinstance(constraint, Constraint) else OwnPenalty(constraint)
