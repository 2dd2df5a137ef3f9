"""Head alone first: the backbone rests for a part of training, then learns, too."""

from typing import TYPE_CHECKING

from isosphere.train.build import trained_network

if TYPE_CHECKING:
    from isosphere.train.step import Run


def wake(run: "Run") -> None:
    """Let the backbone learn as soon as its time has come; a function of the step, so a resumed run does the same.

    DDP and a compiled network hold which weights learn, so both are made again. So is a captured step.
    """
    first, rests = run.recipe.schedule.head_first, run.model.resting is not None
    if not rests or not first or run.recipe.optimizer.backbone_lr == 0 or run.step < first * run.loop.steps:
        return
    run.model.rest(False)
    run.network = trained_network(run.recipe, run.model)
    run.network.train()
    if run.captured is not None:
        run.captured.graph = None
