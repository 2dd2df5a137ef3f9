"""What a run measures of itself: on the way, at its end, and of its training images."""

import torch

from isosphere.inference import ImageEmbedder, half_precision, workers
from isosphere.models.embedder import Embedder
from isosphere.sphere import directions, norms
from isosphere.train import evaluation
from isosphere.train.evaluation import Evaluation, norm_statistics
from isosphere.train.journal import Journal, Measured
from isosphere.train.step import Run
from isosphere.train.stopping import stop_diverged, worse
from isosphere.train.watch import on_cpu


def embedder(run: Run, model: Embedder | None = None) -> ImageEmbedder:
    """The run's model for whole sets of images, as it is measured; or another one."""
    half, flip = half_precision(run.loop, run.device), model is None and run.recipe.evaluation.flip
    return ImageEmbedder(model or run.measured, run.device, workers(run.loop), half, flip=flip)


def on_the_way(run: Run) -> str:
    """The kind of line that has an evaluation on the way."""
    return "test" if run.task.validation is None else "validation"


def evaluate(run: Run, journal: Journal) -> None:
    """Measure on the way: validation images if there are any, else those that the run is measured on at the end."""
    found = _measured(run, journal, run.task.validation or run.task.evaluation, on_the_way(run), run.step)
    journal.write(run.step, on_the_way(run), found)
    if run.watch is not None:
        run.watch.see(run.step, found, run.measured)


def test(run: Run, journal: Journal) -> Measured:
    """The test at the end: of the last weights, and of the best by validation. The run then has these."""
    if run.watch is not None and run.step < run.loop.steps:
        words = f"stops early: {run.watch.waited} evaluations in a row were not better than that of step"
        journal.screen.say(f"step {run.step:>6}  {words} {run.watch.step:,}")
    its, watch = run.task.evaluation, run.watch if run.task.validation is not None else None
    other = watch is not None and watch.step != run.step
    last = best = _measured(run, journal, its, "test", run.step, final=True, keep=not other)
    _write(journal, run.step, last)
    if other:
        assert watch is not None
        ended = on_cpu(run.measured)
        run.measured.load_state_dict(watch.model)
        try:
            best = _measured(run, journal, its, "test", watch.step, final=True)
        except BaseException:  # after which the run is saved as it was trained
            run.measured.load_state_dict(ended)
            raise
        _write(journal, watch.step, best)
    said = any(line.get("warning") == "untrained" for line in journal.entries("warning"))
    for before in () if said else journal.entries("untrained"):
        if words := worse(run.recipe, its.choosing, best, before):
            journal.warning(run.step, "untrained", words)
    return Measured(last, best, watch)


def _write(journal: Journal, step: int, found: dict[str, float]) -> None:
    """A line of the test, unless there is one of a run that was broken off in its end."""
    if not any(line["step"] == step for line in journal.entries("test")):
        journal.write(step, "test", found)


def _measured(
    run: Run, journal: Journal, its: Evaluation, kind: str, at: int, final: bool = False, keep: bool = True
) -> dict[str, float]:
    """Metrics of the weights that the run has now, which are those `at` a step."""
    found, embeddings, finite = evaluation.evaluate(its, embedder(run), final, run.recipe.seed)
    if not finite:  # every rank has all rows, so that all stop here: none waits for another
        stop_diverged(run, run.step, f"embeddings of {kind} images are not finite", norm_statistics(norms(embeddings)))
    if journal.active:
        if final and keep and run.loop.save_embeddings:
            journal.embeddings(embeddings, its)
        journal.screen.measured(at, its.headline, found, kind if run.task.validation is not None else "")
    return found


def snapshot(run: Run, journal: Journal) -> None:
    """Norms and directions of a fixed subset of the training images."""
    images = run.task.images
    count = min(run.loop.snapshot_images or len(images), len(images))
    indices = torch.linspace(0, len(images) - 1, count).long()
    embeddings = embedder(run, run.model)(images.subset(indices), run.task.evaluation.view)
    journal.snapshot(run.step, indices, norms(embeddings), directions(embeddings))
