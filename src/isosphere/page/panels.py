"""The charts of runs: learning curves, norms, and how far directions turn."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from isosphere.page.charts import Series, legend, line_chart
from isosphere.page.distributions import distribution_chart
from isosphere.page.markup import note, section
from isosphere.page.metrics import NO_METRIC, NORMS, metric_names
from isosphere.page.sources import Run

TITLES = {
    "loss": "training loss", "metric": "loss without the penalty", "penalty": "penalty (eta included)",
    "lr": "learning rate of the first group", "norm_mean": "mean norm", "norm_variance": "variance of the norms",
    "norm_cv": "coefficient of variation of the norms",
    "lr_proxy_mean": "learning rate of directions (proxy), mean",
    "lr_proxy_cv": "learning rate of directions (proxy), coefficient of variation",
    "radial_share": "radial share of the squared gradient",
}  # fmt: skip
DIRECTIONS = ("lr_proxy_mean", "lr_proxy_cv", "radial_share")  # what training lines tell of directions
LOGARITHMIC = ("norm_mean", "norm_variance", "penalty", "lr_proxy_mean", "radial_share")


def curves_section(runs: Sequence[Run]) -> str:
    """Test metrics and training losses over steps."""
    tests = metric_names([line for run in runs for line in run.lines if line["kind"] == "test"])
    shown = [name for name in tests if name == "recall@1" or not name.startswith("recall@")]
    charts = [_course(runs, "test", name, f"{tests[name]} in test, %", 100) for name in shown]
    trained = dict.fromkeys(n for run in runs for line in run.lines if line["kind"] == "train" for n in line)
    losses = [n for n in trained if n not in NO_METRIC and not n.startswith("norm_")]
    if not any(value for run in runs for _, value in run.course("train", "penalty")):
        losses = [name for name in losses if name not in ("penalty", "metric")]  # the loss is all there is
    charts += [_course(runs, "train", name) for name in losses]
    return _charted("curves", "Learning curves", runs, charts)


def _course(runs: Sequence[Run], kind: str, name: str, title: str = "", scale: float = 1) -> str:
    series = []
    for run in runs:
        band = _extremes(run) if name == "norm_mean" else []
        points = [(step, scale * value) for step, value in run.course(kind, name)]
        series.append(Series(run.name, run.style, points, band))
    return line_chart(title or TITLES.get(name, name), "step", series, log=name in LOGARITHMIC)


def _extremes(run: Run) -> list[tuple[float, float, float]]:
    """(step, least, greatest norm of the training batch) where a line has both."""
    lines = [line for line in run.lines if line["kind"] == "train" and {"norm_min", "norm_max"} <= line.keys()]
    return [(line["step"], line["norm_min"], line["norm_max"]) for line in lines]


def _charted(name: str, title: str, runs: Sequence[Run], charts: Sequence[str], sentence: str = "") -> str:
    drawn = "".join(charts)
    if not drawn:
        return ""
    said = note(sentence) if sentence else ""
    styles = {run.name: run.style for run in runs}
    return section(name, title, said, legend(styles), f'<div class="charts">{drawn}</div>')


def _when(steps: Mapping[str, str]) -> str:
    """The steps that runs are seen at: once if all have the same, else of each, as one may not have come as far."""
    each = [f"{name}: {step}" for name, step in steps.items()]
    return f" ({', '.join(each if len(set(steps.values())) > 1 else list(steps.values())[:1])})"


# ---------------------------------------------------------------- norms


def norms_section(runs: Sequence[Run]) -> str:
    """Mean, variance and coefficient of variation over steps, and how norms are distributed at the end."""
    titles = {"norm_mean": "mean norm, and least to greatest"} if any(map(_extremes, runs)) else {}
    charts = [_course(runs, "train", name, titles.get(name, "")) for name in NORMS]
    tested = [
        (run.name, run.style, np.linalg.norm(run.embedded.embeddings, axis=1))
        for run in runs
        if run.embedded is not None
    ]
    relative = [(name, style, found / found.mean()) for name, style, found in tested if found.mean() > 0]
    shots = {run.name: run.snapshots[-1] for run in runs if run.snapshots and run.snapshots[-1].norms is not None}
    seen = [(run.name, run.style, shots[run.name].norms) for run in runs if run.name in shots]
    when = _when({name: f"step {shot.step}" for name, shot in shots.items()})
    images = " or ".join(dict.fromkeys(run.images for run in runs if run.embedded is not None))
    ratio = "norm / mean norm"
    charts += [
        distribution_chart(f"norms of {images}: density, log axis", "norm", tested, log=True),
        distribution_chart(f"norms of {images} over their mean: density, log axis", ratio, relative, log=True),
        distribution_chart(f"norms of training images, last snapshot{when}: density, log axis", "norm", seen, log=True),
    ]
    sentence = (
        "An update turns a short embedding further than a long one (Eq. 6). SEC pulls all norms to their mean: look at "
        "the coefficient of variation, which does not depend on the embeddings' scale."
    )
    if tested or seen:
        sentence += " On a logarithmic axis a hump is as wide as that is large, wherever it stands."
    return _charted("norms", "Norms", runs, charts, sentence)


# ---------------------------------------------------------------- directions


def directions_section(runs: Sequence[Run]) -> str:
    """How far training images turned between looks at them, how that depends on their norms, and what should."""
    turned, spread, slopes = [], [], []
    for run in runs:
        shots = [shot for shot in run.snapshots if shot.angles is not None]
        angles = [(shot.step, np.quantile(shot.angles, (0.1, 0.5, 0.9))) for shot in shots]
        band = [(step, low, high) for step, (low, _, high) in angles]
        turned.append(Series(run.name, run.style, [(step, middle) for step, (_, middle, _) in angles], band))
        spread.append(Series(run.name, run.style, [(shot.step, float(shot.angles.var())) for shot in shots]))
        slopes.append(Series(run.name, run.style, turn_slopes(run)))
    shots = {run.name: run.snapshots[-1] for run in runs if run.snapshots and run.snapshots[-1].angles is not None}
    last = [(run.name, run.style, shots[run.name].angles) for run in runs if run.name in shots]
    spans = {name: "" if shot.since is None else f"s {shot.since} to" for name, shot in shots.items()}
    when = _when({name: f"step{spans[name]} {shot.step}" for name, shot in shots.items()})
    charts = [
        line_chart("turn since the last look, degrees: median, 10 to 90 %", "step", turned),
        line_chart("variance of the turns, degrees²", "step", spread, log=True),
        line_chart("slope of log turn by log norm", "step", slopes, level=0.0),
        distribution_chart(f"turns until the last look{when}: density", "turn, degrees", last),
        *[_course(runs, "train", name) for name in DIRECTIONS],
    ]
    sentence = (
        "A slope of 0 says that long and short embeddings turn alike; by the paper's proxy it would be -2 for SGD and "
        "-1 for Adam, but real optimizers move weights, not embeddings. An angular loss has no radial gradient but for "
        "rounding (Proposition 1); a run of ours shows that of its loss without the penalty, a monitor's that of all."
    )
    return _charted("directions", "Directions", runs, charts, sentence)


def turn_slopes(run: Run) -> list[tuple[float, float]]:
    """(step, least-squares slope of log angle by log norm where the turn began) wherever it is defined or recorded."""
    found, norms = [], {shot.step: shot.norms for shot in run.snapshots}
    for shot in run.snapshots:
        before = norms.get(shot.since)
        if shot.angles is None or before is None or before.shape != shot.angles.shape:
            continue
        known = (before > 0) & (shot.angles > 0)
        x, y = np.log(before[known]), np.log(shot.angles[known])
        if len(x) > 2 and x.std() > 1e-6:
            found.append((shot.step, float(np.polyfit(x, y, 1)[0])))
    return [(step, slope) for step, slope in found if math.isfinite(slope)] + run.course("probe", "turn_slope")
