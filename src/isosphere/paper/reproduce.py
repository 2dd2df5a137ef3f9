"""Many runs in one process: data and compilation are paid once, finished runs are skipped, stopped ones resumed."""

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from isosphere import distributed, locks, runs
from isosphere.paper import tables
from isosphere.recipes import options, schema
from isosphere.recipes.fields import FREE_FIELDS
from isosphere.recipes.fields import PLACES as PLACES_OF_DATA
from isosphere.train import state
from isosphere.train.faces import face_counts
from isosphere.train.folder import held
from isosphere.train.journal import environment, write_json
from isosphere.train.loop import Run, prepare, train
from isosphere.train.stopping import Interrupted, NonFiniteLoss

PLACES = [*(("data", name) for name in PLACES_OF_DATA), ("model", "weights")]  # fields that hold paths
NAMED = [("model", "weights"), ("data", "exclude"), ("data", "probes"), ("data", "distractors")]


class Runner:
    """Trains recipes one after another, each lending its data and compiled network to the next."""

    def __init__(self, device: str = "auto") -> None:
        self.device = distributed.pick_device(device)
        self.before: Run | None = None
        self.counts: dict[schema.Data, dict[str, int]] = {}  # of people, who are listed once

    def run(self, recipe: schema.Recipe, folder: Path) -> dict[str, Any]:
        """What the folder's result.json holds, after training if it is not there yet."""
        with held(folder):
            return self._run(recipe, folder)

    def _run(self, recipe: schema.Recipe, folder: Path) -> dict[str, Any]:
        if (folder / "result.json").is_file():
            held = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            if not alike(runs.recipe_of(held["recipe"]), recipe):
                raise ValueError(f"{folder} holds the result of another recipe: choose another folder")
            self.refuse_other_data(held, recipe, folder)
            return held
        if self.before is not None and self.before.caught:
            # It came in a last step or exam, or as a run diverged: that one is told, and no other begins.
            raise Interrupted("stopped between two runs; what is finished is kept", self.before.caught[0])
        run = prepare(recipe, self.device, self.before)
        resume = (folder / runs.CHECKPOINT).is_file()
        if resume:
            state.restore(run, state.load(folder / runs.CHECKPOINT, recipe))
        self.before = run
        return train(run, folder, resume)

    def refuse_other_data(self, held: dict[str, Any], recipe: schema.Recipe, place: Path) -> None:
        """A result on one's own people is not taken for one on others: where these are at hand, numbers must agree.

        Benchmarks need no such check: what their copies lack is refused, or told in the result.
        """
        data = recipe.data
        if "counts" not in held or not all(one and Path(one).exists() for one in (data.root, data.pairs_root)):
            return
        if data not in self.counts:
            try:
                self.counts[data] = face_counts(data)
            except FileNotFoundError:  # of probes or distractors
                return
        now = self.counts[data]
        if now != held["counts"]:
            told = ", ".join(f"{count} {name} (now {now[name]})" for name, count in held["counts"].items())
            raise ValueError(f"{place} holds a result on other data: {told}; name others with --results and --out")


def run_many(recipes: dict[Path, schema.Recipe], device: str = "auto") -> dict[Path, dict[str, Any]]:
    """Train each recipe into its folder; returns what each result.json holds."""
    runner = Runner(device)
    return {folder: runner.run(recipe, folder) for folder, recipe in recipes.items()}


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


FREE = (*FREE_FIELDS, "data.allow_missing")


def alike(one: schema.Recipe, other: schema.Recipe) -> bool:
    """Whether two recipes train and are measured the same, wherever their files are; those in `NAMED` count by name."""
    return _named(one) == _named(other) and all(key in FREE for key in options.differences(one, other))


def _named(recipe: schema.Recipe) -> list[str | list[str]]:
    return [base_names(getattr(getattr(recipe, group), name, None) or "") for group, name in NAMED]


def base_names(paths: str | Iterable[str]) -> str | list[str]:
    """Paths without their folders."""
    return Path(paths).name if isinstance(paths, str) else [Path(path).name for path in paths]


def digest(recipe: schema.Recipe) -> str:
    """Six letters that tell recipes apart which are not alike but for their seed."""
    fields = options.differences(schema.Recipe(), replace(recipe, seed=0))
    told = {key: value for key, (_, value) in fields.items() if key not in FREE}
    told |= {f"{group}.{name}": names for (group, name), names in zip(NAMED, _named(recipe), strict=True) if names}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:6]


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
    if tune and tables.TRIAL_SEED in seeds:
        raise ValueError(f"seed {tables.TRIAL_SEED} is the trials': final runs need others")
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


def _measured(runner: Runner, recipe: schema.Recipe, place: Path) -> dict[str, Any]:
    """The result of a run; one that diverged has no metrics, and is told, not hidden."""
    try:
        return runner.run(recipe, place)
    except Interrupted as error:
        raise Interrupted(f"{place.name}: {error}; the same command goes on with it", error.signal) from error
    except NonFiniteLoss as error:
        print(f"{place.name}: {error}", file=sys.stderr)
        return {"recipe": options.to_dict(recipe), "last": {}, "diverged": str(error)} | environment(runner.device)


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
    tuning = tables.TUNINGS[arms[arm].data.name]
    own = arm in tuning.strengths
    tuned = arm if own else "sec"
    if tuned_by:
        return tables.tuned(arms[arm], _carried(tuned_by, cell, tuned, arms[arm]), own)
    if tuned not in arms:
        raise ValueError(f"{arm} has no trials and takes SEC's learning rate: name the arm sec, too, or --no-tune")

    def score(recipe: schema.Recipe) -> float:
        record = results.find("trials", recipe)
        if record is None:
            place = folder / "trials" / f"{cell}-{tuned}-{digest(recipe)}"
            short = recipe.loop.steps <= tuning.steps  # a longer one is saved on its way as a final run is
            every = 0 if short else recipe.loop.save_every
            light = replace(recipe.loop, save_every=every, snapshot_every=0, save_embeddings=False)
            result = _measured(runner, replace(recipe, loop=light), place)
            record = results.add("trials", place, result, cell=cell, arm=tuned)
        return tables.score(recipe, record["last"])

    ranked = sorted(tables.trials(tuned, arms[tuned]), key=score, reverse=True)
    finalists = sorted(tables.finalists(arms[tuned], ranked), key=score, reverse=True)
    return tables.tuned(arms[arm], (finalists or ranked)[0], own)


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
