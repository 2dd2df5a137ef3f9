"""Many runs in one process, and the best of several. Data and compilation are paid once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isosphere import distributed, runs, terminal
from isosphere.errors import Diverged, OtherData, OtherRecipe, Stopped
from isosphere.recipes import options, schema
from isosphere.recipes.identity import changes
from isosphere.recipes.ranges import Ranges
from isosphere.train import own, state
from isosphere.train.environment import environment
from isosphere.train.faces import face_counts
from isosphere.train.folder import held
from isosphere.train.loop import Run, prepare, train

Result = dict[str, Any]  # what result.json holds


class Runner:
    """Trains recipes one after another, each lending its data and compiled network to the next."""

    def __init__(self, device: str = "auto") -> None:
        self.device = distributed.pick_device(device)
        self.before: Run | None = None
        self.counts: dict[schema.Data, dict[str, int]] = {}  # of people, who are listed once

    def run(self, recipe: schema.Recipe, folder: Path) -> Result:
        """What the folder's result.json holds, after training if it is not there yet."""
        with held(folder):
            return self._run(recipe, folder)

    def _run(self, recipe: schema.Recipe, folder: Path) -> Result:
        if (folder / runs.RESULT).is_file():
            found = runs.read_result(folder)
            if changed := changes(runs.recipe_of(found["recipe"]), recipe):
                raise OtherRecipe(folder, changed)
            self.refuse_other_data(found, recipe, folder)
            return found
        if self.before is not None and self.before.caught:
            # It came in a last step or evaluation, or as a run diverged: that one is kept, and no other begins.
            raise Stopped(folder, self.before.caught[0])
        recipe, objects = own.found(recipe)
        resume = (folder / runs.CHECKPOINT).is_file()
        saved = state.load(folder / runs.CHECKPOINT, recipe) if resume else None
        run = prepare(recipe, self.device, self.before, objects, saved)
        if saved is not None:
            state.restore(run, saved)
        self.before = run
        return train(run, folder, resume)

    def measure(self, recipe: schema.Recipe, folder: Path) -> Result:
        """The result of a run; one that diverged has no metrics, and says so."""
        try:
            return self.run(recipe, folder)
        except Diverged as error:
            terminal.say(f"{folder.name}: {error}")
            return {"recipe": options.to_dict(recipe), "last": {}, "diverged": str(error)} | environment(self.device)

    def refuse_other_data(self, result: Mapping[str, Any], recipe: schema.Recipe, place: Path) -> None:
        """Refuse a result on one's own people that is of others: where these are at hand, numbers must agree.

        Benchmarks need no such check: what their copies lack is refused, or noted in the result.
        """
        data = recipe.data
        if "counts" not in result or not isinstance(data, schema.Faces):
            return
        if not all(one and Path(one).exists() for one in (data.root, data.pairs_root)):
            return
        if data not in self.counts:
            try:
                self.counts[data] = face_counts(data)
            except FileNotFoundError:  # of probes or distractors
                return
        now = self.counts[data]
        if now != result["counts"]:
            then = result["counts"]
            raise OtherData(place, {name: (then[name], now[name]) for name in then if then[name] != now[name]})


def run_many(recipes: Mapping[Path, schema.Recipe], device: str = "auto") -> dict[Path, Result]:
    """Train each recipe into its folder; returns what each result.json holds."""
    runner = Runner(device)
    return {folder: runner.run(recipe, folder) for folder, recipe in recipes.items()}


# ---------------------------------------------------------------- the best of several


class Trial(NamedTuple):
    """A recipe that was tried, the metrics it ended with (None if it diverged), and the score that ranks it."""

    recipe: schema.Recipe
    last: Mapping[str, float]
    score: float


def tune(
    method: str, recipe: schema.Recipe, ranges: Ranges, measure: Callable[[schema.Recipe], Mapping[str, float]]
) -> list[Trial]:
    """The trials of a method on held-out training data, the chosen one first.

    `measure` trains a trial, or finds it trained, and gives its last metrics: `Runner.measure(...)["last"]`.
    """

    def ranked(trials: list[schema.Recipe]) -> list[Trial]:
        lasts = [(trial, measure(ranges.light(trial))) for trial in trials]
        made = [Trial(trial, last, ranges.score(last)) for trial, last in lasts]
        return sorted(made, key=lambda trial: trial.score, reverse=True)

    short = ranked(ranges.trials(method, recipe))
    return ranked(ranges.longer(recipe, [trial.recipe for trial in short])) + short
