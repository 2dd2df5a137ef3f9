"""Experiments on why and when a constraint helps, as cells of runs. All are measured on held-out training classes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from isosphere.paper.retrieval import RETRIEVAL
from isosphere.recipes.constraints import DecoupledSEC, LogNorms, ScaleCourse, ShuffledPulls
from isosphere.recipes.losses import MultiSimilarity
from isosphere.recipes.retrieval import DEMO
from isosphere.recipes.schema import SEC, Baseline, Constant, Recipe, Rendered, Validation

HELD_OUT = Validation(20, seed=None, only=True)  # so that nothing is chosen on test classes
BACKBONE_LRS = (1.25e-5, 2.5e-5, 5e-5)
HEAD_FACTORS = (1, 10, 100)
HEAD_STARTS: tuple[Literal["random", "pca"], ...] = ("random", "pca")
METHODS = {one.method: one for one in (Baseline(), SEC(eta=0.1))}


def heads(dataset: str, steps: int = 800) -> dict[str, dict[str, Recipe]]:
    """Which head a fair comparison needs: its learning rate as a multiple of the backbone's, and its first weights."""
    fair = RETRIEVAL[f"{dataset}-ms"]
    loop = replace(fair.loop, steps=steps, eval_every=steps // 4, save_every=steps)
    return {
        f"{dataset}-ms-lr{lr:g}-x{factor}-{start}": {
            method: replace(
                fair, validation=HELD_OUT, loop=loop, constraint=constraint,
                model=replace(fair.model, head_start=start),
                optimizer=replace(fair.optimizer, lr=lr * factor, backbone_lr=lr),
            )
            for method, constraint in METHODS.items()
        }
        for lr in BACKBONE_LRS for factor in HEAD_FACTORS for start in HEAD_STARTS
    }  # fmt: skip


CAUSES = {
    **dict.fromkeys(("cub200", "cars196"), (30.0, 3.5e-4)),
    "rendered": (4.0, 0.01),
}
"""Even norms by other means than SEC: eta of the logarithms, and the learning rate times eta of the decoupled one. They
begin like SEC's eta of 0.1. The logarithms' eta is SEC's times the squared mean norm of the first batch. The decoupled
one evened norms about as fast on training images alone; a plain step of a fixed eta diverges at the highest rate."""
CAUSE_LRS = {
    **dict.fromkeys(("cub200", "cars196"), (6.25e-6, 1.75e-5, 5e-5)),
    "rendered": (2e-4, 1e-3, 5e-3),
}
"""Of head and backbone alike. The heads table had the baseline's best rate at its low edge, so these reach lower."""
SCRATCH = replace(DEMO["rendered"], data=Rendered(classes=150), loss=MultiSimilarity(), schedule=Constant())
"""A network from scratch; a half of the characters to train on trains, and the other half is held out."""
PARTS = 100  # of training, at whose ends a course of norms is written down


def causes(dataset: str, losses: Iterable[str], steps: int = 1000) -> dict[str, dict[str, Recipe]]:
    """Why SEC helps: methods that each do one thing of what it does, at three learning rates of the whole network."""
    logs, plain = CAUSES[dataset]
    found = {}
    for loss in losses:
        recipe = SCRATCH if dataset == "rendered" else _pretrained(dataset, loss)
        loop = replace(
            recipe.loop, steps=steps, eval_every=100, save_every=steps, snapshot_every=100, log_every=steps // PARTS
        )
        for lr in CAUSE_LRS[dataset]:
            one = replace(recipe, loop=loop, optimizer=replace(recipe.optimizer, lr=lr, backbone_lr=lr))
            cell = f"{dataset}-{loss}-lr{lr:g}"
            even = SEC(eta=0.1), LogNorms(eta=logs), DecoupledSEC(eta=float(f"{plain / lr:.6g}"))
            methods = (Baseline(), *even, ShuffledPulls(eta=0.1), ScaleCourse())
            found[cell] = {option.method: replace(one, constraint=option) for option in methods}
    return found


def _pretrained(dataset: str, loss: str) -> Recipe:
    """The fair comparison's recipe on held-out classes, from a head that keeps what the backbone knows."""
    fair = RETRIEVAL[f"{dataset}-{loss}"]
    return replace(fair, validation=HELD_OUT, model=replace(fair.model, head_start="pca"))


def followed(recipe: Recipe, cell: str, made: Iterable[Mapping[str, Any]]) -> Recipe:
    """The recipe of a control with the course of the run with SEC of the same cell and seed; others as they are.

    Scale alone follows its mean norms, the placebo their products with the standard deviations.
    """
    control = recipe.constraint
    if control not in (ScaleCourse(), ShuffledPulls(eta=0.1)):
        return recipe
    place = cell, SEC().method, recipe.seed
    (norms,) = [run["norms"] for run in made if (run["cell"], run["method"], run["seed"]) == place]
    scale = isinstance(control, ScaleCourse)
    logged = [(step / recipe.loop.steps, mean if scale else mean * variance**0.5) for step, _, mean, variance in norms]
    course = tuple(float(f"{_between(logged, part / PARTS):.6g}") for part in range(PARTS + 1))
    return replace(recipe, constraint=replace(control, course=course))


def _between(points: list[tuple[float, float]], at: float) -> float:
    """A value on the line through these points, which are in order; constant before the first and after the last."""
    for (left, low), (right, high) in zip(points, points[1:], strict=False):
        if at <= right:
            return low + (high - low) * max(0.0, at - left) / (right - left)
    return points[-1][1]
