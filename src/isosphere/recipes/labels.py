"""What a recipe is called: its parts in words, labels for several runs, and a run's own name.

Recipes are JSON in today's words, as `options.to_dict` and `isosphere.runs` give them.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from isosphere.recipes import constraints, options, schema
from isosphere.recipes.fields import FREE
from isosphere.recipes.own import own_name

Values = Mapping[str, Any]

UNLABELED = [kind.__name__ for kind in get_args(schema.Data) if not kind.labeled]

DATASETS = {
    "cub200": "CUB-200-2011", "cars196": "Cars196", "sop": "Stanford Online Products", "inshop": "In-Shop",
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "casia": "CASIA-WebFace", "lfw": "LFW",
}  # fmt: skip
LOSSES = {
    "MultiSimilarity": "multi-similarity", "SemiHard": "semi-hard triplet", "NPair": "N-pair", "Triplet": "triplet",
    "Contrastive": "contrastive", "NTXent": "NT-Xent", "ProxyAnchor": "Proxy-Anchor",
}  # fmt: skip


def group(recipe: Values, name: str) -> Values:
    """A group of fields; empty where a recipe of another version has none."""
    found = recipe.get(name)
    return found if isinstance(found, Mapping) else {}


def dataset(recipe: Values) -> str:
    """The data set, and what of it was held out to be tested."""
    data = group(recipe, "data")
    kind = data.get("kind", "unknown data")
    name = data.get("name") or ("rendered characters" if kind == "Rendered" else data.get("root") or kind)
    name = own_name(data["path"]) if "path" in data else name
    last = str(name).rstrip("/").split("/")[-1]
    name = DATASETS.get(last, drawable(last))
    return f"{name} ({held})" if (held := held_out(recipe)) else name


def held_out(recipe: Values) -> str:
    """What a trial is judged on: training images of CIFAR, else training classes; "" for a final run."""
    images = group(recipe, "data").get("kind") in UNLABELED
    return f"held-out training {'images' if images else 'classes'}" if group(recipe, "validation").get("only") else ""


def loss(recipe: Values) -> str:
    """The loss."""
    found = group(recipe, "loss")
    kind = found.get("kind", "unknown")
    return own_name(found["path"]) if "path" in found else str(LOSSES.get(kind, kind))


def method(recipe: Values) -> str:
    """The constraint, by its name in `constraints.METHODS`; "" of another version."""
    found = _constraint(recipe)
    return found.method if found else ""


def method_label(name: str) -> str:
    """A method in words; one without a label keeps its name."""
    known = constraints.METHODS.get(name)
    return (known and known.label) or name


def constraint(recipe: Values) -> str:
    """The constraint in words with its strength."""
    found = _constraint(recipe)
    return constraints.label(found) if found else "constraint of another version"


def _constraint(recipe: Values) -> constraints.Constraint | None:
    try:
        return options.from_dict(constraints.Constraint, group(recipe, "constraint") or {"kind": "Baseline"})
    except ValueError:
        return None


def rate(recipe: Values) -> float:
    """The learning rate of the head; NaN if the recipe has none."""
    return float(group(recipe, "optimizer").get("lr", "nan"))


def class_name(names: Sequence[str], label: int) -> str:
    """A class as it is shown: its name in words, or its number."""
    name = names[label] if 0 <= label < len(names) else ""
    return drawable(name.replace("_", " ")) or f"class {label}"


def drawable(name: str) -> str:
    """A file's name as a font can draw it: what is not UTF-8 as question marks."""
    return name.encode(errors="replace").decode()


# ---------------------------------------------------------------- several recipes


def flat(recipe: Values, prefix: str = "") -> dict[str, str]:
    """All fields as "group.field", with their values as text in six digits."""
    found: dict[str, str] = {}
    for name, value in recipe.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": _text(value)}
    return found


def _text(value: Any) -> str:
    return "none" if value is None else str(float(f"{value:.6g}") if isinstance(value, float) else value)


def fields_apart(recipes: Sequence[Values]) -> dict[str, list[str]]:
    """The fields in which any recipe differs from the first, with all values. A dash is where the field is missing."""
    found = [flat(recipe) for recipe in recipes]
    names = dict.fromkeys(name for one in found for name in one)
    values = {name: [one.get(name, "-") for one in found] for name in names}
    return {name: its for name, its in values.items() if len(set(its)) > 1}


def learned(recipe: Values, *but: str) -> dict[str, str]:
    """The fields that decide what is learned, less those that begin with any of `but`."""
    own = () if "name" in group(recipe, "data") else ("data.root",)  # a benchmark is the same wherever it is
    free = tuple(field for field in FREE if field not in ("model.weights", "data.exclude", *own))
    skipped = free + but
    return {field: value for field, value in flat(recipe).items() if not field.startswith(skipped)}


def differing(recipes: Sequence[Values], without: Sequence[str] = ()) -> dict[str, list[str]]:
    """What differs between recipes apart from the constraint, in words: its name -> a text for each recipe."""
    parts = {
        "loss": loss,
        "data set": dataset,
        "rate": lambda recipe: f"lr {rate(recipe):g}",
        "rho": lambda recipe: f"ρ {recipe['constraint']['rho']:g}" if "ema" in method(recipe) else "",
        "weight decay": lambda recipe: f"weight decay {group(recipe, 'optimizer').get('weight_decay', 0):g}",
        "model": lambda recipe: group(recipe, "model").get("backbone", ""),
        "steps": lambda recipe: f"{group(recipe, 'loop').get('steps', 0):,} steps",
        "seed": lambda recipe: f"seed {recipe.get('seed', 0)}",
    }
    said = {part: [say(recipe) for recipe in recipes] for part, say in parts.items() if part not in without}
    return {part: its for part, its in said.items() if len(set(its)) > 1}


def labels(recipes: Sequence[Values], names: Sequence[str] = (), without: Sequence[str] = ()) -> list[str]:
    """A label for each: the constraint and what else differs, less what is said elsewhere (`without`).

    Labels that are still the same get the `names`, if there are any.
    """
    parts = [[constraint(recipe) for recipe in recipes], *differing(recipes, without).values()]
    found = [", ".join(filter(None, words)) for words in zip(*parts, strict=True)]
    if names and len(set(found)) < len(found):
        found = [f"{label}, {drawable(name)}" for label, name in zip(found, names, strict=True)]
    return found


def about(recipes: Sequence[Values]) -> str:
    """What all have in common: "CUB-200-2011, triplet loss"; data sets that differ are all named."""
    losses = set(map(loss, recipes))
    return " and ".join(dict.fromkeys(map(dataset, recipes))) + (f", {losses.pop()} loss" if len(losses) == 1 else "")


# ---------------------------------------------------------------- a run's own name


def named(name: str, recipe: schema.Recipe, recipes: Mapping[str, schema.Recipe]) -> tuple[str, schema.Recipe]:
    """What a run of the recipe `name` is called after fields were changed, and the recipe with a claim that is true.

    Another constraint or kind of loss stands in both. It replaces what the name and the claim of `name` end with. A run
    on one's own photographs or faces is called as they are.
    """
    known = recipes[name]
    other_loss = type(recipe.loss) is not type(known.loss)
    plain = (key for key, its in recipes.items() if its.constraint == schema.Baseline())
    base = max((key for key in plain if f"{name}-".startswith(f"{key}-")), key=len)
    own = next((word for word in ("photos", "faces") if word in base.split("-")), "")
    root = Path(os.path.abspath(getattr(recipe.data, "root", "") or own))  # not resolved: a link has a name of its own
    first = base.replace(own, (root.name if root.is_dir() else root.stem) or own) if own else base
    if recipe.constraint == known.constraint and not other_loss:
        return first + name.removeprefix(base), recipe
    values = options.to_dict(recipe)
    claim = recipes[base].claim.split(":")[0] + (f", now with {loss(values)} loss" if other_loss else "")
    by_loss, by_constraint = ("path" in group(values, part) for part in ("loss", "constraint"))
    end = [loss(values) if by_loss else type(recipe.loss).__name__.lower()] * other_loss
    end += [constraint(values) if by_constraint else method(values)] * (method(values) != "none")
    claim = f"{claim}: {constraint(values)}" if recipe.claim == known.claim else recipe.claim
    return "-".join([first, *end]), replace(recipe, claim=claim)
