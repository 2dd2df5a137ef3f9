"""What a recipe is called: data set, loss and constraint in words, labels that tell runs apart, a run's own name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isosphere import runs
from isosphere.recipes import constraints, options, schema
from isosphere.tables import PRIMARY, WATCHED, held_out

Recipe = dict[str, Any]  # as recipe.json holds it

DATASETS = {
    "cub200": "CUB-200-2011",
    "cars196": "Cars196",
    "sop": "Stanford Online Products",
    "inshop": "In-Shop",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "casia": "CASIA-WebFace",
    "lfw": "LFW",
}
LOSSES = {
    "MultiSimilarity": "multi-similarity",
    "SemiHard": "semi-hard triplet",
    "NPair": "N-pair",
    "Triplet": "triplet",
    "Contrastive": "contrastive",
    "NTXent": "NT-Xent",
    "ProxyAnchor": "Proxy-Anchor",
}
METRICS = {"recall@1": "R@1", "map@r": "MAP@R", "nmi": "NMI", "f1": "F1", "r_precision": "R-precision",
           "knn": "k-NN", "probe_top1": "probe top-1"}  # fmt: skip


def dataset(recipe: Recipe) -> str:
    """The data set; one of which training classes or images were held out to be tested says so."""
    data = recipe.get("data", {})
    kind = data.get("kind", "unknown data")
    name = data.get("name") or ("rendered characters" if kind == "Rendered" else data.get("root") or kind)
    last = str(name).rstrip("/").split("/")[-1]
    name = DATASETS.get(last, drawable(last))
    return f"{name} ({held})" if (held := held_out(recipe)) else name


def tested(recipes: Iterable[Recipe]) -> str:
    """What these runs were tested on."""
    return " and ".join(dict.fromkeys(held_out(recipe) or "test images" for recipe in recipes))


def loss(recipe: Recipe) -> str:
    """The loss."""
    kind = recipe.get("loss", {}).get("kind", "unknown")
    return LOSSES.get(kind, kind)


def arm(recipe: Recipe) -> str:
    """The constraint, by the name that it has in the tables."""
    return _constraint(recipe).method


def arm_words(name: str) -> str:
    """A constraint's name in words; one without words keeps its name."""
    return constraints.METHODS[name].label if name in constraints.METHODS else name


def place(name: str) -> int:
    """Where a constraint stands in a legend."""
    return constraints.place(name)


def constraint(recipe: Recipe) -> str:
    """The constraint in words with its strength."""
    return constraints.label(_constraint(recipe))


def _constraint(recipe: Recipe) -> constraints.Constraint:
    held = runs.translate_recipe(recipe).get("constraint") or {"kind": "Baseline"}
    return options.from_dict(constraints.Constraint, held, "constraint")


def rate(recipe: Recipe) -> float:
    """The learning rate of the head; NaN if the recipe has none."""
    return float(recipe.get("optimizer", {}).get("lr", "nan"))


def metric(name: str) -> str:
    """A metric as it is printed."""
    return METRICS.get(name, name.replace("recall@", "R@"))


def headline(found: Iterable[dict[str, float]]) -> str:
    """The metric by which these runs are judged, from what they measured at the end."""
    return _first((*PRIMARY, *WATCHED), found)


def watched(found: Iterable[dict[str, float]]) -> str:
    """The metric of which the course is told, from what was measured on the way."""
    return _first(WATCHED, found)


def _first(metrics: Sequence[str], found: Iterable[dict[str, float]]) -> str:
    names = {name for one in found for name in one}
    return next((name for name in metrics if name in names), metrics[0])


def class_name(names: dict[int, str], label: int) -> str:
    """A class as it is shown: its name in words, or its number."""
    return drawable(names.get(int(label), "").replace("_", " ")) or f"class {label}"


def drawable(name: str) -> str:
    """A file's name as a font can draw it: what is not UTF-8 as question marks."""
    return name.encode(errors="replace").decode()


def differing(recipes: Sequence[Recipe], without: Sequence[str] = ()) -> dict[str, list[str]]:
    """What but the constraint differs between recipes, in words: its name -> a text for each recipe."""
    parts = {
        "loss": loss,
        "data set": dataset,
        "rate": lambda recipe: f"lr {rate(recipe):g}",
        "rho": lambda recipe: f"ρ {recipe['constraint']['rho']:g}" if "ema" in arm(recipe) else "",
        "weight decay": lambda recipe: f"weight decay {recipe.get('optimizer', {}).get('weight_decay', 0):g}",
        "model": lambda recipe: recipe.get("model", {}).get("backbone", ""),
        "steps": lambda recipe: f"{recipe.get('loop', {}).get('steps', 0):,} steps",
        "seed": lambda recipe: f"seed {recipe.get('seed', 0)}",
    }
    said = {part: [say(recipe) for recipe in recipes] for part, say in parts.items() if part not in without}
    return {part: its for part, its in said.items() if len(set(its)) > 1}


def labels(recipes: Sequence[Recipe], names: Sequence[str] = (), without: Sequence[str] = ()) -> list[str]:
    """A label for each: the constraint, and of the rest what differs, less what is told elsewhere (`without`).

    Labels that are still the same are parted by `names`, if there are any.
    """
    parts = [[constraint(recipe) for recipe in recipes], *differing(recipes, without).values()]
    found = [", ".join(filter(None, words)) for words in zip(*parts, strict=True)]
    if names and len(set(found)) < len(found):
        found = [f"{label}, {drawable(name)}" for label, name in zip(found, names, strict=True)]
    return found


def about(recipes: Sequence[Recipe]) -> str:
    """What all have in common: "CUB-200-2011, triplet loss"; data sets that differ are all named."""
    sets = list(dict.fromkeys(map(dataset, recipes)))
    losses = set(map(loss, recipes))
    return " and ".join(sets) + (f", {losses.pop()} loss" if len(losses) == 1 else "")


def named(name: str, recipe: schema.Recipe, recipes: Mapping[str, schema.Recipe]) -> tuple[str, schema.Recipe]:
    """What a run of the recipe `name` is called after fields were changed, and the recipe with a claim that is true.

    Another constraint or kind of loss stands in both, in place of what the name and the claim of `name` end with; a run
    on one's own photographs or faces is called as they are.
    """
    known = recipes[name]
    other_loss = type(recipe.loss) is not type(known.loss)
    plain = (key for key, its in recipes.items() if its.constraint == schema.Baseline())
    base = max((key for key in plain if f"{name}-".startswith(f"{key}-")), key=len)
    own = next((word for word in ("photos", "faces") if word in base.split("-")), "")
    root = Path(getattr(recipe.data, "root", "") or own).resolve()
    first = base.replace(own, (root.name if root.is_dir() else root.stem) or own) if own else base
    if recipe.constraint == known.constraint and not other_loss:
        return first + name.removeprefix(base), recipe
    told = options.to_dict(recipe)
    about = recipes[base].claim.split(":")[0] + (f", now with {loss(told)} loss" if other_loss else "")
    parts = [first] + [type(recipe.loss).__name__.lower()] * other_loss + [arm(told)] * (arm(told) != "none")
    claim = f"{about}: {constraint(told)}" if recipe.claim == known.claim else recipe.claim
    return "-".join(parts), replace(recipe, claim=claim)
