"""A metric against the training loss, with the turn per step in colors: is a gain that of a rate, or of a method?"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isosphere.errors import BadArgument
from isosphere.metrics import registry
from isosphere.paper import causes as measured
from isosphere.recipes import constraints, labels
from isosphere.recipes.constraints import BASELINE
from isosphere.report import style
from isosphere.report.curves import mean_curve
from isosphere.report.rates import by_loss
from isosphere.report.records import checked_metric, read_all
from isosphere.runs import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vPX*"
COLORS = "viridis"
TICKS = [digit * 10.0**power for power in range(-4, 3) for digit in (1, 2, 3, 5)]
TURN = "net turn per step (degrees); a run's first window may lie off the scale"
CUT = 0.03  # share of the points that may lie below a panel
Place = tuple[float, float, float]  # training loss, a metric in percent, turn per step in degrees


def causes(runs: list[Path], out: Path, metric: str = "") -> list[Path]:
    """Draw a metric against the training loss: a line for each method and rate, a point for each evaluation.

    A panel for each data set and loss. The band is the baseline's best at each training loss. Points are means over
    seeds. Runs that diverged are left out.
    """
    records = read_all(runs)
    whole = [record for record in records if record["last"]]
    metric = checked_metric(metric, (test for record in whole for test in record.get("tests") or ()), training=True)
    groups = {name: its for name, its in by_loss(whole).items() if any(places(its, metric))}
    if not groups:
        raise BadArgument("runs", "no training loss at any evaluation", "runs that log the training loss")
    found = sorted({record["method"] for record in whole}, key=lambda name: (constraints.place(name), name))
    markers = dict(zip(found, MARKERS * len(found), strict=False))
    lost = len(records) - len(whole)
    title = f"{registry.metric(metric).heading} at equal training loss\n{labels.about([r['recipe'] for r in whole])}"
    title += f"; {lost} of {len(records)} runs diverged" * bool(lost)
    with style.sheet(out, title, len(groups), 1, size=(8.0, 4.6)) as (figure, panels):
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LogNorm

        low, high = _limits(whole)
        colors = ScalarMappable(LogNorm(low, high), COLORS)
        for panel, (name, its) in zip(panels, groups.items(), strict=True):
            draw(panel, its, metric, markers, colors)
            panel.set_title(f"{name}, {measured.start(its)}")
            panel.set_ylabel(registry.metric(metric).label)
        panels[-1].set_xlabel("training loss on angles, without the penalty (falls to the right)")
        ticks = [tick for tick in TICKS if low <= tick <= high]
        bar = figure.colorbar(colors, ax=panels, label=TURN, extend="both", shrink=0.6)
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks], minor=False)
        bar.ax.minorticks_off()
        style.legend_below(figure, panels)
    return style.files(out)


def places(records: Sequence[Record], metric: str) -> list[Place]:
    """Training loss, metric and turn per step at each evaluation, as means over these seeds; NaN where no turn is."""
    tests = [[t for t in r.get("tests") or () if {registry.TRAINING_LOSS, metric} <= t.keys()] for r in records]
    losses, values = (dict(mean_curve([[(t["step"], t[key]) for t in its] for its in tests]))
                      for key in (registry.TRAINING_LOSS, metric))  # fmt: skip
    turned = dict(mean_curve([_turns(record) for record in records]))
    return [(losses[step], 100 * values[step], turned.get(step, np.nan)) for step in losses]


def _turns(record: Record) -> list[tuple[float, float]]:
    """Step and mean turn per step in degrees, between two snapshots there and back."""
    return [(its["step"], its[registry.TURN_MEAN] / (its["step"] - its["since"])) for its in record.get("turns") or ()]


def _limits(records: Sequence[Record]) -> tuple[float, float]:
    """Of the turns per step, without the first of each run: a network from scratch turns its batch norm's there."""
    turned = [turn for record in records for _, turn in _turns(record)[1:] if turn > 0]
    return (min(turned), max(turned)) if turned else (0.1, 1.0)


def draw(panel: "Axes", records: Sequence[Record], metric: str, markers: dict[str, str], colors: Any) -> None:
    """The runs of one data set and loss, and the baseline's curve."""
    lines = {(method, rate): places(measured.of(records, method, rate), metric)
             for method, rate in product(markers, measured.rates(records))}  # fmt: skip
    courses = [[place[:2] for place in its] for (method, _), its in lines.items() if method == BASELINE]
    losses = np.linspace(*measured.span(courses), measured.GRID)
    words = "the baseline's best at each training loss"
    panel.plot(losses, measured.curve(courses, losses), color=style.GRAY, linewidth=8, alpha=0.25, label=words)
    for (method, rate), its in lines.items():
        if not its:
            continue
        losses, values, turned = map(np.array, zip(*its, strict=True))
        color, marker = style.METHOD_COLORS.get(method, style.BLACK), markers[method]
        panel.plot(losses, values, color=color, linewidth=0.8, alpha=0.6)
        panel.scatter(
            losses, values, 30, turned, marker=marker, cmap=colors.cmap, norm=colors.norm, edgecolors=color,
            plotnonfinite=True, zorder=3,
        )  # fmt: skip
        if method == BASELINE:
            offset: dict[str, Any] = {"xytext": (4, -11), "textcoords": "offset points"}
            panel.annotate(f"rate {rate:g}", its[-1][:2], color=color, fontsize=8, zorder=4, **offset)
        look: dict[str, Any] = {"color": color, "marker": marker, "markerfacecolor": "none", "linewidth": 0.8}
        panel.plot([], [], label=labels.method_label(method), **look)
    drawn = [place[1] for its in lines.values() for place in its]
    low, high = np.quantile(drawn, CUT), max(drawn)
    panel.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    panel.invert_xaxis()
