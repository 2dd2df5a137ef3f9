"""From a recipe to the parts of a run: task, batches, network, criterion, constraint, optimizer."""

import warnings
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as autograd_compiler
from torch.nn.parallel import DistributedDataParallel

from isosphere import distributed, inference
from isosphere.data.augmentation import Augmentation
from isosphere.data.cache import CachedSet
from isosphere.data.transforms import View
from isosphere.data.two_views import ContrastiveView
from isosphere.errors import BadArgument, Option, UnfillableBatch, WrongSize
from isosphere.inference import half_precision
from isosphere.losses import CosineClassifier, CrossBatchMemory, ShardedClassifier, sampling
from isosphere.losses.constraint import Constraint
from isosphere.models.embedder import Embedder
from isosphere.models.groups import parameter_groups
from isosphere.models.own import OwnEmbedder
from isosphere.recipes import losses as options
from isosphere.recipes import schema
from isosphere.recipes.constraints import OwnConstraint
from isosphere.recipes.data import NO_JITTER
from isosphere.samplers import ClassBatches, ShuffledBatches
from isosphere.train import overlap, own
from isosphere.train.capture import CompiledView
from isosphere.train.task import Task, noted


def build_task(data: schema.Data, device: torch.device, given: Any = None) -> Task:
    """Open the data set and split it, so that nothing that is measured on was trained on.

    Copies among one's own files are noted; the splits of benchmarks are as published.
    """
    if isinstance(data, schema.OwnData):
        return own.own_task(data, given)
    task = resolve_name(data.opened_by)(data, device)
    if not data.own:
        return task
    return replace(task, notes=noted(*task.notes, *overlap.copies(task.images, task.evaluation.sets)))


def build_batches(recipe: schema.Recipe, labels: Tensor) -> ClassBatches | ShuffledBatches:
    """Which images this rank sees at a step, as a function of (seed, step)."""
    batches, place = recipe.batches, (distributed.rank(), distributed.world())
    try:
        if isinstance(batches, schema.Shuffled):
            return ShuffledBatches(len(labels), batches.size, recipe.seed, batches.views, *place)
        return ClassBatches(labels, batches.size, batches.per_class, recipe.seed, *place)
    except UnfillableBatch as error:
        raise replace(error, most=Option("batches.size", error.most.value)) from None
    except BadArgument as error:
        raise replace(error, name=Option("batches.size") if error.name == "batch" else error.name) from None


def in_steps(loop: schema.Loop, batches: ClassBatches | ShuffledBatches) -> schema.Loop:
    """Durations as steps, now that the number of images is known."""
    each = 1
    if loop.unit == "epochs":
        assert isinstance(batches, ShuffledBatches), "a recipe refuses epochs of other batches"
        each = batches.per_epoch
    return replace(
        loop,
        unit="steps",
        steps=loop.steps * each,
        eval_every=loop.eval_every * each,
        save_every=loop.save_every * each,
        snapshot_every=loop.snapshot_every * each,
    )


@torch.no_grad()
def build_model(
    recipe: schema.Recipe, task: Task, given: Any = None, origin: dict[str, Any] | None = None
) -> tuple[schema.Recipe, Embedder]:
    """The embedder that the recipe names, and the recipe with what was found out about a user's own network.

    A backbone that cannot take images of the recipe's size is refused, before anything is written.
    """
    size, images = recipe.data.shape, torch.zeros(2, 3, *recipe.data.sides, dtype=torch.uint8)
    if recipe.data.transformed:
        images = task.images.batch(torch.arange(2), None)
    model = inference.build_model(recipe.model, size, given, images, origin)
    if isinstance(model, OwnEmbedder) and isinstance(recipe.model, schema.OwnModel):
        return replace(recipe, model=replace(recipe.model, width=model.width)), model
    try:
        model.eval()(images)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise WrongSize(recipe.model.backbone, recipe.data.size, " ".join(str(error).split())) from error
    model.train()
    return recipe, model


def build_network(recipe: schema.Recipe, model: Embedder) -> nn.Module:
    """The model as it is trained, with batch norm over all ranks."""
    distributed.synchronize_batch_norm(model)
    return trained_network(recipe, model)


def trained_network(recipe: schema.Recipe, model: Embedder) -> nn.Module:
    """A synchronized model shared by the ranks, and compiled if the recipe asks for that."""
    network: nn.Module = model
    if distributed.world() > 1:
        with warnings.catch_warnings():  # newer torch has another word for it, which older ones do not know
            warnings.simplefilter("ignore", FutureWarning)
            network = DistributedDataParallel(network, broadcast_buffers=False)
    if not recipe.loop.compile:
        return network
    autograd_compiler.donated_buffer = False  # a constraint may go backward before the loss does
    compiled = torch.compile(network)
    assert isinstance(compiled, nn.Module), "a compiled module is a module"
    return compiled


def same_network(one: schema.Recipe, other: schema.Recipe, device: torch.device) -> bool:
    """Whether two runs on one device have the same compiled network."""

    def made_for(recipe: schema.Recipe) -> tuple[Any, ...]:
        double, half = recipe.loop.precision == "float64", half_precision(recipe.loop, device)
        rests = recipe.optimizer.backbone_lr == 0, recipe.schedule.head_first > 0
        return recipe.loop.compile, recipe.model, recipe.data.shape, double, half, rests

    # A backbone that rests at first has woken up in the one, and the other's has not yet.
    return one.loop.compile and not one.schedule.head_first and made_for(one) == made_for(other)


def is_captured(recipe: schema.Recipe, device: torch.device) -> bool:
    """Whether a whole step is one CUDA graph.

    Joining the rows of drawn classes reads from the device, which a captured step must not. A memory of past batches
    grows and turns, which a captured step cannot.
    """
    alone = device.type == "cuda" and distributed.world() == 1
    return recipe.loop.compile and alone and recipe.classes.rate == 1 and not memory(recipe)


def memory(recipe: schema.Recipe) -> int:
    """How many embeddings of past batches the loss also compares with."""
    return recipe.batches.memory if isinstance(recipe.batches, schema.Batches) else 0


def for_capture(task: Task) -> Task:
    """A task whose images and view suit a captured step: crops fused, SimCLR's view compiled.

    Images of files are viewed in worker processes, as they are.
    """
    if isinstance(task.images, CachedSet) and task.images.device is not None:
        task.images.fuse_crops()
    if isinstance(task.view, ContrastiveView) and task.images.device is not None:
        return replace(task, view=CompiledView(task.view))
    return task


def build_augmentation(data: schema.Data, model: Embedder, captured: bool = False) -> View | None:
    """What is done to batches of crops on the device, if that is asked for; compiled for a captured step.

    Views of images without labels jitter colors by themselves.
    """
    jitter = data.jitter if data.labeled else NO_JITTER
    found = Augmentation(data.randaugment, jitter, data.erasing, model.preprocessing.neutral)
    if not found.active:
        return None
    return CompiledView(found) if captured else found


def build_criterion(
    recipe: schema.Recipe, dim: int, classes: int, products: torch.dtype | None = None, given: Any = None
) -> nn.Module:
    """The criterion (embeddings, labels) -> scalar that the recipe names; a softmax head multiplies in `products`."""
    loss, held = recipe.loss, recipe.classes
    if isinstance(loss, options.OwnLoss):
        return own.own_criterion(loss, given, dim, classes)
    fields = dict(vars(loss))
    if isinstance(loss, options.PairLoss):
        criterion = resolve_name(loss.criterion)(**fields)
        remembered = memory(recipe)
        return CrossBatchMemory(criterion, dim, remembered) if remembered else criterion
    if isinstance(loss, options.ClassLoss):
        return resolve_name(loss.criterion)(dim, classes, **fields)
    scale = fields.pop("scale")
    margin = resolve_name(loss.margin_type)(**fields)
    if held.shard or held.rate < 1:
        return ShardedClassifier(dim, classes, margin, scale, held.rate, products, seed=recipe.seed)
    return CosineClassifier(dim, classes, margin, scale, products)


def build_constraint(constraint: schema.Constraint, given: Any = None) -> Constraint:
    """What the option names; the loop gathers embeddings first, so that it does not synchronize by itself."""
    if isinstance(constraint, OwnConstraint):
        built = own.own_constraint(constraint, given)
    else:
        built = resolve_name(constraint.built_by)(**vars(constraint))
    built.sync = False
    return built


def build_optimizer(
    recipe: schema.Recipe, model: Embedder, criterion: nn.Module, constraint: Constraint, captured: bool = False
) -> torch.optim.Optimizer:
    """Adam, SGD or AdamW over backbone, head, class weights and a learned radius.

    For a captured step the learning rates are on the device.
    """
    optimizer = recipe.optimizer
    decayed = isinstance(optimizer, schema.SGD) and optimizer.decay_batch_norm
    spared = "vectors" if isinstance(optimizer, schema.AdamW) else "nothing" if decayed else "batch_norm"
    rates = optimizer.lr, optimizer.backbone_lr, optimizer.weight_decay
    groups = model.parameter_groups(*rates, spared, optimizer.layer_decay)
    if learned := list(constraint.parameters()):
        groups.append({"params": learned, "lr": optimizer.lr, "weight_decay": 0.0})
    lr = optimizer.lr if optimizer.class_lr is None else optimizer.class_lr
    if spared == "vectors":
        groups += parameter_groups(criterion, lr, optimizer.weight_decay, spared)
    elif weights := list(criterion.parameters()):
        groups.append({"params": weights, "lr": lr, "weight_decay": optimizer.weight_decay})
    for group in groups:
        group["first_lr"] = group["lr"]
        if captured:
            group["lr"] = torch.tensor(group["lr"], device="cuda")
    fused = next(model.parameters()).is_cuda
    if isinstance(optimizer, schema.SGD):
        if recipe.classes.rate < 1:
            return sampling.RowSGD(groups, lr=optimizer.lr, momentum=optimizer.momentum, fused=fused)
        return torch.optim.SGD(groups, momentum=optimizer.momentum, fused=fused)
    kind = torch.optim.AdamW if isinstance(optimizer, schema.AdamW) else torch.optim.Adam
    return kind(groups, fused=fused, capturable=captured)
