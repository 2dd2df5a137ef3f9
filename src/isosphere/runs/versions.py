"""What older versions of isosphere wrote, in today's words; nothing else knows their spellings."""

import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any

from isosphere.errors import Incompatible, Option
from isosphere.recipes import options, schema
from isosphere.runs.names import RENAMED as RENAMED_FILES

RENAMED = {"optimiser": "optimizer"}  # fields of a recipe
OPTIONS = {"arms": "methods"}  # of the command line
KINDS = {"Unlabelled": "Unlabeled"}  # values of `kind` in a recipe
RECORDED = {"arm": "method", "deviation": "notes"}  # keys of results and records
CONSTRAINTS = {"constraint.radius": "L2Reg", "constraint.balanced": "BalancedDirections"}
"""Fields that said which constraint it is, the first by a radius of 0."""
HELD_OUT = "data.held_out"
"""How many of the last training classes, or what share of the images, were measured on in place of test images."""
WARNINGS = {"normalised": "normalized"}  # names of a monitor's warnings


def recipe_of(values: dict[str, Any]) -> schema.Recipe:
    """The recipe in a JSON of any version."""
    return options.from_dict(schema.Recipe, translate_recipe(values))


def translate_recipe(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe's JSON of any version as today's."""
    found = _renamed(values)
    if not isinstance(found, dict):
        return found
    for group, today in (("constraint", _constraint), ("data", _data)):
        if isinstance(found.get(group), dict):
            found[group] = today(found[group])
    if isinstance(found.get("data"), dict) and (held_out := found["data"].pop("held_out", 0)):
        found["validation"] = _validation(held_out)
    return found


def _data(values: dict[str, Any]) -> dict[str, Any]:
    """Own images as they were split before there was a seed: the first classes by name train."""
    return ({"seed": None} if values.get("kind") in ("Folder", "OwnData") else {}) | values


def _validation(held_out: Any) -> dict[str, Any]:
    """What `data.held_out` says, in the fields of today."""
    return {"held_out": held_out, "seed": None, "only": True}


def _constraint(values: dict[str, Any]) -> dict[str, Any]:
    """The one kind of before, whose fields said which constraint it is, as one of today's kinds."""
    if values.get("kind", "Constraint") != "Constraint":
        return values
    fields = {key: value for key, value in values.items() if key not in ("kind", "balanced")}
    if values.get("balanced"):  # with a penalty too it is no kind of today, and the recipe cannot be read as one
        return values if values.get("eta") else {"kind": "BalancedDirections"}
    if not values.get("eta"):
        return {"kind": "Baseline"}
    if values.get("radius", "batch") == 0:
        return {"kind": "L2Reg"} | {key: fields[key] for key in ("eta", "ramp") if key in fields}
    return {"kind": "SEC"} | fields


def translate_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """`{"optimiser.lr": ...}` in today's fields, with one warning for all old ones.

    A field that is given in both spellings, with two values, is refused.
    """
    found: dict[str, Any] = {}
    said: dict[str, str] = {}  # today's field -> the one that was given
    old: list[str] = []
    for given, value in changes.items():
        path = _today(given)
        if given == "constraint.balanced" and str(value).lower() in ("false", "no"):
            old.append(given)
            continue
        if given == HELD_OUT:
            old.append(given)
            found |= {f"validation.{name}": its for name, its in _validation(value).items() if not _is_zero(value)}
            continue
        if given in CONSTRAINTS and (given != "constraint.radius" or _is_zero(value)):
            path, value = "constraint", CONSTRAINTS[given]
        if path != given:
            old.append(given)
        value = KINDS.get(value, value) if isinstance(value, str) else value
        if found.setdefault(path, value) != value:
            both = (" ".join(its) if isinstance(its, list) else its for its in (found[path], value))
            values = tuple(Option(path, its) for its in both)
            raise Incompatible((said[path], given), f"{said[path]} and {given} are one field, with two values", values)
        said.setdefault(path, given)
    if said.get("constraint", "") in CONSTRAINTS:  # of SEC's fields, those that this one lacks say nothing
        lost = [f"constraint.{name}" for name in _names(schema.SEC) - _names(getattr(schema, found["constraint"]))]
        old += [path for path in found if path in lost]
        found = {path: value for path, value in found.items() if path not in lost}
    if old:
        now = [path for path in found if path not in changes or said.get(path) in old]
        warnings.warn(f"old spelling: {', '.join(old)}; write {', '.join(now)}", stacklevel=2)
    return found


def _today(path: str) -> str:
    group, dot, rest = path.partition(".")
    return f"{(RENAMED | OPTIONS).get(group, group)}{dot}{rest}"


def _names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def old_fields(fields: Iterable[str]) -> list[str]:
    """What older versions called these fields, where it is not the same; `translate_changes` takes them."""
    names = ((field, old, new) for field in fields for old, new in RENAMED.items() if field.split(".")[0] == new)
    return [*(f"{old}{field.removeprefix(new)}" for field, old, new in names), "constraint.balanced", HELD_OUT]


def _is_zero(value: Any) -> bool:
    try:
        return float(value) == 0
    except (TypeError, ValueError):
        return False


def _renamed(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    kept = {RENAMED.get(key, key): _renamed(value) for key, value in values.items()}
    return kept | {"kind": KINDS.get(str(kept["kind"]), str(kept["kind"]))} if "kind" in kept else kept


def translate_record(record: dict[str, Any]) -> dict[str, Any]:
    """A result.json, or a record of a file of results, of any version. Its `notes` become a list of sentences."""
    found = {RECORDED.get(key, key): value for key, value in record.items()}
    if "notes" in found:
        notes = found["notes"] or []
        found["notes"] = [notes] if isinstance(notes, str) else list(notes)
    if "tuned_by" in found:
        found["tuned_by"] = RENAMED_FILES.get(found["tuned_by"], found["tuned_by"])
    return found | {"recipe": translate_recipe(found["recipe"])} if "recipe" in found else found


def translate_line(line: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl, or of a NormMonitor, of any version."""
    if line["kind"] != "alarm":
        return line
    found = {key: value for key, value in line.items() if key != "alarm"} | {"kind": "warning"}
    return found | {"warning": WARNINGS.get(line["alarm"], line["alarm"])} if "alarm" in line else found


def translate_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint of any version."""
    return {RENAMED.get(key, key): value for key, value in state.items()}
