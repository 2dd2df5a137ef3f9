"""What tuning tries, as data: learning rates, strengths, and how trials are judged on held-out training data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from isosphere.errors import BadArgument, Option
from isosphere.recipes.schema import Loop, Recipe
from isosphere.recipes.validation import Validation

TRIALS = ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 1))
"""Learning rate and strength of six trials: the lowest rate is tried with the weak one, the highest with the strong."""
TRIAL_SEED = 100
"""The trials' seed, which no final run has."""

Strength = tuple[float, float]  # weight decay in parts of the recipe's own, and eta


@dataclass(frozen=True)
class Ranges:
    """What trials try, how long they are, what they hold out, and the metrics that judge them."""

    lrs: tuple[float, ...]  # of the head; the backbone keeps its share
    strengths: Mapping[str, tuple[Strength, ...]]  # by method; one that is not here has no trials of its own
    steps: int
    unit: str
    held_out: int | float
    scores: tuple[str, ...]  # metrics, of which the best counts
    in_parts: bool = False  # learning rates and etas are in parts of the recipe's own, too
    tried: tuple[tuple[int, int], ...] = TRIALS
    finalists: int = 0  # of these best, the one that is best after `whole` steps is chosen
    whole: int = 0

    def trials(self, method: str, recipe: Recipe) -> list[Recipe]:
        """The trials of a method; none where it takes another one's learning rate."""
        if method not in self.strengths:
            return []
        if recipe.loop.unit != self.unit:
            raise BadArgument(Option("loop.unit"), recipe.loop.unit, f"{self.unit}, in which trials count")
        return [self._trial(method, recipe, *places) for places in self.tried]

    def _trial(self, method: str, recipe: Recipe, rate: int, force: int) -> Recipe:
        old = recipe.optimizer
        constraint: Any = recipe.constraint  # with an eta, if the method has strengths of it
        decay, eta = self.strengths[method][force]
        lr = self.lrs[rate] * (old.lr if self.in_parts else 1.0)
        backbone_lr = None if old.backbone_lr is None else lr * (old.backbone_lr / old.lr)
        if eta:
            constraint = replace(constraint, eta=eta * constraint.eta if self.in_parts else eta)
        return replace(
            recipe,
            validation=Validation(self.held_out, seed=None, only=True),
            optimizer=replace(old, lr=lr, backbone_lr=backbone_lr, weight_decay=decay * old.weight_decay),
            constraint=constraint,
            loop=_lasting(self.steps, recipe),
            seed=TRIAL_SEED,
        )

    def longer(self, recipe: Recipe, ranked: Iterable[Recipe]) -> list[Recipe]:
        """The best of ranked trials once more, for longer; none where short trials decide."""
        return [replace(trial, loop=_lasting(self.whole, recipe)) for trial in [*ranked][: self.finalists]]

    def light(self, trial: Recipe) -> Recipe:
        """A trial that saves only what is read of it. One that is longer than others is saved on its way."""
        every = 0 if trial.loop.steps <= self.steps else trial.loop.save_every
        return replace(trial, loop=replace(trial.loop, save_every=every, snapshot_every=0, save_embeddings=False))

    def score(self, last: Mapping[str, float]) -> float:
        """What a trial with these metrics is ranked by; one that diverged comes last."""
        return max(last.get(name, -1.0) for name in self.scores)


def _lasting(steps: int, recipe: Recipe) -> Loop:
    """The recipe's loop with that many steps or epochs, if it has not fewer."""
    steps = min(steps, recipe.loop.steps)
    return replace(recipe.loop, steps=steps, eval_every=min(steps, recipe.loop.eval_every))


def tuned(recipe: Recipe, best: Recipe, own: bool = True) -> Recipe:
    """The recipe with the best trial's rate and weight decay, and its constraint if the trial was its own."""
    return replace(recipe, optimizer=best.optimizer, constraint=best.constraint if own else recipe.constraint)
