"""The file of results that a table grows."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isosphere import locks, runs
from isosphere.errors import NotResults
from isosphere.metrics.registry import NORM_MEAN, NORM_VARIANCE
from isosphere.recipes import schema
from isosphere.recipes.fields import PLACES as PLACES_OF_DATA
from isosphere.recipes.identity import alike, base_names
from isosphere.train.journal import write_json

PLACES = [*(("data", name) for name in PLACES_OF_DATA), ("model", "weights")]  # fields that hold paths


class Results:
    """A JSON file of runs that grows by one at a time: `trials`, measured on training data, and final `runs`.

    Records have no paths, so that the file can be shared. A run is found again by its recipe, whatever the paths and
    the cadence of saving and testing it was made with; weights and lists of images count by their names.
    """

    def __init__(self, path: Path, experiment: runs.Experiment | None = None) -> None:
        self.path = runs.results_path(path)
        self.experiment = experiment
        self.records: dict[str, list[dict[str, Any]]] = {"trials": [], "runs": []}
        self._read()

    def _read(self) -> None:
        if not self.path.is_file():
            return
        held = runs.results_json(self.path)
        self.experiment = runs.experiment_of(self.path) or self.experiment
        for kind in self.records:
            found = held.get(kind)
            if not isinstance(found, list):
                raise NotResults(self.path, "is not a list", kind)
            try:
                self.records[kind] = [r | {"recipe": runs.translate_recipe(r["recipe"])} for r in found if r["recipe"]]
            except (KeyError, TypeError) as error:
                raise NotResults(self.path, f"{type(error).__name__}: {error}", kind) from error

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
        lines = [json.loads(line) for line in (folder / runs.METRICS).read_text(encoding="utf-8").splitlines()]
        names = ("step", "loss", NORM_MEAN, NORM_VARIANCE)
        finite = (line for line in lines if line["kind"] == "train" and all(name in line for name in names))
        record["norms"] = [[line[name] for name in names] for line in finite]  # an exploding variance is left out
        for name, of in (("tests", "test"), ("turns", "turn")):
            record[name] = [{k: v for k, v in line.items() if k != "kind"} for line in lines if line["kind"] == of]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locks.hold(self.path.with_name(".lock"), wait=True):
            self._read()
            if kind == "runs":  # one that was tuned in another way gives way
                place = [about[name] for name in about] + [recipe["seed"]]
                self.records[kind] = [
                    r for r in self.records[kind] if [r[name] for name in about] + [r["recipe"]["seed"]] != place
                ]
            self.records[kind].append(record)
            said = {} if self.experiment is None else {"experiment": asdict(self.experiment)}
            write_json(self.path, said | self.records)
        return record
