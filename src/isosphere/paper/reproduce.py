"""A table of the paper, run: its trials, its final runs seed by seed, and the file that holds their results."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from isosphere import locks, runs
from isosphere.errors import Interrupted, Stopped
from isosphere.paper import tables
from isosphere.recipes import schema
from isosphere.recipes.fields import PLACES as PLACES_OF_DATA
from isosphere.recipes.identity import alike, base_names, digest
from isosphere.recipes.ranges import TRIAL_SEED, tuned
from isosphere.train import tuning
from isosphere.train.journal import write_json
from isosphere.train.tuning import Runner

PLACES = [*(("data", name) for name in PLACES_OF_DATA), ("model", "weights")]  # fields that hold paths

# ---------------------------------------------------------------- what was measured before


class Results:
    """A JSON file of runs that grows by one at a time: `trials`, measured on training data, and final `runs`.

    Records have no paths, so that the file can be shared. A run is found again by its recipe, whatever the paths and
    the cadence of saving and testing it was made with; weights and lists of images count by their names.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, list[dict[str, Any]]] = {"trials": [], "runs": []}
        self._read()

    def _read(self) -> None:
        if not self.path.is_file():
            return
        try:
            held = json.loads(self.path.read_text(encoding="utf-8"))
            self.records = {
                kind: [r | {"recipe": runs.translate_recipe(r["recipe"])} for r in held[kind] if r["recipe"]]
                for kind in self.records
            }
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} is not a file of results: {type(error).__name__}: {error}") from error

    def find(self, kind: str, recipe: schema.Recipe) -> dict[str, Any] | None:
        """The record of this recipe, if there is one."""
        found = (r for r in self.records[kind] if alike(runs.recipe_of(r["recipe"]), recipe))
        return next(found, None)

    def finals(self) -> list[dict[str, Any]]:
        """The final runs as tables take them, each with its seed."""
        return [record | {"seed": record["recipe"]["seed"]} for record in self.records["runs"]]

    def add(self, kind: str, folder: Path, result: dict[str, Any], **about: Any) -> dict[str, Any]:
        """Keep a finished run, with the course of its norms, tests and turns, and write the file.

        What other processes have added meanwhile is kept.
        """
        recipe = json.loads(json.dumps(result["recipe"]))
        for group, name in PLACES:
            if recipe[group].get(name):
                recipe[group][name] = base_names(recipe[group][name])
        record = about | {k: v for k, v in result.items() if k != "command"} | {"recipe": recipe}
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        names = ("step", "loss", "norm_mean", "norm_variance")
        finite = (line for line in lines if line["kind"] == "train" and all(name in line for name in names))
        record["norms"] = [[line[name] for name in names] for line in finite]  # an exploding variance is left out
        for name, of in (("tests", "test"), ("turns", "turn")):
            record[name] = [{k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == of]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locks.hold(self.path.with_name(".lock"), wait=True):
            self._read()
            if kind == "runs":  # one that was tuned otherwise gives way
                place = [about[name] for name in about] + [recipe["seed"]]
                self.records[kind] = [
                    r for r in self.records[kind] if [r[name] for name in about] + [r["recipe"]["seed"]] != place
                ]
            self.records[kind].append(record)
            write_json(self.path, self.records)
        return record


# ---------------------------------------------------------------- a table


def reproduce(
    cells: tables.Cells,
    seeds: Iterable[int],
    tune: bool,
    results: Results,
    folder: Path,
    device: str = "auto",
    tuned_by: Results | None = None,
) -> list[dict[str, Any]]:
    """Run the cells that `results` lacks: first all trials, then the final runs seed by seed; returns their records.

    With `tuned_by` no trial is run: each arm takes what its runs there had, and the runs' records name that file.
    """
    seeds, recipes = list(seeds), [recipe for arms in cells.values() for recipe in arms.values()]
    if tune and TRIAL_SEED in seeds:
        raise ValueError(f"seed {TRIAL_SEED} is the trials': final runs need others")
    if tune and any(getattr(recipe.data, "held_out", 0) for recipe in recipes):
        raise ValueError("data.held_out belongs to the trials: final runs are measured on the test set")
    runner = Runner(device)
    chosen = {
        (cell, arm): _tuned(cell, arm, arms, runner, results, folder, tuned_by) if tune else recipe
        for cell, arms in cells.items()
        for arm, recipe in arms.items()
    }
    told, records, made = {"tuned_by": tuned_by.path.stem} if tune and tuned_by else {}, [], 0
    for seed in seeds:
        for (cell, arm), recipe in chosen.items():
            recipe = replace(recipe, seed=seed)
            record = results.find("runs", recipe)
            if record is None:
                place = folder / f"{cell}-{arm}-{digest(recipe)}-seed{seed}"
                record = results.add("runs", place, _measured(runner, recipe, place) | told, cell=cell, arm=arm)
                made += 1
            else:
                runner.refuse_other_data(record, recipe, results.path)
            records.append(record | {"cell": cell, "arm": arm, "seed": seed})
    print(f"{made} runs made now, {len(records) - made} taken from {results.path}", file=sys.stderr)
    return records


def _measured(runner: Runner, recipe: schema.Recipe, place: Path) -> tuning.Result:
    """The result of a run; one that is stopped goes on when the command is given again."""
    try:
        return runner.measure(recipe, place)
    except Interrupted as error:
        raise Stopped(place, error.signal) from error


def _tuned(
    cell: str,
    arm: str,
    arms: dict[str, schema.Recipe],
    runner: Runner,
    results: Results,
    folder: Path,
    tuned_by: Results | None,
) -> schema.Recipe:
    """The arm's recipe with what its best trial had; an arm without trials takes SEC's rate and decay."""
    ranges = tables.TUNINGS[arms[arm].data.name]
    own = arm in ranges.strengths
    method = arm if own else "sec"
    if tuned_by:
        return tuned(arms[arm], _carried(tuned_by, cell, method, arms[arm]), own)
    if method not in arms:
        raise ValueError(f"{arm} has no trials and takes SEC's learning rate: name the arm sec, too, or --no-tune")

    def measure(trial: schema.Recipe) -> dict[str, float]:
        record = results.find("trials", trial)
        if record is None:
            place = folder / "trials" / f"{cell}-{method}-{digest(trial)}"
            record = results.add("trials", place, _measured(runner, trial, place), cell=cell, arm=method)
        return record["last"]

    best, *_ = tuning.tune(method, arms[method], ranges, measure)
    return tuned(arms[arm], best.recipe, own)


def _carried(source: Results, cell: str, arm: str, recipe: schema.Recipe) -> schema.Recipe:
    """The other file's final run of this arm with this loss, whatever its network.

    A file without this data may have other data that is tuned alike: CIFAR-10's settings serve CIFAR-100.
    """
    made = [(run["arm"], runs.recipe_of(run["recipe"])) for run in source.records["runs"]]
    fits = [run for its, run in made if its == arm and run.loss == recipe.loss]
    name, of = recipe.data.name, {getattr(run.data, "name", "") for _, run in made}
    of &= {name} if name in of else {other for other, its in tables.TUNINGS.items() if its == tables.TUNINGS[name]}
    fits = [run for run in fits if getattr(run.data, "name", "") in of]
    if not fits:
        raise ValueError(f"{source.path} has no final run of arm {arm} with the loss of {cell} on its data or alike")
    if any((run.optimizer, run.constraint) != (fits[0].optimizer, fits[0].constraint) for run in fits):
        raise ValueError(f"{source.path} has final runs of arm {arm} for {cell} with different settings: keep one's")
    return fits[0]
