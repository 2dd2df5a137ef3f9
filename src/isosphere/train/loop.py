"""The one training loop: three tasks, one process or many, broken off and resumed."""

import contextlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isosphere.data.feed import Batch, loader
from isosphere.data.samplers import ClassBatches
from isosphere.losses.norms import SEC, balanced_directions
from isosphere.losses.slopes import NotFinite
from isosphere.models.embedder import Embedder
from isosphere.recipes import schema
from isosphere.recipes.losses import NTXent
from isosphere.sphere import directions, norms
from isosphere.train import build, distributed, evaluate, state
from isosphere.train.capture import CapturedStep
from isosphere.train.journal import Journal
from isosphere.train.schedules import lr_factor
from isosphere.train.stopping import Interrupted, signals, stop_diverged


@dataclass
class Run:
    """All that changes while a run trains."""

    recipe: schema.Recipe
    device: torch.device
    views: build.Views
    batches: ClassBatches
    model: Embedder
    network: nn.Module  # the model, wrapped by DDP where there are several processes
    criterion: nn.Module
    constraint: SEC | None
    optimiser: torch.optim.Optimizer
    bad_step: Tensor  # the first step with a non-finite loss, else -1; on the device
    step: int = 0
    seconds: float = 0.0  # spent before the last resume
    started: float = field(default_factory=time.monotonic)
    update: Callable[..., dict[str, Tensor]] = lambda *batch: {}


def fit(recipe: schema.Recipe, folder: Path, device: str = "auto", resume: bool = False) -> dict[str, Any]:
    """Train a recipe into a run folder, or go on from its checkpoint; returns what result.json holds."""
    chosen = distributed.pick_device(device)
    saved = state.load(folder / state.CHECKPOINT, recipe) if resume else None
    finished = folder / "result.json"
    if saved is not None and saved["step"] == recipe.loop.steps and finished.is_file():
        return json.loads(finished.read_text(encoding="utf-8")) if distributed.rank() == 0 else {}
    run = prepare(recipe, chosen)
    if saved is not None:
        state.restore(run, saved)
    return train(run, folder, resume)


def train(run: Run, folder: Path, resume: bool = False) -> dict[str, Any]:
    """Train a prepared run to its end."""
    recipe = run.recipe
    journal = Journal(folder, recipe, run.device, run.step if resume else None, active=distributed.rank() == 0)
    with journal, signals() as caught:
        last = _train(run, journal, caught)
        journal.advance(run.step)
        seconds = run.seconds + time.monotonic() - run.started
        return journal.result(last, seconds, run.views.deviation) if journal.active else {}


def prepare(recipe: schema.Recipe, device: torch.device, before: Run | None = None) -> Run:
    """Build everything from the recipe; a seed gives the same first weights and batches whatever the constraint.

    A run `before` in the same process lends its data, and its compiled network if the model is the same.
    """
    if recipe.loop.tensorboard and find_spec("tensorboard") is None:
        raise ValueError("loop.tensorboard needs TensorBoard: pip install 'isosphere[tensorboard]'")
    if isinstance(recipe.loss, NTXent) and recipe.batches.per_class != 2:
        raise ValueError("NTXent needs --batches.per_class 2; for any other number use SupCon")
    if recipe.model.freeze_bn and recipe.model.weights is None:
        raise ValueError("freeze_bn needs trained statistics to keep: name a weight file with --model.weights")
    if recipe.loop.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which cuBLAS asks for
        torch.use_deterministic_algorithms(True)
    views = before.views if before and before.recipe.data == recipe.data else build.build_data(recipe.data, device)
    batches = ClassBatches(
        views.train.labels, recipe.batches.size, recipe.batches.per_class, recipe.seed,
        distributed.rank(), distributed.world(),
    )  # fmt: skip
    torch.manual_seed(recipe.seed)
    model = build.build_model(recipe.model)
    build.check_size(model, recipe)
    criterion = build.build_criterion(recipe.loss, recipe.model.dim, len(views.train.classes))
    constraint = build.build_constraint(recipe.constraint)
    for part in (model, criterion, constraint):
        if part is not None:
            part.to(device, torch.float64 if recipe.loop.precision == "float64" else None)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)
    network: nn.Module = distributed.synchronise_batch_norm(model)
    if distributed.world() > 1:
        with warnings.catch_warnings():  # newer torch has another word for it, which older ones do not know
            warnings.simplefilter("ignore", FutureWarning)
            network = DistributedDataParallel(network, broadcast_buffers=False)
    if recipe.loop.compile and before and (before.recipe.model, before.recipe.loop.compile) == (recipe.model, True):
        before.model.load_state_dict(model.state_dict())
        model, network = before.model, before.network
    elif recipe.loop.compile:
        network = torch.compile(network)
    captured = recipe.loop.compile and device.type == "cuda" and distributed.world() == 1
    optimiser = build.build_optimiser(recipe.optimiser, model, criterion, captured)
    bad_step = torch.tensor(-1, device=device)
    run = Run(recipe, device, views, batches, model, network, criterion, constraint, optimiser, bad_step)
    run.update = partial(_update, run)
    if captured:
        changed = [model, criterion] if constraint is None else [model, criterion, constraint]
        run.update = CapturedStep(run.update, changed, optimiser)
    return run


# ---------------------------------------------------------------- the loop


def _train(run: Run, journal: Journal, caught: list[int]) -> dict[str, float]:
    loop = run.recipe.loop
    if run.step == 0:
        _evaluate(run, journal)
    run.network.train()
    if run.step == loop.steps:  # a finished run whose result was lost
        return _evaluate(run, journal, clustering=True, write=False)
    last: dict[str, float] = {}
    for batch in training_feed(run):
        found = train_step(run, batch.images, batch.labels)
        run.step += 1
        # Reading a value waits for a GPU, so there it is done only where something is written.
        if run.step % loop.log_every == 0 or run.device.type == "cpu":
            _stop_if_not_finite(run, found)
        if run.step % loop.log_every == 0:
            values = {name: float(value) for name, value in found.items()}
            journal.write(run.step, "train", values | {"lr": float(run.optimiser.param_groups[0]["lr"])})
            journal.advance(run.step)
        final = run.step == loop.steps
        if run.step % loop.eval_every == 0 or final:
            last = _evaluate(run, journal, clustering=final)
        if loop.snapshot_every and run.step % loop.snapshot_every == 0:
            _snapshot(run, journal)
        stopping = _asked_to_stop(run, caught)
        if run.step % loop.save_every == 0 or final or stopping:
            _save(run, journal, found)
        if stopping and not final:
            told = f"stopped and saved at step {run.step} of {loop.steps}; go on with --resume {journal.folder}"
            raise Interrupted(told, caught[0] if caught else signal.SIGTERM)
    return last


def training_feed(run: Run) -> Iterator[Batch]:
    """This rank's part of every global batch that is left to train on, in order."""
    todo, pin = range(run.step, run.recipe.loop.steps), run.device.type == "cuda"
    return loader(
        run.views.train, run.batches, run.views.train_view, todo, run.recipe.loop.workers, run.recipe.seed, pin
    )


def train_step(run: Run, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """One step on this rank's part of the global batch; returns what is logged, as 0-d tensors on the device."""
    progress = run.step / run.recipe.loop.steps
    factor = lr_factor(run.recipe.schedule, progress)
    for group in run.optimiser.param_groups:
        if isinstance(group["lr"], Tensor):  # a captured step reads it from the device
            group["lr"].fill_(group["first_lr"] * factor)
        else:
            group["lr"] = group["first_lr"] * factor
    found = run.update(images.to(run.device, non_blocking=True), labels.to(run.device, non_blocking=True), progress)
    first_bad = (run.bad_step < 0) & ~found["loss"].isfinite()
    run.bad_step = torch.where(first_bad, run.step + 1, run.bad_step)
    return found


def _update(run: Run, images: Tensor, labels: Tensor, progress: Tensor | float) -> dict[str, Tensor]:
    """The work of a step on the device, without reading a value from it."""
    # ---- forward: local images -> raw embeddings of all ranks
    with autocast(run.recipe.loop, run.device):
        local = run.network(images)
    embeddings, labels = distributed.gather(local, labels)

    # ---- criterion and constraint, in float32
    inputs = balanced_directions(embeddings) if run.recipe.constraint.balanced else embeddings
    try:
        metric = run.criterion(inputs, labels)
    except NotFinite as error:  # on CPU; elsewhere the loss is NaN, and is looked at when something is written
        stop_diverged(run.step + 1, str(error), evaluate.norm_statistics(norms(embeddings.detach())))
    penalty = metric.new_zeros(()) if run.constraint is None else run.constraint(embeddings, progress=progress)
    loss = metric + penalty

    # ---- backward and update
    run.optimiser.zero_grad(set_to_none=True)
    loss.backward()
    distributed.average_gradients(list(run.criterion.parameters()))
    if run.recipe.loop.clip is not None:
        everything = [p for group in run.optimiser.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(everything, run.recipe.loop.clip)
    run.optimiser.step()
    values = {"loss": loss, "metric": metric, "penalty": penalty}
    with torch.no_grad():
        statistics = evaluate.norm_statistics(norms(embeddings))
    return {name: value.detach() for name, value in (values | statistics).items()}


def autocast(loop: schema.Loop, device: torch.device) -> contextlib.AbstractContextManager:
    """bfloat16 autocast where the recipe asks for it and the device has it."""
    dtype = evaluate.half_precision(loop, device)
    return torch.autocast(device.type, dtype) if dtype is not None else contextlib.nullcontext()


def _evaluate(run: Run, journal: Journal, clustering: bool = False, write: bool = True) -> dict[str, float]:
    embeddings = evaluate.embed(
        run.model, run.views.test, run.views.test_view, run.device, run.recipe.loop.workers,
        autocast=evaluate.half_precision(run.recipe.loop, run.device),
    )  # fmt: skip
    if not bool(embeddings.isfinite().all()):
        lengths = evaluate.norm_statistics(norms(embeddings))
        stop_diverged(run.step, "embeddings of test images are not finite", lengths)
    if not journal.active:
        return {}
    views = run.views
    found = evaluate.measure(
        embeddings, views.test.labels, clustering, run.recipe.seed, views.recalls, views.is_query
    )
    if write:
        journal.write(run.step, "test", found)
    journal.advance(run.step, f"R@1 {found['recall@1']:.1%}")
    journal.say(
        f"step {run.step:>6}  R@1 {found['recall@1']:6.2%}  MAP@R {found['map@r']:6.2%}"
        f"  norm {found['norm_mean']:.3g} (variance {found['norm_variance']:.3g})"
    )
    return found


def _snapshot(run: Run, journal: Journal) -> None:
    count = min(run.recipe.loop.snapshot_images, len(run.views.train))
    indices = torch.linspace(0, len(run.views.train) - 1, count).long()
    embeddings = evaluate.embed(
        run.model, run.views.train.subset(indices), run.views.test_view, run.device, run.recipe.loop.workers,
        autocast=evaluate.half_precision(run.recipe.loop, run.device),
    )  # fmt: skip
    journal.snapshot(run.step, indices, norms(embeddings), directions(embeddings))


# ---------------------------------------------------------------- stopping, saving, going on


def _stop_if_not_finite(run: Run, found: dict[str, Tensor]) -> None:
    if int(run.bad_step) >= 0:
        stop_diverged(int(run.bad_step), "the loss is not finite", found)


def _asked_to_stop(run: Run, caught: list[int]) -> bool:
    # All ranks must leave at the same step: they compare notes at every step on CPU, now and then on a GPU.
    if distributed.world() > 1 and run.device.type == "cuda" and run.step % 10:
        return False
    return distributed.agreed(bool(caught), run.device)


def _save(run: Run, journal: Journal, found: dict[str, Tensor]) -> None:
    _stop_if_not_finite(run, found)
    # A finite loss can still have sent the weights to infinity; such weights must not replace good ones.
    everything = [*run.model.named_parameters(), *run.criterion.named_parameters()]
    broken = [name for name, value in everything if not bool(value.isfinite().all())]
    if broken:
        stop_diverged(run.step, f"{broken[0]} is not finite", found)
    if journal.active:
        state.save(journal.folder / state.CHECKPOINT, state.capture(run))
