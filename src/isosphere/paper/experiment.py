"""Which experiment a file of results holds. Its identity is inside the file; its name is for people to read."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from isosphere import runs
from isosphere.paper.results import Results
from isosphere.paper.tables import TABLES, TUNED, Cells
from isosphere.recipes import options
from isosphere.recipes.fields import FREE
from isosphere.runs import Experiment

LONGEST = 100  # letters of a file's name


def open_results(
    folder: Path,
    table: str,
    cells: Cells,
    given: Mapping[str, Any],
    tuned: bool = True,
    paper: bool = False,
    tuned_by: Results | None = None,
) -> Results:
    """The file of this experiment in a folder of results, there or to be. The rest is as in `experiment`."""
    sought = experiment(table, cells, given, tuned, paper, tuned_by)
    return Results(place(folder, sought, given), sought)


def experiment(
    table: str,
    cells: Cells,
    given: Mapping[str, Any],
    tuned: bool = True,
    paper: bool = False,
    tuned_by: Results | None = None,
) -> Experiment:
    """The experiment of a table's cells, of which `given` are the fields changed in all recipes."""
    flat = [options.flat(options.to_dict(recipe)) for methods in cells.values() for recipe in methods.values()]
    changes = {}
    for field in sorted(given.keys() - set(FREE)):
        keys = (field, f"{field}.kind")  # of a group its kind was changed
        changes[field] = next(values[key] for values in flat for key in keys if key in values)
    protocol = "paper" if paper else "untuned" if table in TUNED and not tuned else ""
    dataset = next(iter(cells)).removeprefix("simclr-").split("-")[0]
    return Experiment(table, dataset, protocol, changes, tuned_by.path.stem if tuned_by else "")


def place(folder: Path, sought: Experiment, given: Mapping[str, Any]) -> Path:
    """The file of an experiment in this folder, whatever its name. If there is none, a plain name of its own."""
    for path in sorted(folder.glob("*.json")):
        if runs.experiment_of(path) == sought:
            return path
    marks = [sought.protocol] if sought.protocol else []
    before = {field: str(value) for field, value in given.items() if field not in FREE}
    older = folder / f"{runs.older_name(f'{sought.table}_{sought.dataset}', marks, before, sought.tuned_by)}.json"
    if older.is_file() and runs.experiment_of(older) is None:
        return older
    path = folder / f"{plain_name(sought)}.json"
    return path.with_stem(f"{path.stem}_{_digest(sought)}") if path.exists() else path


def siblings(folder: Path, sought: Experiment) -> list[Path]:
    """The files of the same experiment on all data sets."""
    found = ((path, runs.experiment_of(path)) for path in sorted(folder.glob("*.json")))
    return [path for path, held in found if held and replace(held, dataset=sought.dataset) == sought]


def plain_name(sought: Experiment) -> str:
    """simclr_cifar10_resnet18: a table in a word, the data, and what differs from the table's own recipe."""
    words = [TABLES[sought.table].word, sought.dataset, *filter(None, [sought.protocol])]
    words += [_words(field, value, words) for field, value in sought.changes.items()]
    if sought.tuned_by:
        words.append("tuned_by_" + (_rest(sought.tuned_by, words) or sought.tuned_by))
    name = re.sub(r"[^\w.+-]+", "-", "_".join(words))
    return name if len(name) <= LONGEST else f"{name[:LONGEST].rpartition('_')[0]}_{_digest(sought)}"


def _words(field: str, value: Any, before: list[str]) -> str:
    """A changed field. A kind and a network stand alone; other values follow the name of their field."""
    *group, field = field.split(".")
    if isinstance(value, str) and (not group or field == "backbone"):
        return _rest(value, before) or value
    if isinstance(value, bool):
        return field if value else f"no_{field}"
    if isinstance(value, (int, float)):
        return f"{field}{value:.3g}"
    text = "none" if value is None else value if isinstance(value, str) else "-".join(map(str, value))
    return f"{field}_{text}"


def _rest(name: str, before: list[str]) -> str:
    """What a name says beyond the words before it: of resnet18_cifar on cifar10 resnet18."""
    said = {form for word in before for form in (word, word.rstrip("0123456789"))}
    return "_".join(word for word in name.split("_") if word not in said)


def _digest(sought: Experiment) -> str:
    return hashlib.sha256(json.dumps(asdict(sought), sort_keys=True).encode()).hexdigest()[:6]
