"""The page of a calibration: cosines of pairs of one label and of two, and the errors of each threshold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isosphere.report import style
from isosphere.report.page.markup import charts, note, section, table, titled
from isosphere.report.svg import legend, panel_svg

from .calibration import EDGES, Operating, Pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = {"one label": (style.GREEN, "-"), "two labels": (style.VERMILION, "--")}
COARSE = 40  # bins of the histogram are so many times as wide as those that are counted


def thresholds_section(
    said: str, heads: Sequence[str], rows: Sequence[Sequence[str]], pairs: Pairs, points: Sequence[Operating]
) -> list[str]:
    """The table of thresholds, and two charts: how cosines are distributed, and both errors by the threshold."""
    drawn = charts(
        titled("cosines of pairs, share in a bin", panel_svg(lambda panel: _distributions(panel, pairs, points), said)),
        titled("errors by the threshold, %", panel_svg(lambda panel: _errors(panel, pairs), said)),
    )
    words = "Errors are pairs of one label that are rejected, and pairs of two that are accepted. In the chart they "
    words += "are of all pairs, in the table of labels that did not choose the threshold."
    return [
        section("thresholds", "Thresholds", table(said, heads, rows)),
        section("pairs", "Pairs", legend(STYLES), drawn, note(words)),
    ]


def _distributions(panel: "Axes", pairs: Pairs, points: Sequence[Operating]) -> None:
    edges = EDGES[::COARSE]
    counts = [its.reshape(-1, COARSE).sum(1) for its in (pairs.same, pairs.different)]
    for (name, (color, line)), its in zip(STYLES.items(), counts, strict=True):
        style.distribution(panel, its / its.sum(), edges, color, line, name)
    style.narrow([panel], counts, edges)
    panel.axvline(points[0].threshold, color=style.GRAY, linewidth=1)
    panel.set_xlabel("cosine; the line is at equal errors")


def _errors(panel: "Axes", pairs: Pairs) -> None:
    rejects = 100 * (pairs.same.cumsum() - pairs.same) / pairs.same.sum()
    accepts = 100 * pairs.different[::-1].cumsum()[::-1] / pairs.different.sum()
    shown = np.flatnonzero((rejects > 0) & (accepts > 0))
    kept = slice(shown[0], shown[-1] + 1) if len(shown) else slice(None)
    for values, (color, line) in zip((rejects, accepts), STYLES.values(), strict=True):
        panel.plot(EDGES[:-1][kept], values[kept], color=color, linestyle=line)
    panel.set_xlabel("threshold")
