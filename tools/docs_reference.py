"""The reference pages, written from the code while the site is built; the equations are in formulas.py."""

import typing
from collections.abc import Iterable
from importlib import import_module

from formulas import FAMILIES, Family, Formula

from isosphere import cli, losses, runs
from isosphere.cli.parser import Parser
from isosphere.metrics import registry
from isosphere.recipes import RECIPES, options, schema

NO_LOSS = ("balanced_directions", "pair_loss", "RowSGD")  # public names of `losses` without a formula of their own
PLAIN = {
    "Training": ("isosphere.fit", "isosphere.load_run", "isosphere.front.TrainedRun", "isosphere.load"),
    "Search": ("isosphere.load_gallery", "isosphere.gallery.Gallery", "isosphere.gallery.index"),
    "In your own loop": (
        "isosphere.NormMonitor", "isosphere.ClassBatches", "isosphere.gather", "isosphere.functional.ramp",
        *(f"isosphere.{name}" for name in losses.__all__ if name in NO_LOSS[1:]),
        "isosphere.losses.constraint.Constraint",
    ),
    "Networks": (
        "isosphere.Embedder", "isosphere.build_embedder", "isosphere.expects", "isosphere.Expected",
    ),
    "The algebra": ("isosphere.sphere.norms", "isosphere.sphere.directions", "isosphere.sphere.cosines"),
}  # fmt: skip
WITH_METHODS = ("SEC", "TrainedRun", "Gallery", "NormMonitor", "ClassBatches", "Constraint", "RunFolder")
FILES = {
    runs.RECIPE: "Every field of the recipe, as JSON. `isosphere train --resume` and `load_run` read it.",
    runs.RUN: "Versions, hardware, git revision, start, and where the run was started from.",
    runs.SPLIT: "Which classes train, validate and test. `--data.split` takes it for another run on your own images.",
    runs.METRICS: "One JSON object a line, written while the run goes on. The kinds of lines are below.",
    runs.CHECKPOINT: "The network, optimizer, constraint, random states and step, of the last save. With validation "
    "also the best weights, which `load_run` takes.",
    f"{runs.SNAPSHOTS}/step-*.npz": "Norms of some training images at a step, and the angles that they turned since.",
    f"{runs.SNAPSHOTS}/directions-*.npy": "Directions that the next angles are measured from; gone at the end.",
    runs.EMBEDDINGS: "The last test embeddings in half precision, their scale, labels and class names.",
    runs.PATHS: "The paths of the test images, one a line, in the order of the embeddings.",
    runs.THUMBNAILS: "Test images that have no paths, if they are small.",
    "tensorboard/": "Events for TensorBoard, with `--loop.tensorboard true`.",
    runs.RESULT: "Written last: recipe, test metrics, duration, notes. `last` is of the last weights, with validation "
    "`best` of the best. It ends a run.",
}
KINDS = {
    "train": ("every `loop.log_every` steps", registry.TRAINED),
    "validation": ("at each evaluation of a run with validation", ("recall@1", "map@r", "knn", *registry.NORMS)),
    "test": (
        "at each evaluation; with validation at the end, of the best and the last weights",
        ("recall@1", "map@r", "accuracy", "knn", *registry.NORMS),
    ),
    "untrained": ("once, before training, of the backbone's features", ("recall@1", "map@r")),
    "turn": ("at each snapshot but the first", registry.TURNS),
    "warning": ("when a monitor warns, or a run ends below its untrained backbone", ()),
}


def pages() -> dict[str, str]:
    """Every generated page of reference/ by its name, as Markdown."""
    families = {name: family_page(family) for name, family in FAMILIES.items()}
    families["metrics"] += keys_table()
    return families | {
        "python": python_page(), "commands": commands_page(), "fields": fields_page(), "run_folder": folder_page(),
    }  # fmt: skip


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def object_of(path: str, level: int) -> str:
    """The block from which mkdocstrings writes signature and docstring, of some classes also those of methods."""
    lines = [f"::: {path}", "    options:", f"      heading_level: {level}", "      show_root_heading: true"]
    if path.rpartition(".")[2] in WITH_METHODS:
        lines += ["      members: null", "      inherited_members: [embed, encode]"]
        lines += ["      filters: ['!^_(?!_call__)', '!^extra_repr$']"]
    return "\n".join([*lines, ""])


# ---------------------------------------------------------------- formulas


def constraint_places() -> dict[str, str]:
    """The module of every constraint that a recipe can name."""
    kinds = [kind for kind in typing.get_args(schema.Constraint) if hasattr(kind, "built_by")]
    places = (kind.built_by.split(":") for kind in kinds if kind is not schema.Baseline)
    return {name: module for module, name in places}


def family_page(family: Family) -> str:
    """A page of losses, constraints or metrics."""
    parts = [f"# {family.title}\n\n{family.about}\n\n**Shapes:** {family.shapes}.\n"]
    parts += [formula_section(name, formula, family) for name, formula in family.formulas.items()]
    return "\n".join(parts)


def formula_section(name: str, formula: Formula, family: Family) -> str:
    """One name: signature, docstring, equation, cost, limits, and the function behind it."""
    module = constraint_places().get(name, family.module)
    shown = [object_of(f"{module}.{name}", 2), f"$$\n{formula.equation}\n$$\n", f"{formula.where}\n"]
    shown.append(f"- **Cost:** {formula.cost}\n- **Limits:** {formula.limits}\n")
    if formula.function:
        path = formula.function if "." in formula.function else f"isosphere.functional.{formula.function}"
        shown.append(object_of(path, 3))
    return "\n".join(shown)


def keys_table() -> str:
    """What numbers are called in files and tables."""
    known = [*registry.SCORES, *registry.OTHERS]
    recalls = [registry.metric("recall@1"), registry.metric("cmc@1"), registry.metric("rank1@1000")]
    pairs = [registry.metric(f"lfw_{end}") for end in registry.PAIRS]
    rows = [(f"`{one.key}`", one.heading, one.unit, one.better, one.about) for one in (*recalls, *known, *pairs)]
    about = "A unit of % means that files hold a fraction, which tables show times 100."
    return f"\n## Keys in files\n\n{about}\n\n" + table(("key", "heading", "unit", "better", "about"), rows)


# ---------------------------------------------------------------- names, commands, fields, files


def python_page() -> str:
    """The rest of the public names."""
    about = "Losses, constraints and metrics have pages of their own. All names can be had from `isosphere`."
    parts = [f"# Python\n\n{about}\n"]
    for title, paths in PLAIN.items():
        parts += [f"## {title}\n", *(object_of(path, 3) for path in paths)]
    return "\n".join(parts)


def commands_page() -> str:
    """Every command with its own help."""
    parts = ["# Commands\n\nThis is what `isosphere COMMAND --help` prints.\n"]
    for name in cli.COMMANDS:
        module = import_module(cli.module_of(name))
        parser = Parser(f"isosphere {name}", module.__doc__)
        module.declare(parser)
        parts.append(f"## {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n")
    return "\n".join(parts)


def fields_page() -> str:
    """Every field that a recipe can have, by group and kind."""
    about = (
        "A recipe is groups of fields. Change one with `--group.field value`, or a group's kind with `--group Kind`. "
        "The values are those of a new recipe; the recipes for your own images change some of them: "
        "`isosphere recipes photos-sec` shows all."
    )
    parts = [f"# Fields of a recipe\n\n{about}\n"]
    every, plain = options.every_field(schema.Recipe), options.describe(schema.Recipe())
    for group in dict.fromkeys(field.split(".")[0] for field in every):
        parts.append(f"## {group}\n")
        if group not in every:  # one kind alone
            parts.append(_fields(group, plain))
        elif not every[group]:  # no group
            parts.append(_fields("", [row for row in plain if row[0] == group]))
        for kind in every.get(group, ()):
            rows = options.describe(options.override(schema.Recipe(), {group: kind}))
            (about,) = (reason for field, _, _, reason in rows if field == group)
            parts.append(f"### {group} {kind}\n\n{about}\n\n{_fields(group, rows)}")
    return "\n".join([*parts, recipes_table()])


def _fields(group: str, rows: list[tuple[str, str, str, str]]) -> str:
    found = [row for row in rows if row[0].startswith(f"{group}." if group else "")]
    cells = [(f"`{field}`", f"`{kind}`", f"`{value}`" if value else "", why) for field, kind, value, why in found]
    return table(("field", "type", "value", "reason"), cells) if cells else ""


def recipes_table() -> str:
    """The recipes for one's own images."""
    return "## Recipes for your own images\n\n" + table(
        ("name", "about"), ((f"`{name}`", recipe.claim) for name, recipe in RECIPES.items())
    )


def folder_page() -> str:
    """The files of a run folder, and the lines of its journal."""
    about = "`isosphere train` writes one folder for each run. `report`, `figure` and `load_run` read it."
    files = table(("file", "holds"), ((f"`{name}`", text) for name, text in FILES.items()))
    lines = table(
        ("kind", "when", "keys besides `step` and `kind`"),
        ((f"`{kind}`", when, ", ".join(f"`{key}`" for key in keys)) for kind, (when, keys) in KINDS.items()),
    )
    return (
        f"# Files of a run folder\n\n{about}\n\n{files}\n"
        f"## Lines of {runs.METRICS}\n\n[Metrics](metrics.md#keys-in-files) has the meaning of each key. "
        "A test line has the keys of its task. A warning has `warning`, its name, and `text`.\n\n"
        f"{lines}\n## Reading it\n\n"
        f"{object_of('isosphere.runs.read', 3)}\n{object_of('isosphere.runs.RunFolder', 3)}"
    )
