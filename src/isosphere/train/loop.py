"""The one training loop: three tasks, one process or many, broken off and resumed."""

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isosphere import distributed, runs
from isosphere.data.feed import Batch, loader
from isosphere.data.packed import PackedSet
from isosphere.data.two_views import ContrastiveView
from isosphere.errors import Interrupted, RunExists
from isosphere.inference import ImageEmbedder, build_model, half_precision, workers
from isosphere.models.first_head import start_as_pca
from isosphere.monitor import Episodes, proxy_power, recorded
from isosphere.recipes import schema
from isosphere.recipes.losses import MarginLoss, NTXent, PairLoss
from isosphere.samplers import ClassBatches, ShuffledBatches
from isosphere.sphere import directions, norms
from isosphere.train import build, state
from isosphere.train.capture import CapturedStep, CompiledView
from isosphere.train.evaluation import evaluate, norm_statistics
from isosphere.train.folder import held
from isosphere.train.journal import Journal
from isosphere.train.overlap import kind_of
from isosphere.train.step import Run, train_step, update
from isosphere.train.stopping import advice, signals, stop_diverged
from isosphere.train.task import Task

PCA_IMAGES = 10_000  # training images whose features a first head is made of


def fit(recipe: schema.Recipe, folder: str | Path, device: str = "auto", resume: bool = False) -> dict[str, Any]:
    """Train a recipe into a new run folder, or go on from its checkpoint; returns what result.json holds."""
    chosen, folder = distributed.pick_device(device), Path(folder)
    with held(folder):
        return _fit(recipe, folder, chosen, resume)


def _fit(recipe: schema.Recipe, folder: Path, device: torch.device, resume: bool) -> dict[str, Any]:
    finished = folder / "result.json"
    if not resume and (folder / "recipe.json").is_file():
        raise RunExists(folder)
    begun = (folder / "recipe.json").is_file() and not finished.is_file()
    if resume and begun and not (folder / runs.CHECKPOINT).is_file():
        print(f"isosphere: {folder} was stopped before its first checkpoint and begins again", file=sys.stderr)
        resume = False
    saved = state.load(folder / runs.CHECKPOINT, recipe) if resume else None
    if saved is not None and saved.get("finished") and finished.is_file():
        if distributed.rank() != 0:
            return {}
        print(f"isosphere: already finished at step {saved['step']}; nothing was trained", file=sys.stderr)
        return json.loads(finished.read_text(encoding="utf-8"))
    run = prepare(recipe, device)
    if saved is not None:
        state.restore(run, saved)
    return train(run, folder, resume)


def train(run: Run, folder: Path, resume: bool = False) -> dict[str, Any]:
    """Train a prepared run to its end; one that does not resume takes the place of what its folder holds."""
    recipe = run.recipe
    journal = Journal(folder, recipe, run.loop, run.device, run.step if resume else None, distributed.rank() == 0)
    with journal, _repeatable(recipe.loop.deterministic), signals() as run.caught:
        journal.say(_sizes(run))
        last = _train(run, journal)
        journal.advance(run.step)
        seconds = run.seconds + time.monotonic() - run.started
        task = run.task
        classes, images, kind = task.images.classes, len(task.images), kind_of(recipe.data)
        relation = task.evaluation.relation(classes, images, kind, compared=True)
        told = (task.evaluation.headline, relation, task.sizes, task.notes, task.counts)
        return journal.result(last, seconds, *told) if journal.active else {}


def _sizes(run: Run) -> str:
    """What is trained and what measured, in words: a folder that was read otherwise than meant shows here."""
    sizes = run.task.sizes
    parts = [
        f"{sizes[f'{part}_images']:,} images"
        + (f" of {sizes[f'{part}_classes']:,} classes" if f"{part}_classes" in sizes else "")
        for part in ("train", "test")
    ]
    told = f"trains on {parts[0]}, is measured on {parts[1]}"
    if isinstance(run.batches, ClassBatches):
        members, least = run.batches.members, run.batches.per_class
        if small := sum(len(its) < least for its in members):
            told += f"; {small:,} of {len(members):,} classes have fewer than per_class {least}, which repeat"
    return told


@contextmanager
def _repeatable(wanted: bool) -> Iterator[None]:
    """Deterministic algorithms where they are wanted, and afterwards what the process had before."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def prepare(recipe: schema.Recipe, device: torch.device, before: Run | None = None) -> Run:
    """Build everything from the recipe; a seed gives the same first weights and batches whatever the constraint.

    A run `before` in the same process lends its data, and its compiled network if this one's would be the same.
    """
    if recipe.loop.tensorboard and find_spec("tensorboard") is None:
        raise ValueError("loop.tensorboard needs TensorBoard: pip install 'isosphere[tensorboard]'")
    alike = recipe.batches.views if isinstance(recipe.batches, schema.Shuffled) else recipe.batches.per_class
    if isinstance(recipe.loss, NTXent) and alike != 2:
        raise ValueError("NTXent needs --batches.per_class 2, or --batches.views 2; for any other number use SupCon")
    if recipe.classes != schema.Classes() and not isinstance(recipe.loss, MarginLoss):
        raise ValueError("classes are sharded and drawn for NormFace, SphereFace, CosFace and ArcFace alone")
    if recipe.classes.rate < 1 and not isinstance(recipe.optimizer, schema.SGD):
        raise ValueError("classes.rate below 1 needs --optimizer SGD: only it leaves classes alone that were not drawn")
    if recipe.model.freeze_bn and recipe.model.weights is None:
        raise ValueError("freeze_bn needs trained statistics to keep: name a weight file with --model.weights")
    if recipe.loop.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which cuBLAS asks for, before it is first used
    task = before.task if before and before.recipe.data == recipe.data else build.build_task(recipe.data, device)
    if task.unlabeled and (alike < 2 or not isinstance(recipe.batches, schema.Shuffled)):
        raise ValueError("images without labels need several views of each: --batches Shuffled --batches.views 2")
    if task.unlabeled and not isinstance(recipe.loss, PairLoss):
        raise ValueError(f"{type(recipe.loss).__name__} needs classes: images without labels take NTXent")
    if isinstance(recipe.loss, NTXent) and isinstance(recipe.batches, schema.Shuffled) and not task.unlabeled:
        told = "--batches Batches --batches.per_class 2, SupCon, or images without labels (--data Unlabeled)"
        raise ValueError(f"NTXent needs two images of each class in a batch, which Shuffled does not give: use {told}")
    batches = build.build_batches(recipe, task.images.labels)
    torch.manual_seed(recipe.seed)
    model = build_model(recipe.model, recipe.data.size)
    build.check_size(model, recipe)
    products = half_precision(recipe.loop, device)
    criterion = build.build_criterion(recipe, len(task.images.classes), products)
    constraint = build.build_constraint(recipe.constraint)
    for part in (model, criterion, constraint):
        part.to(device, torch.float64 if recipe.loop.precision == "float64" else None)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)
    network: nn.Module = distributed.synchronize_batch_norm(model)
    if distributed.world() > 1:
        with warnings.catch_warnings():  # newer torch has another word for it, which older ones do not know
            warnings.simplefilter("ignore", FutureWarning)
            network = DistributedDataParallel(network, broadcast_buffers=False)
    if recipe.loop.compile and before and _compiled(before.recipe, before.device) == _compiled(recipe, device):
        before.model.load_state_dict(model.state_dict())
        model, network = before.model, before.network
    elif recipe.loop.compile:
        network = torch.compile(network)
    # Joining the rows of drawn classes reads from the device, which a captured step must not.
    captured = recipe.loop.compile and device.type == "cuda" and distributed.world() == 1 and recipe.classes.rate == 1
    optimizer = build.build_optimizer(recipe, model, criterion, captured)
    bad_step, loop = torch.tensor(-1, device=device), in_steps(recipe.loop, batches)
    run = Run(recipe, device, loop, task, batches, model, network, criterion, constraint, optimizer, bad_step)
    run.update = update
    if captured:
        if isinstance(task.images, PackedSet) and task.images.device.type == "cuda":
            task.images.fuse_crops()
        run.task = with_compiled_view(task)
        run.update = CapturedStep(update, [model, criterion, constraint], optimizer)
    return run


def _compiled(recipe: schema.Recipe, device: torch.device) -> tuple[Any, ...]:
    """All that a compiled network is made for."""
    double, half = recipe.loop.precision == "float64", half_precision(recipe.loop, device)
    return recipe.loop.compile, recipe.model, recipe.data.size, device, double, half


def with_compiled_view(task: Task) -> Task:
    """SimCLR's view compiled where images are in memory; files are viewed in worker processes, as they are."""
    if isinstance(task.view, ContrastiveView) and task.images.device is not None:
        return replace(task, view=CompiledView(task.view))
    return task


def in_steps(loop: schema.Loop, batches: ClassBatches | ShuffledBatches) -> schema.Loop:
    """Durations as steps, now that the number of images is known."""
    if loop.unit == "steps":
        return loop
    if not isinstance(batches, ShuffledBatches):
        raise ValueError("loop.unit epochs needs batches that go through all images: --batches Shuffled")
    names = ("steps", "eval_every", "save_every", "snapshot_every")
    return replace(loop, unit="steps", **{name: getattr(loop, name) * batches.per_epoch for name in names})


# ---------------------------------------------------------------- the loop


def _train(run: Run, journal: Journal) -> dict[str, float]:
    loop = run.loop
    kept = loop.save_every or run.step  # one that was taken up has a checkpoint, which must not stay behind
    if run.step == 0:
        _start(run)
        journal.untrained(run.task.evaluation.untrained(embedder(run)))
        _evaluate(run, journal)
        if loop.snapshot_every:
            _snapshot(run, journal)
    run.network.train()
    if run.step == loop.steps:  # a finished run whose last exam or result was lost
        examined = any(line["step"] == run.step for line in journal.entries("test"))
        return _evaluate(run, journal, final=True, write=not examined)
    last: dict[str, float] = {}
    episodes = Episodes(proxy_power(run.optimizer), constrained=False)  # the radial share is the criterion's alone
    for line in journal.entries("train"):  # of before a resume, so that alarms go on as they would have
        episodes.fresh(line, advice(run, line["step"]))
    for batch in training_feed(run):
        found = train_step(run, batch.images, batch.labels)
        run.step += 1
        # Reading a value waits for a GPU, so there it is done only where something is written.
        logged = run.step == 1 or run.step % loop.log_every == 0  # the first: alarms measure by it
        if logged or run.device.type == "cpu":
            _stop_if_not_finite(run, found)
        if logged:
            values = recorded(dict(zip(found, torch.stack([*found.values()]).tolist(), strict=True)))
            journal.write(run.step, "train", values | {"lr": float(run.optimizer.param_groups[0]["lr"])})
            for name, words in episodes.fresh(values, advice(run, run.step)).items():
                journal.alarm(run.step, name, words)
            journal.advance(run.step)
        if loop.snapshot_every and run.step % loop.snapshot_every == 0:
            _snapshot(run, journal)
        final = run.step == loop.steps
        if final and kept:  # before the last exam, the longest: should it fail, the run can be taken up
            _save(run, journal, found)
        if run.step % loop.eval_every == 0 or final:
            last = _evaluate(run, journal, final)
        if final:
            break
        stopping = _asked_to_stop(run, run.caught)
        if stopping or (loop.save_every and run.step % loop.save_every == 0):
            _save(run, journal, found)
        if stopping:
            raise Interrupted(run.step, loop.steps, journal.folder, run.caught[0] if run.caught else signal.SIGTERM)
    return last


def _start(run: Run) -> None:
    """What is done to the first weights, after the random start that the seed gives."""
    if run.recipe.model.head_start == "pca":
        images = run.task.images
        some = images.subset(torch.linspace(0, len(images) - 1, min(len(images), PCA_IMAGES)).long())
        start_as_pca(run.model.head, embedder(run)(some, run.task.evaluation.view, run.model.features))
    run.constraint.start(run.model)


def training_feed(run: Run) -> Iterator[Batch]:
    """This rank's part of every global batch that is left to train on, in order."""
    todo, pin = range(run.step, run.loop.steps), run.device.type == "cuda"
    feed = loader(
        run.task.images, run.batches, run.task.view, todo, workers(run.loop), run.recipe.seed, pin
    )
    return (batch._replace(labels=batch.indices) for batch in feed) if run.task.unlabeled else feed


def embedder(run: Run) -> ImageEmbedder:
    """The run's model for whole sets of images."""
    return ImageEmbedder(run.model, run.device, workers(run.loop), half_precision(run.loop, run.device))


def _evaluate(run: Run, journal: Journal, final: bool = False, write: bool = True) -> dict[str, float]:
    evaluation = run.task.evaluation
    found, embeddings, finite = evaluate(evaluation, embedder(run), final, run.recipe.seed)
    if not finite:  # every rank has all rows, so that all stop here: none waits for another
        statistics = norm_statistics(norms(embeddings))
        stop_diverged(run, run.step, "embeddings of test images are not finite", statistics)
    if not journal.active:
        return {}
    if final and run.loop.save_embeddings:
        journal.embeddings(embeddings, evaluation)
    if write:
        journal.write(run.step, "test", found)
    journal.examined(run.step, evaluation.headline, found)
    return found


def _snapshot(run: Run, journal: Journal) -> None:
    images = run.task.images
    count = min(run.loop.snapshot_images or len(images), len(images))
    indices = torch.linspace(0, len(images) - 1, count).long()
    embeddings = embedder(run)(images.subset(indices), run.task.evaluation.view)
    journal.snapshot(run.step, indices, norms(embeddings), directions(embeddings))


# ---------------------------------------------------------------- stopping, saving, going on


def _stop_if_not_finite(run: Run, found: dict[str, Tensor]) -> None:
    if int(run.bad_step) >= 0:
        stop_diverged(run, int(run.bad_step), "the loss is not finite", found)


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
    if distributed.agreed(bool(broken), run.device):  # the ranks hold different class weights
        stop_diverged(run, run.step, f"{(broken or ['a weight of another rank'])[0]} is not finite", found)
    saved = state.capture(run)  # by all ranks: each brings its class weights
    if journal.active:
        state.save(journal.folder / runs.CHECKPOINT, saved)
