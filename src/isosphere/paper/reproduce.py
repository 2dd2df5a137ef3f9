"""A table of the paper, run: its trials, then its final runs seed by seed."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from isosphere import runs, terminal
from isosphere.errors import BadArgument, Incompatible, Interrupted, NoSettings, Option, Stopped
from isosphere.paper import tables
from isosphere.paper.evidence import followed
from isosphere.paper.results import Results
from isosphere.recipes import schema
from isosphere.recipes.identity import digest
from isosphere.recipes.ranges import TRIAL_SEED, tuned
from isosphere.runs import Record
from isosphere.train import tuning
from isosphere.train.tuning import Runner


def reproduce(
    cells: tables.Cells,
    seeds: Iterable[int],
    tune: bool,
    results: Results,
    folder: Path,
    device: str = "auto",
    tuned_by: Results | None = None,
) -> list[Record]:
    """Run the cells that `results` lacks: all trials, then the final runs seed by seed. Returns their records.

    With `tuned_by` no trial is run. Each method takes what its runs there had, and the records name that file.
    """
    seeds, recipes = list(seeds), [recipe for methods in cells.values() for recipe in methods.values()]
    if tune and TRIAL_SEED in seeds:
        raise BadArgument(Option("seeds"), TRIAL_SEED, "another seed than that of the trials")
    held_out = [recipe.validation.held_out for recipe in recipes if recipe.validation.held_out]
    if tune and held_out:
        raise BadArgument(Option("validation.held_out"), held_out[0], "0: final runs train on all classes")
    runner = Runner(device)
    chosen = {
        (cell, method): _tuned(cell, method, methods, runner, results, folder, tuned_by) if tune else recipe
        for cell, methods in cells.items()
        for method, recipe in methods.items()
    }
    source, made = {"tuned_by": tuned_by.path.stem} if tune and tuned_by else {}, 0
    records: list[Record] = []
    for seed in seeds:
        for (cell, method), recipe in chosen.items():
            recipe = followed(replace(recipe, seed=seed), cell, records)
            record = results.find("runs", recipe)
            if record is None:
                place = folder / f"{cell}-{method}-{digest(recipe)}-seed{seed}"
                record = results.add("runs", place, _measured(runner, recipe, place) | source, cell=cell, method=method)
                made += 1
            else:
                runner.refuse_other_data(record, recipe, results.path)
            records.append({**record, "cell": cell, "method": method, "seed": seed})
    terminal.say(f"{made} runs made now, {len(records) - made} taken from {results.path}")
    return records


def _measured(runner: Runner, recipe: schema.Recipe, place: Path) -> tuning.Result:
    """The result of a run; one that is stopped goes on when the command is given again."""
    try:
        return runner.measure(recipe, place)
    except Interrupted as error:
        raise Stopped(place, error.signal) from error


def _tuned(
    cell: str,
    method: str,
    methods: dict[str, schema.Recipe],
    runner: Runner,
    results: Results,
    folder: Path,
    tuned_by: Results | None,
) -> schema.Recipe:
    """The method's recipe with what its best trial had; a method without trials takes SEC's rate and decay."""
    ranges = tables.TUNINGS[methods[method].data.name]
    own = method in ranges.strengths
    tried = method if own else tables.PLAIN
    if tuned_by:
        return tuned(methods[method], _carried(tuned_by, cell, tried, methods[method]), own)
    if tried not in methods:
        reason = f"{method} has no trials and takes the learning rate of {tried}, which is not among the methods"
        raise Incompatible(("methods", "tune"), reason, (Option("methods", f"{method} {tried}"), Option("no-tune")))

    def measure(trial: schema.Recipe) -> dict[str, float]:
        record = results.find("trials", trial)
        if record is None:
            place = folder / "trials" / f"{cell}-{tried}-{digest(trial)}"
            record = results.add("trials", place, _measured(runner, trial, place), cell=cell, method=tried)
        return record["last"]

    best, *_ = tuning.tune(tried, methods[tried], ranges, measure)
    return tuned(methods[method], best.recipe, own)


def _carried(source: Results, cell: str, method: str, recipe: schema.Recipe) -> schema.Recipe:
    """The other file's final run of this method with this loss, whatever its network.

    A file without this data may have other data that is tuned alike: CIFAR-10's settings serve CIFAR-100.
    """
    made = [(run["method"], runs.recipe_of(run["recipe"])) for run in source.records["runs"]]
    fits = [run for its, run in made if its == method and run.loss == recipe.loss]
    name, of = recipe.data.name, {run.data.name for _, run in made}
    of &= {name} if name in of else {other for other, its in tables.TUNINGS.items() if its == tables.TUNINGS[name]}
    fits = [run for run in fits if run.data.name in of]
    if not fits:
        reason = "it has no final run with this loss, on this data or on data tuned alike"
        raise NoSettings(source.path, method, cell, reason)
    if any((run.optimizer, run.constraint) != (fits[0].optimizer, fits[0].constraint) for run in fits):
        raise NoSettings(source.path, method, cell, "its final runs differ in theirs; keep those of one")
    return fits[0]
