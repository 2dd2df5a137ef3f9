"""The charts of runs: learning curves, norms, and how far directions turn."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isosphere.metrics import registry
from isosphere.report import style
from isosphere.report.norms import draw_densities
from isosphere.report.page.markup import charts, note, number, section, titled
from isosphere.report.page.sources import images_of
from isosphere.report.records import embedded
from isosphere.report.svg import legend, panel_svg, thinned
from isosphere.report.turns import turn_slopes
from isosphere.runs import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Styles = Mapping[str, tuple[str, str]]
Points = Sequence[tuple[float, float]]
Bands = Mapping[str, Sequence[tuple[float, float, float]]]  # (step, low, high)


def line_chart(
    title: str,
    lines: Mapping[str, Points],
    styles: Styles,
    log: bool = False,
    bands: Bands | None = None,
    level: float | None = None,
    x_name: str = "step",
) -> str:
    """Lines over steps, with bands; nothing where no line has two points."""
    kept = {name: [point for point in points if point[1] > 0 or not log] for name, points in lines.items()}
    kept = {name: points for name, points in kept.items() if points}
    if max(map(len, kept.values()), default=0) < 2:
        return ""

    def draw(panel: "Axes") -> None:
        for name, band in (bands or {}).items():
            if band and name in kept:
                steps, low, high = zip(*thinned(band), strict=True)
                panel.fill_between(steps, low, high, color=styles[name][0], alpha=0.16, linewidth=0)
        for name, points in kept.items():
            color, line = styles[name]
            panel.plot(*zip(*thinned(points), strict=True), color=color, linestyle=line)
        if level is not None:
            panel.axhline(level, color=style.GRAY, linewidth=1)
        style.plain_axes(panel, log)
        panel.set_xlabel(x_name)

    words = "; ".join(f"{name} ends at {number(points[-1][1])}" for name, points in kept.items())
    return titled(title + ", log axis" * log, panel_svg(draw, f"{title} by {x_name}: {words}"))


def density_chart(title: str, x_name: str, found: Mapping[str, np.ndarray], styles: Styles, log: bool = False) -> str:
    """Densities of values, with their medians in words; nothing of no values."""
    if not found:
        return ""

    def draw(panel: "Axes") -> None:
        draw_densities(panel, found, styles, log)
        panel.set_xlabel(x_name)
        panel.set_ylabel("density")

    words = "; ".join(f"{name} has the median {number(float(np.median(its)))}" for name, its in found.items())
    return titled(title, panel_svg(draw, f"{title}: {words}"))


def course(runs: Sequence[RunFolder], styles: Styles, kind: str, name: str, title: str = "") -> str:
    """A recorded number of all runs over steps."""
    metric = registry.metric(name)
    scale = 1 if kind == "train" else 100
    lines = {run.name: [(step, scale * value) for step, value in run.course(kind, name)] for run in runs}
    bands = {run.name: _extremes(run) for run in runs} if name == registry.NORM_MEAN else None
    title = title or (metric.heading if kind == "train" else f"{metric.heading} in {kind}, %")
    return line_chart(title, lines, styles, name in registry.LOGARITHMIC, bands)


def _extremes(run: RunFolder) -> list[tuple[float, float, float]]:
    """(step, least, greatest norm of the training batch) where a line has both."""
    lines = [line for line in run.of_kind("train") if all(name in line for name in registry.NORM_RANGE)]
    found = [(line["step"], *(line[name] for name in registry.NORM_RANGE)) for line in lines]
    return [(step, low, high) for step, low, high in found if low > 0]


def _charted(name: str, title: str, styles: Styles, drawn: Sequence[str], sentence: str = "") -> str:
    if not any(drawn):
        return ""
    return section(name, title, note(sentence) if sentence else "", legend(styles), charts(*drawn))


def _when(steps: Mapping[str, str]) -> str:
    """The steps at which runs are shown: once if all have the same, else of each. Some may not have come as far."""
    each = [f"{name}: {step}" for name, step in steps.items()]
    return f" ({', '.join(each if len(set(steps.values())) > 1 else list(steps.values())[:1])})"


# ---------------------------------------------------------------- the sections


def curves_section(runs: Sequence[RunFolder], styles: Styles) -> str:
    """Test metrics and training losses over steps."""
    drawn = []
    for kind in dict.fromkeys(run.on_the_way for run in runs):
        its = [run for run in runs if run.on_the_way == kind]
        measured = registry.scores({name for run in its for line in run.of_kind(kind) for name in line})
        drawn += [course(its, styles, kind, one.key) for one in registry.one_recall(measured)]
    penalized = any(value for run in runs for _, value in run.course("train", "penalty"))
    losses = [name for name in registry.LOSSES if penalized or name not in registry.PENALTY]
    drawn += [course(runs, styles, "train", name) for name in losses]
    return _charted("curves", "Learning curves", styles, drawn)


def norms_section(runs: Sequence[RunFolder], styles: Styles) -> str:
    """Mean, variance and coefficient of variation over steps, and how norms are distributed at the end."""
    titles = {registry.NORM_MEAN: "mean norm, and least to greatest"} if any(map(_extremes, runs)) else {}
    drawn = [course(runs, styles, "train", name, titles.get(name, "")) for name in registry.NORMS]
    with_test = [run for run in runs if run.embedded is not None]
    tested = {run.name: np.linalg.norm(embedded(run).embeddings, axis=1) for run in with_test}
    relative = {name: found / found.mean() for name, found in tested.items() if found.mean() > 0}
    shots = {run.name: run.snapshots[-1] for run in runs if run.snapshots and run.snapshots[-1].norms is not None}
    when = _when({name: f"step {shot.step}" for name, shot in shots.items()})
    images = " or ".join(dict.fromkeys(map(images_of, with_test)))
    seen = {name: shot.norms for name, shot in shots.items() if shot.norms is not None}
    drawn += [
        density_chart(f"norms of {images}, log axis", "norm", tested, styles, log=True),
        density_chart(f"norms of {images} over their mean, log axis", "norm / mean norm", relative, styles, log=True),
        density_chart(f"norms of training images, last snapshot{when}, log axis", "norm", seen, styles, log=True),
    ]
    sentence = (
        "An update turns a short embedding further than a long one (Eq. 6). SEC pulls all norms to their mean. The "
        "coefficient of variation shows it, as it does not depend on the embeddings' scale."
    )
    if tested or seen:
        sentence += " On a logarithmic axis a hump is as wide as that is large, wherever it stands."
    return _charted("norms", "Norms", styles, drawn, sentence)


def directions_section(runs: Sequence[RunFolder], styles: Styles) -> str:
    """How far training images turned between snapshots, how that depends on their norms, and what should."""
    turned, bands, variances = {}, {}, {}
    for run in runs:
        angles = [(shot.step, shot.angles) for shot in run.snapshots if shot.angles is not None]
        quantiles = [(step, *map(float, np.quantile(one, (0.1, 0.5, 0.9)))) for step, one in angles]
        turned[run.name] = [(step, middle) for step, _, middle, _ in quantiles]
        bands[run.name] = [(step, low, high) for step, low, _, high in quantiles]
        variances[run.name] = [(step, float(one.var())) for step, one in angles]
    slopes = {run.name: turn_slopes(run) for run in runs}
    shots = {run.name: run.snapshots[-1] for run in runs if run.snapshots and run.snapshots[-1].angles is not None}
    spans = {name: "" if shot.since is None else f"s {shot.since} to" for name, shot in shots.items()}
    when = _when({name: f"step{spans[name]} {shot.step}" for name, shot in shots.items()})
    last = {name: shot.angles for name, shot in shots.items() if shot.angles is not None}
    drawn = [
        line_chart("turn since the last snapshot, degrees: median, 10 to 90 %", turned, styles, bands=bands),
        line_chart("variance of the turns, degrees²", variances, styles, log=True),
        line_chart("slope of log turn by log norm", slopes, styles, level=0.0),
        density_chart(f"turns until the last snapshot{when}", "turn, degrees", last, styles),
        *[course(runs, styles, "train", name) for name in registry.DIRECTIONS],
    ]
    sentence = (
        "A slope of 0 says that long and short embeddings turn alike. By the paper's proxy it would be -2 for SGD and "
        "-1 for Adam, but real optimizers move weights, not embeddings. An angular loss has no radial gradient but for "
        "rounding (Proposition 1). A run of ours shows that of its loss without the penalty, a monitor's that of all."
    )
    return _charted("directions", "Directions", styles, drawn, sentence)
