"""The file of results that a table grows."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isosphere import locks, runs
from isosphere.metrics.registry import NORM_MEAN, NORM_VARIANCE
from isosphere.recipes import schema
from isosphere.recipes.fields import PLACES as PLACES_OF_DATA
from isosphere.recipes.identity import alike, base_names
from isosphere.report.records import with_training_loss
from isosphere.runs import Record
from isosphere.train.journal import write_json

PLACES = [*(("data", name) for name in PLACES_OF_DATA), ("model", "weights")]  # fields that hold paths


class Results:
    """A JSON file of runs that grows by one at a time: `trials`, measured on training data, and final `runs`.

    Records have no paths, so that the file can be shared. A run is found again by its recipe. Paths do not count, and
    neither does how often it was saved and tested. Weights and lists of images count by their names.
    """

    def __init__(self, path: Path, experiment: runs.Experiment | None = None) -> None:
        self.path = runs.results_path(path)
        self.experiment = experiment
        self.records: dict[str, list[Record]] = {"trials": [], "runs": []}
        self._read()

    def _read(self) -> None:
        if self.path.is_file():
            held = runs.read_results(self.path)
            self.experiment = held.experiment or self.experiment
            self.records = {"trials": held.trials, "runs": held.runs}

    def find(self, kind: str, recipe: schema.Recipe) -> Record | None:
        """The record of this recipe, if there is one."""
        return next((r for r in self.records[kind] if alike(runs.recipe_of(r["recipe"]), recipe)), None)

    def add(self, kind: str, folder: Path, result: dict[str, Any], cell: str, method: str) -> Record:
        """Keep a finished run, with the course of its norms, tests and turns, and write the file.

        What other processes have added meanwhile is kept.
        """
        recipe = json.loads(json.dumps(result["recipe"]))
        for group, name in PLACES:
            if recipe[group].get(name):
                recipe[group][name] = base_names(recipe[group][name])
        place = {"cell": cell, "method": method, "seed": recipe["seed"]}
        record: Any = place | {k: v for k, v in result.items() if k != "command"} | {"recipe": recipe}
        lines = runs.entries(folder)
        names = ("step", "loss", NORM_MEAN, NORM_VARIANCE)
        finite = (line for line in lines if line["kind"] == "train" and all(name in line for name in names))
        record["norms"] = [[line[name] for name in names] for line in finite]  # an exploding variance is left out
        watched = "validation" if "validation" in result else "test"
        for name, of in (("tests", watched), ("turns", "turn")):
            record[name] = [{k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == of]
        record["tests"] = with_training_loss(record["tests"], [line for line in lines if line["kind"] == "train"])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locks.hold(self.path.with_name(".lock"), wait=True):
            self._read()
            if kind == "runs":  # one that was tuned in another way gives way
                before = self.records[kind]
                self.records[kind] = [r for r in before if (r["cell"], r["method"], r["seed"]) != (*place.values(),)]
            self.records[kind].append(record)
            said = {} if self.experiment is None else {"experiment": asdict(self.experiment)}
            kept = {its: [_less_seed(r) for r in found] for its, found in self.records.items()}
            write_json(self.path, said | kept)
        return record


def _less_seed(record: Record) -> dict[str, Any]:
    """A record as it is written: the recipe has the seed."""
    return {key: value for key, value in record.items() if key != "seed"}
