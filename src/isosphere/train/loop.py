"""The one training loop, top to bottom: `fit`, `prepare`, `train`. One process or many, interrupted and resumed."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isosphere import distributed, runs, terminal
from isosphere.data.feed import Batch, loader
from isosphere.errors import FolderExists, Interrupted, RunExists, need
from isosphere.inference import completed, half_precision, workers
from isosphere.models.first_head import last_linear, start_as_pca
from isosphere.monitor import Episodes, proxy_power, recorded
from isosphere.recipes import compatible, schema
from isosphere.recipes.identity import settled
from isosphere.recipes.own import NO_OBJECTS, Objects
from isosphere.train import build, own, state
from isosphere.train.average import averaged
from isosphere.train.capture import CapturedStep
from isosphere.train.folder import claimed, held
from isosphere.train.journal import Journal
from isosphere.train.loggers import Logger
from isosphere.train.measuring import embedder, evaluate, on_the_way, snapshot, test
from isosphere.train.memory import Undo, enough_memory
from isosphere.train.overlap import kind_of
from isosphere.train.saving import save, saved_first, stop_if_not_finite
from isosphere.train.step import Run, repeatable, train_step, update
from isosphere.train.stopping import advice, signals
from isosphere.train.validation import validated, watching

PCA_IMAGES = 10_000  # training images whose features a first head is made of


class Fitted(NamedTuple):
    """Where a run is, what its result.json holds, the run, and its objects.

    The first rank has the result. A run that had finished before is None. The objects are those it was given.
    """

    folder: Path
    result: dict[str, Any]
    run: Run | None
    objects: Objects


def fit(recipe: schema.Recipe, folder: str | Path, device: str = "auto", resume: bool = False) -> dict[str, Any]:
    """Train a recipe into a new run folder, or go on from its checkpoint. Returns what result.json holds."""
    return fitted(recipe, folder, device, resume).result


def fitted(
    recipe: schema.Recipe,
    folder: str | Path | None,
    device: str = "auto",
    resume: bool = False,
    objects: Objects = NO_OBJECTS,
    loggers: Sequence[Logger] = (),
    name: str = "run",
) -> Fitted:
    """Train a recipe into a run folder, by default a new one called `name` under runs/, or go on from a checkpoint.

    Parts of the user's own are among the `objects`, or their paths are imported.
    """
    device_ = distributed.pick_device(device)  # joins the other ranks
    recipe, objects = own.found(recipe, objects)
    with ExitStack() as stack:
        if folder is None:
            run = prepare(recipe, device_, objects=objects)
            folder = stack.enter_context(claimed("runs", name))  # after images are read, which may be in this folder
            stack.enter_context(held(folder))
            return Fitted(folder, train(run, folder, loggers=loggers), run, objects)
        folder = Path(folder)
        there = stack.enter_context(held(folder))
        if there and runs.RECIPE not in there:
            raise FolderExists(folder, "a run needs an empty folder")
        if there and not resume:
            raise RunExists(folder)
        if resume and runs.CHECKPOINT not in there and runs.RESULT not in there:
            if there:
                terminal.say(f"isosphere: {folder} was stopped before its first checkpoint and begins again")
            resume = False
        saved = state.load(folder / runs.CHECKPOINT, recipe) if resume else None
        if saved is not None and saved.get("finished") and runs.RESULT in there:
            if distributed.rank() != 0:
                return Fitted(folder, {}, None, objects)
            terminal.say(f"isosphere: already finished at step {saved['step']}; nothing was trained")
            return Fitted(folder, runs.read_result(folder), None, objects)
        run = prepare(recipe, device_, objects=objects, saved=saved)
        if saved is not None:
            state.restore(run, saved)
        return Fitted(folder, train(run, folder, resume, loggers), run, objects)


def prepare(
    recipe: schema.Recipe,
    device: torch.device,
    before: Run | None = None,
    objects: Objects = NO_OBJECTS,
    saved: dict[str, Any] | None = None,
) -> Run:
    """Build everything from the recipe; a seed gives the same first weights and batches whatever the constraint.

    Recipe and objects are as `own.found` gives them.

    A run `before` in the same process lends its data. It lends its compiled network, too, if this one's would be the
    same. A `saved` checkpoint that will be restored says what a hub or a folder said as the run began.
    """
    compatible.check(recipe)
    recipe = settled(recipe, runs.recipe_of(saved["recipe"])) if saved else completed(recipe)
    if recipe.loop.tensorboard:
        need("tensorboard", "tensorboard", "loop.tensorboard")
    if recipe.loop.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which cuBLAS asks for, before it is first used
    if before and (before.recipe.data, before.recipe.evaluation) == (recipe.data, recipe.evaluation):
        opened = before.opened
    else:
        opened = build.build_task(recipe.data, device, objects.data)
        opened = own.evaluated(opened, recipe.evaluation, objects.evaluation)
    if before and opened is before.opened and before.recipe.validation == recipe.validation:
        task = before.task
    else:
        task = validated(opened, recipe.validation, recipe.data.place)
    batches = build.build_batches(recipe, task.images.labels)

    # ---- the first weights, by the seed
    torch.manual_seed(recipe.seed)
    recipe, model = build.build_model(recipe, task, objects.model, saved and saved.get("origin"))
    if recipe.model.head_start == "pca":
        last_linear(model.head)  # refuses what cannot, before anything is written
    products, classes = half_precision(recipe.loop, device), len(task.images.classes)
    criterion = build.build_criterion(recipe, model.dim, classes, products, objects.loss)
    constraint = build.build_constraint(recipe.constraint, objects.constraint)

    # ---- on the device
    for part in (model, criterion, constraint):
        part.to(device, torch.float64 if recipe.loop.precision == "float64" else None)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)
    model.rest(recipe.optimizer.backbone_lr == 0 or recipe.schedule.head_first > 0)
    if before and before.device == device and build.same_network(before.recipe, recipe, device):
        before.model.load_state_dict(model.state_dict())
        model, network = before.model, before.network
    else:
        network = build.build_network(recipe, model)
    captured = build.is_captured(recipe, device)
    optimizer = build.build_optimizer(recipe, model, criterion, constraint, captured)
    loop, bad_step = build.in_steps(recipe.loop, batches), torch.tensor(-1, device=device)
    run = Run(recipe, device, loop, task, batches, model, network, criterion, constraint, optimizer, bad_step, opened)
    run.watch, run.bad_row = watching(recipe, task), bad_step.clone()
    if captured:
        run.task = build.for_capture(task)
        run.captured = CapturedStep(update, [model, criterion, constraint], optimizer)
    run.augmentation = build.build_augmentation(recipe.data, model, captured)
    if recipe.loop.average:
        run.average = averaged(model)
    return run


def train(run: Run, folder: Path, resume: bool = False, loggers: Sequence[Logger] = ()) -> dict[str, Any]:
    """Train a prepared run to its end. One that does not resume takes the place of what its folder holds."""
    task, loop, resumed_at = run.task, run.loop, run.step if resume else None
    journal = Journal(folder, run.recipe, loop, run.device, resumed_at, distributed.rank() == 0, loggers)
    with journal, repeatable(run.recipe.loop.deterministic), signals() as run.caught:
        journal.screen.say(task.in_words(run.batches))
        journal.split(task.parts)
        kept = loop.save_every or run.step  # one that was taken up has a checkpoint, which must not stay behind
        if run.step == 0:
            with enough_memory(run, journal):
                _begin(run, journal)
        run.network.train()
        if run.step:
            _catch_up(run, journal)
        episodes = Episodes(proxy_power(run.optimizer), constrained=False)  # the radial share is the criterion's alone
        for line in journal.entries("train"):  # of before a resume, so that warnings go on as they would have
            episodes.fresh(line, advice(run, line["step"]))

        # ---- the steps that are left, with all that comes between them
        between = partial(saved_first, run, journal)
        undo = Undo(run) if run.device.type == "cuda" and run.captured is None else None
        for batch in _fed(run, between):
            with enough_memory(run, journal, undo):
                found = train_step(run, batch.images, batch.labels)
            run.step += 1
            with between():
                _log(run, journal, episodes, found)
                if _due(loop.snapshot_every, run.step):
                    snapshot(run, journal)
                if _evaluates(run):
                    evaluate(run, journal)
                if run.over and kept:  # before the test, the longest: should it fail, the run can be taken up
                    save(run, journal, found)
            if run.over:
                break
            stopping = _asked_to_stop(run, run.caught)
            if stopping or _due(loop.save_every, run.step):
                save(run, journal, found)
            if stopping:
                raise Interrupted(run.step, loop.steps, folder, (run.caught or [signal.SIGTERM])[0])

        # ---- the test and the result
        with between():
            measured = test(run, journal)
        journal.screen.advance(run.step)
        if not journal.active:
            return {}
        relation = task.evaluation.relation(task.images.classes, len(task.images), kind_of(run.recipe), compared=True)
        return journal.result(measured, run.seconds + time.monotonic() - run.started, task, relation)


# ---------------------------------------------------------------- before the steps


def _begin(run: Run, journal: Journal) -> None:
    """What is done to the first weights after the seed's random start, and what they measure."""
    if run.recipe.model.head_start == "pca":
        images = run.task.images
        some = images.subset(torch.linspace(0, len(images) - 1, min(len(images), PCA_IMAGES)).long())
        start_as_pca(run.model.head, embedder(run, run.model)(some, run.task.evaluation.view, run.model.features))
    run.constraint.start(run.model)
    if run.average is not None:
        run.average.load_state_dict(run.model.state_dict())
    journal.untrained(run.task.evaluation.untrained(embedder(run)))
    evaluate(run, journal)
    if run.loop.snapshot_every:
        snapshot(run, journal)


def training_feed(run: Run) -> Iterator[Batch]:
    """This rank's part of every global batch that is left to train on, in order."""
    todo, pin = range(run.step, run.loop.steps), run.device.type == "cuda"
    feed = loader(run.task.images, run.batches, run.task.view, todo, workers(run.loop), run.recipe.seed, pin)
    return (batch._replace(labels=batch.indices) for batch in feed) if run.task.unlabeled else feed


def _fed(run: Run, between: Callable[[], AbstractContextManager[None]]) -> Iterator[Batch]:
    """The batches that are left."""
    feed = iter(()) if run.over else training_feed(run)
    while not run.over:
        with between():
            batch = next(feed)
        yield batch


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _log(run: Run, journal: Journal, episodes: Episodes, found: dict[str, Tensor]) -> None:
    """Write a line where one is due. Reading a value waits for a GPU, so it is done nowhere else."""
    logged = run.step == 1 or _due(run.loop.log_every, run.step)  # the first: warnings measure by it
    if logged or run.device.type == "cpu":
        stop_if_not_finite(run, found)
    if logged:
        values = recorded(dict(zip(found, torch.stack([*found.values()]).tolist(), strict=True)))
        journal.write(run.step, "train", values | {"lr": float(run.optimizer.param_groups[0]["lr"])})
        for name, words in episodes.fresh(values, advice(run, run.step)).items():
            journal.warning(run.step, name, words)
        journal.screen.advance(run.step)


def _evaluates(run: Run) -> bool:
    """Whether an evaluation on the way is due. The test at the end is one, where there is no validation."""
    if run.step == run.loop.steps:
        return run.task.validation is not None
    return _due(run.loop.eval_every, run.step)


def _catch_up(run: Run, journal: Journal) -> None:
    """What was due at the saved step but failed, after which the run was saved."""
    shot, measured = distributed.on_first(lambda: journal.holds(run.step, on_the_way(run)))
    if _due(run.loop.snapshot_every, run.step) and not shot:
        snapshot(run, journal)
    if _evaluates(run) and not measured:
        evaluate(run, journal)
        if run.over:  # these may be the best weights
            save(run, journal, {})


# ---------------------------------------------------------------- stopping, saving, going on


def _asked_to_stop(run: Run, caught: list[int]) -> bool:
    # All ranks must leave at the same step: they compare notes at every step on CPU, now and then on a GPU.
    if distributed.world() > 1 and run.device.type == "cuda" and run.step % 10:
        return False
    return distributed.agreed(bool(caught), run.device)
