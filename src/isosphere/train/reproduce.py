"""Many runs in one process: data and compilation are paid once, finished runs are skipped, broken ones resumed."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from isosphere.recipes import options, schema, tables
from isosphere.train import distributed, state
from isosphere.train.journal import environment, write_json
from isosphere.train.loop import Run, prepare, train
from isosphere.train.stopping import NonFiniteLoss

SCORE = "map@r"  # by which a trial is judged


class Runner:
    """Trains recipes one after another, each lending its data and compiled network to the next."""

    def __init__(self, device: str = "auto") -> None:
        self.device = distributed.pick_device(device)
        self.before: Run | None = None

    def run(self, recipe: schema.Recipe, folder: Path) -> dict[str, Any]:
        """What the folder's result.json holds, after training if it is not there yet."""
        if (folder / "result.json").is_file():
            return json.loads((folder / "result.json").read_text(encoding="utf-8"))
        run = prepare(recipe, self.device, self.before)
        resume = (folder / state.CHECKPOINT).is_file()
        if resume:
            state.restore(run, state.load(folder / state.CHECKPOINT, recipe))
        self.before = run
        return train(run, folder, resume)


def run_many(recipes: dict[Path, schema.Recipe], device: str = "auto") -> dict[Path, dict[str, Any]]:
    """Train each recipe into its folder; returns what each result.json holds."""
    runner = Runner(device)
    return {folder: runner.run(recipe, folder) for folder, recipe in recipes.items()}


# ---------------------------------------------------------------- what was measured before


class Results:
    """A JSON file of runs that grows by one at a time: `trials`, measured on training classes, and final `runs`.

    Records have no paths, so that the file can be shared. A run is found again by its recipe, whatever the paths and
    the cadence of saving and testing it was made with; a weight file counts by its name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, list[dict[str, Any]]] = {"trials": [], "runs": []}
        if path.is_file():
            try:
                held = json.loads(path.read_text(encoding="utf-8"))
                self.records = {kind: held[kind] for kind in self.records}
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path} is not a file of results: {error!r}") from error

    def find(self, kind: str, recipe: schema.Recipe) -> dict[str, Any] | None:
        """The record of this recipe, if there is one."""
        for record in self.records[kind]:
            held = options.from_dict(schema.Recipe, record["recipe"])
            free = (*state.FREE_FIELDS, "loop.compile", "data.allow_missing")
            if all(key in free for key in options.differences(held, recipe)) and _weights(held) == _weights(recipe):
                return record
        return None

    def add(self, kind: str, folder: Path, result: dict[str, Any], **about: Any) -> dict[str, Any]:
        """Keep a finished run, with the course of its norms and tests, and write the file."""
        recipe = json.loads(json.dumps(result["recipe"]))
        for group, name in (("data", "root"), ("data", "pack"), ("model", "weights")):
            recipe[group][name] = Path(recipe[group][name]).name if recipe[group].get(name) else recipe[group].get(name)
        record = about | {k: v for k, v in result.items() if k != "command"} | {"recipe": recipe}
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        names = ("step", "loss", "norm_mean", "norm_variance")
        record["norms"] = [[line[name] for name in names] for line in lines if line["kind"] == "train"]
        record["tests"] = [{k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == "test"]
        self.records[kind].append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.records)
        return record


def _weights(recipe: schema.Recipe) -> str:
    return Path(recipe.model.weights).name if recipe.model.weights else ""


# ---------------------------------------------------------------- a table


def reproduce(
    cells: tables.Cells, seeds: Iterable[int], tune: bool, results: Results, folder: Path, device: str = "auto"
) -> list[dict[str, Any]]:
    """Run the cells that `results` lacks: first all trials, then the final runs seed by seed; returns their records."""
    runner = Runner(device)
    chosen = {
        (cell, arm): _tuned(cell, arm, arms, runner, results, folder) if tune else recipe
        for cell, arms in cells.items()
        for arm, recipe in arms.items()
    }
    records = []
    for seed in seeds:
        for (cell, arm), recipe in chosen.items():
            recipe = replace(recipe, seed=seed)
            record = results.find("runs", recipe)
            if record is None:
                place = folder / f"{cell}-{arm}-seed{seed}"
                record = results.add("runs", place, _measured(runner, recipe, place), cell=cell, arm=arm)
            records.append(record | {"cell": cell, "arm": arm, "seed": seed})
    return records


def _measured(runner: Runner, recipe: schema.Recipe, place: Path) -> dict[str, Any]:
    """The result of a run; one that diverged has no metrics, and is told, not hidden."""
    try:
        return runner.run(recipe, place)
    except NonFiniteLoss as error:
        print(f"{place.name}: {error}", file=sys.stderr)
        return {"recipe": options.to_dict(recipe), "last": {}, "diverged": str(error)} | environment(runner.device)


def _tuned(
    cell: str, arm: str, arms: dict[str, schema.Recipe], runner: Runner, results: Results, folder: Path
) -> schema.Recipe:
    """The arm's recipe with what its best trial had; an arm without trials takes SEC's learning rate."""
    own = arm in tables.TRIAL_STRENGTHS
    trials = tables.trials(arm, arms[arm]) if own else tables.trials("sec", arms["sec"]) if "sec" in arms else []
    if not trials:
        return arms[arm]
    scored = []
    for number, recipe in enumerate(trials):
        # Only training classes may choose: the trial's test images are classes that it would otherwise train on.
        if not recipe.data.held_out:
            raise ValueError(f"a trial of {cell} would be judged on test classes")
        record = results.find("trials", recipe)
        if record is None:
            place = folder / "trials" / f"{cell}-{arm if own else 'sec'}-{number}"
            light = replace(recipe, loop=replace(recipe.loop, save_every=0))
            measured = _measured(runner, light, place)
            record = results.add("trials", place, measured, cell=cell, arm=arm if own else "sec")
        scored.append((record["last"].get(SCORE, -1.0), recipe))
    return tables.tuned(arms[arm], max(scored, key=lambda pair: pair[0])[1], own)
