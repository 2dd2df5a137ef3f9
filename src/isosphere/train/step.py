"""A run's state, and the work of one step."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from isosphere import distributed
from isosphere.data.augmentation import AFTER_VIEWS
from isosphere.data.transforms import View, uniforms
from isosphere.errors import LossOverflow, NotFinite
from isosphere.inference import half_precision
from isosphere.losses.constraint import Constraint
from isosphere.models.embedder import Embedder
from isosphere.monitor import FIGURES, norm_figures, norm_record, proxy_power
from isosphere.recipes import schema
from isosphere.samplers import ClassBatches, ShuffledBatches
from isosphere.sphere import norms
from isosphere.train.average import update_average
from isosphere.train.capture import CapturedStep
from isosphere.train.evaluation import norm_statistics
from isosphere.train.schedules import lr_factor
from isosphere.train.stopping import stop_diverged
from isosphere.train.task import Task
from isosphere.train.waking import wake
from isosphere.train.watch import Watch

BAD_ROW = "bad_row"


@dataclass
class Run:
    """All that changes while a run trains."""

    recipe: schema.Recipe
    device: torch.device
    loop: schema.Loop  # the recipe's, in steps
    task: Task
    batches: ClassBatches | ShuffledBatches
    model: Embedder
    network: nn.Module  # the model, wrapped by DDP where there are several processes
    criterion: nn.Module
    constraint: Constraint
    optimizer: torch.optim.Optimizer
    bad_step: Tensor  # the first step with a non-finite loss, else -1; on the device
    opened: Task  # before validation images were held out of it
    step: int = 0
    bad_row: Tensor = field(default_factory=lambda: torch.tensor(-1))  # the first embedding of it that is not finite
    saved: int = 0  # the step of the checkpoint
    seconds: float = 0.0  # spent before the last resume
    started: float = field(default_factory=time.monotonic)
    caught: list[int] = field(default_factory=list)  # signals that asked it to stop, perhaps when it was at its end
    captured: CapturedStep | None = None  # the whole step as one CUDA graph
    augmentation: View | None = None  # of a batch on the device
    average: Embedder | None = None  # of the weights, if the recipe asks for one
    watch: Watch | None = None  # on validation images

    @property
    def measured(self) -> Embedder:
        """The weights that are measured and used: their average, if there is one, else the last."""
        return self.model if self.average is None else self.average

    @property
    def over(self) -> bool:
        """Whether it is trained to its end, or has waited long enough for a better evaluation."""
        return self.step == self.loop.steps or (self.watch is not None and self.watch.stops)


def train_step(run: Run, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """One step on this rank's part of the global batch. Returns what is logged, as 0-d tensors on the device."""
    wake(run)
    progress = run.step / run.loop.steps
    factor = lr_factor(run.recipe.schedule, progress)
    for group in run.optimizer.param_groups:
        if isinstance(group["lr"], Tensor):  # a captured step reads it from the device
            group["lr"].fill_(group["first_lr"] * factor)
        else:
            group["lr"] = group["first_lr"] * factor
    images, labels = (part.to(run.device, non_blocking=True) for part in (images, labels))
    if run.augmentation is not None:
        positions = torch.arange(len(images), device=run.device) + run.batches.first
        drawn = uniforms(run.recipe.seed, run.step, positions, run.augmentation.draws, AFTER_VIEWS)
        images = run.augmentation(images, drawn)
    work = update if run.captured is None else run.captured
    found = dict(work(run, images, labels, progress))
    if run.average is not None:
        update_average(run.average, run.model, run.recipe.loop.average, run.step + 1)
    first_bad = (run.bad_step < 0) & ~found["loss"].isfinite()
    run.bad_step = torch.where(first_bad, run.step + 1, run.bad_step)
    run.bad_row = torch.where(first_bad, found.pop(BAD_ROW), run.bad_row)
    return found


def update(run: Run, images: Tensor, labels: Tensor, progress: Tensor | float) -> dict[str, Tensor]:
    """The work of a step on the device, without reading a value from it."""
    # ---- forward: local images -> raw embeddings of all ranks
    with autocast(run.recipe.loop, run.device):
        local = run.network(images)
    embeddings, labels = distributed.gather(local, labels)

    # ---- criterion and constraint, in float32
    try:
        metric = run.criterion(run.constraint.inputs(embeddings), labels)
        held = embeddings.view_as(embeddings)  # the constraint's own way in: its gradient is not the criterion's
        penalty = run.constraint(held, progress=progress)
    except (NotFinite, LossOverflow) as error:  # on CPU; elsewhere a NaN, seen when something is written
        stop_diverged(run, run.step + 1, str(error), norm_statistics(norms(embeddings.detach())))
    embeddings.retain_grad()
    held.retain_grad()
    run.optimizer.zero_grad(set_to_none=True)
    loss = metric + run.constraint.through_optimizer(penalty, run.model, metric)

    # ---- backward and update
    loss.backward()
    distributed.average_gradients(list(run.criterion.parameters()))
    if run.recipe.loop.clip is not None:
        everything = [p for group in run.optimizer.param_groups for p in group["params"]]
        distributed.clip_gradients(everything, run.recipe.loop.clip)
    run.optimizer.step()
    run.constraint.after_step(run.model, run.optimizer)

    # ---- what is logged: the losses, and the figures of norms and of the criterion's gradient (Proposition 1)
    values = {"loss": loss.detach(), "metric": metric.detach(), "penalty": penalty.detach()}
    gradient = embeddings.grad
    if gradient is not None and held.grad is not None:
        gradient = gradient - held.grad
    record, lr = norm_record(embeddings, gradient), run.optimizer.param_groups[0]["lr"]
    (figures,) = norm_figures(record.unsqueeze(0), lr, proxy_power(run.optimizer))
    broken = ~record[0].isfinite()
    values[BAD_ROW] = torch.where(broken.any(), broken.int().argmax(), -1)
    return values | dict(zip(FIGURES, figures.unbind(), strict=True))


def autocast(loop: schema.Loop, device: torch.device) -> contextlib.AbstractContextManager:
    """bfloat16 autocast where the recipe asks for it and the device has it."""
    dtype = half_precision(loop, device)
    return torch.autocast(device.type, dtype) if dtype is not None else contextlib.nullcontext()


@contextlib.contextmanager
def repeatable(wanted: bool) -> Iterator[None]:
    """Deterministic algorithms where they are wanted, and afterwards what the process had before."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
