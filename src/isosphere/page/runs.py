"""The sections about run folders: metrics, curves, norms, directions, recipes and where each run comes from."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from isosphere.page.charts import Series, histogram, legend, line_chart
from isosphere.page.markup import folded, listed, note, number, percent, section, table
from isosphere.page.sources import Run
from isosphere.recipes import options, schema
from isosphere.tables import NOT_TRAINED, SEEN_NEVER, columns

NORMS = {"norm_mean": "mean norm", "norm_variance": "variance", "norm_cv": "coeff. of variation"}
TITLES = {
    "loss": "training loss", "metric": "loss without the penalty", "penalty": "penalty (eta included)",
    "lr": "learning rate of the first group", "norm_mean": "mean norm", "norm_variance": "variance of the norms",
    "norm_cv": "coefficient of variation of the norms", "turn_mean": "mean turn of the probe, degrees",
    "turn_variance": "variance of the probe's turn", "turn_slope": "slope of log turn by log norm (probe)",
}  # fmt: skip
ORIGIN = ("started", "seconds", "hardware", "versions", "git", "command")
LOGARITHMIC = ("norm_mean", "norm_variance", "penalty", "turn_variance")


def run_sections(runs: Sequence[Run]) -> list[str]:
    """All sections about the runs, but for the gallery and the recipes."""
    return [metrics_section(runs), curves_section(runs), norms_section(runs), directions_section(runs)]


# ---------------------------------------------------------------- metrics


def metric_names(found: Sequence[dict[str, float]]) -> dict[str, str]:
    """The metrics, all fractions, that any of them has: those of retrieval first, then others by their own names."""
    present = dict.fromkeys(name for one in found for name in one)
    known = {name: title for name, title in columns(list(found)).items() if name in present}
    skipped = ("kind", "step", "singletons", "r_precision")
    return known | {n: n for n in present if n not in known and n not in skipped and not n.startswith("norm_")}


def caption(metrics: dict[str, str]) -> str:
    """Retrieval is measured on classes never seen in training; other tasks are not."""
    return SEEN_NEVER if "recall@1" in metrics else NOT_TRAINED


def metrics_section(runs: Sequence[Run]) -> str:
    """The last evaluation of every run, the best beside it, and the norms."""
    metrics = metric_names([run.last for run in runs])
    best = [name for name in ("recall@1",) if any(name in run.oracle for run in runs)]
    head = ["run", "state", *metrics.values(), *["R@1 of the best step" for _ in best], *NORMS.values()]
    rows = []
    for run in runs:
        measured = [percent(run.last.get(name)) for name in metrics] + [percent(run.oracle.get(name)) for name in best]
        rows.append([run.name, _state(run), *measured, *[number(run.last.get(name)) for name in NORMS]])
    told = [f"{run.name}: {sentence}" for run in runs for sentence in _warnings(run)]
    if best:
        told.append("The best step is picked on the test classes themselves: it is no result, only a bound.")
    return section("metrics", "Metrics", table(caption(metrics), head, rows, words=2), listed(told), _missing(runs))


def _missing(runs: Sequence[Run]) -> str:
    """What the runs lack, a line for all that lack the same."""
    lost: dict[str, list[str]] = {}
    for run in runs:
        for sentence in run.missing:
            lost.setdefault(sentence, []).append(run.name)
    lines = listed(f"{', '.join(names)}: {sentence}" for sentence, names in lost.items())
    return f'<div class="missing" role="note"><h3>What is missing</h3>{lines}</div>' if lost else ""


def _state(run: Run) -> str:
    done = max((line["step"] for line in run.lines), default=0)
    return f"finished, {done} steps" if run.finished else f"unfinished, {done} of {value_of(run.recipe, 'loop.steps')}"


def _warnings(run: Run) -> list[str]:
    said = [f"deviates from the benchmark: {run.about['deviation']}"] if run.about.get("deviation") else []
    if run.last.get("singletons"):
        said.append(f"{run.last['singletons']:.0f} queries have no other image of their class and count as wrong")
    return said


# ---------------------------------------------------------------- curves


def curves_section(runs: Sequence[Run]) -> str:
    """Test metrics and training losses over steps."""
    tests = metric_names([line for run in runs for line in run.lines if line["kind"] == "test"])
    shown = [name for name in tests if name == "recall@1" or not name.startswith("recall@")]
    charts = [_course(runs, "test", name, f"{tests[name]} in test, %", 100) for name in shown]
    trained = dict.fromkeys(n for run in runs for line in run.lines if line["kind"] == "train" for n in line)
    losses = [n for n in trained if n not in ("kind", "step") and not n.startswith(("norm_", "turn_"))]
    if not any(value for run in runs for _, value in run.course("train", "penalty")):
        losses = [name for name in losses if name not in ("penalty", "metric")]  # the loss is all there is
    charts += [_course(runs, "train", name) for name in losses]
    return _charted("curves", "Learning curves", runs, charts)


def _course(runs: Sequence[Run], kind: str, name: str, title: str = "", scale: float = 1) -> str:
    series = []
    for style, run in enumerate(runs):
        series.append(Series(run.name, style, [(step, scale * value) for step, value in run.course(kind, name)]))
    return line_chart(title or TITLES.get(name, name), "step", series, log=name in LOGARITHMIC)


def _charted(name: str, title: str, runs: Sequence[Run], charts: Sequence[str], sentence: str = "") -> str:
    drawn = "".join(charts)
    if not drawn:
        return ""
    said = note(sentence) if sentence else ""
    return section(name, title, said, legend([run.name for run in runs]), f'<div class="charts">{drawn}</div>')


# ---------------------------------------------------------------- norms


def norms_section(runs: Sequence[Run]) -> str:
    """Mean, variance and coefficient of variation over steps, and how norms are distributed at the end."""
    charts = [_course(runs, "train", name) for name in NORMS]
    embedded = {style: run.embedded.embeddings for style, run in enumerate(runs) if run.embedded is not None}
    tests = {style: np.linalg.norm(found, axis=1) for style, found in embedded.items()}
    seen = {style: run.snapshots[-1].norms for style, run in enumerate(runs) if run.snapshots}
    charts.append(_distribution("norms of test images, % of them", "norm", runs, tests))
    relative = {style: found / found.mean() for style, found in tests.items() if found.mean() > 0}
    charts.append(_distribution("test norms over their mean, % of images", "norm / mean norm", runs, relative))
    charts.append(_distribution("norms of training images, last snapshot, %", "norm", runs, seen))
    sentence = (
        "An update turns a short embedding further than a long one (Eq. 6). SEC pulls all norms to their mean: look at "
        "the coefficient of variation, which does not depend on the embeddings' scale."
    )
    return _charted("norms", "Norms", runs, charts, sentence)


def _distribution(title: str, name: str, runs: Sequence[Run], found: dict[int, np.ndarray]) -> str:
    if not found:
        return ""
    low, high = (float(edge([edge(values) for values in found.values()])) for edge in (min, max))
    series = [Series(runs[style].name, style, histogram(values, low, high)) for style, values in found.items()]
    return line_chart(title, name, series)


# ---------------------------------------------------------------- directions


def directions_section(runs: Sequence[Run]) -> str:
    """How far training images turned between snapshots, and how that depends on their norms."""
    turned, spread, slopes = [], [], []
    for style, run in enumerate(runs):
        shots = [shot for shot in run.snapshots if shot.angles is not None]
        angles = [(shot.step, np.quantile(shot.angles, (0.1, 0.5, 0.9))) for shot in shots]
        band = [(step, low, high) for step, (low, _, high) in angles]
        turned.append(Series(run.name, style, [(step, middle) for step, (_, middle, _) in angles], band))
        spread.append(Series(run.name, style, [(shot.step, float(shot.angles.var())) for shot in shots]))
        slopes.append(Series(run.name, style, turn_slopes(run)))
    last = {s: run.snapshots[-1].angles for s, run in enumerate(runs) if run.snapshots}
    last = {style: angles for style, angles in last.items() if angles is not None}
    charts = [
        line_chart("turn since the snapshot before, degrees: median, 10 to 90 %", "step", turned),
        line_chart("variance of the turns, degrees²", "step", spread, log=True),
        line_chart("slope of log turn by log norm", "step", slopes, level=0.0),
        _distribution("turns in the last snapshot, % of images", "degrees", runs, last),
        *[_course(runs, "train", name) for name in ("turn_mean", "turn_variance", "turn_slope")],
    ]
    sentence = (
        "A slope of 0 says that long and short embeddings turn alike; by the paper's proxy it would be -2 for SGD and "
        "-1 for Adam, but real optimisers move weights, not embeddings."
    )
    return _charted("directions", "Directions", runs, charts, sentence)


def turn_slopes(run: Run) -> list[tuple[float, float]]:
    """(step, least-squares slope of log angle by log norm at the snapshot before) wherever it is defined."""
    found = []
    for before, shot in pairwise(run.snapshots):
        if shot.angles is None or before.norms.shape != shot.angles.shape:
            continue
        known = (before.norms > 0) & (shot.angles > 0)
        x, y = np.log(before.norms[known]), np.log(shot.angles[known])
        if len(x) > 2 and x.std() > 1e-6:
            found.append((shot.step, float(np.polyfit(x, y, 1)[0])))
    return [(step, slope) for step, slope in found if math.isfinite(slope)]


# ---------------------------------------------------------------- recipes


def differing(recipes: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The fields in which any recipe differs from the first, and their values in all of them."""
    fields = dict.fromkeys(key for other in recipes[1:] for key in options.differences(recipes[0], other))
    return {field: [value_of(recipe, field) for recipe in recipes] for field in fields}


def value_of(recipe: dict[str, Any], field: str) -> str:
    """The value at "group.field" as text, a dash where the recipe has no such field."""
    node: Any = recipe
    for part in field.split("."):
        node = node.get(part, "-") if isinstance(node, dict) else "-"
    return "none" if node is None else str(node)


def recipes_section(runs: Sequence[Run]) -> str:
    """What distinguishes the recipes, each in full with the reasons, and where the runs come from."""
    named = [run for run in runs if run.recipe]
    parts = []
    if len(named) > 1:
        fields = differing([run.recipe for run in named])
        rows = [[field, *values] for field, values in fields.items()]
        head = ["field", *[run.name for run in named]]
        same = note("All recipes are the same.")
        parts.append(table("fields in which the recipes differ", head, rows, words=len(head)) if rows else same)
    parts += [folded(f"all of {run.name}'s recipe", _whole(run)) for run in named]
    head = ["run", *ORIGIN]
    rows = [[run.name, *_origin(run.about)] for run in runs]
    parts.append(folded("where the runs come from", table("where the runs come from", head, rows, words=len(head))))
    return section("recipes", "Recipes", *parts)


def _whole(run: Run) -> str:
    try:
        recipe = options.from_dict(schema.Recipe, run.recipe)
    except ValueError:  # of another version: no reasons for its fields
        rows = [[field, value_of(run.recipe, field)] for field in _fields(run.recipe)]
        return table(f"recipe of {run.name}", ["field", "value"], rows, words=2)
    rows = [[field, value, " ".join(reason.split())] for field, _, value, reason in options.describe(recipe)]
    return table(f"recipe of {run.name}", ["field", "value", "reason"], rows, words=3)


def _fields(recipe: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, value in recipe.items():
        found += _fields(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return found


def _origin(about: dict[str, Any]) -> list[str]:
    found = []
    for name in ORIGIN:
        value = about.get(name)
        if isinstance(value, dict):
            value = ", ".join(f"{key} {each}" for key, each in value.items() if each is not None)
        found.append("-" if value is None else str(value))
    return found
