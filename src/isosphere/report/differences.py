"""Differences between methods, paired by seed, by cell and pooled over cells, with intervals; as a forest plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isosphere.errors import BadArgument
from isosphere.metrics import registry
from isosphere.recipes import constraints, labels
from isosphere.recipes.constraints import BASELINE, RIVALS
from isosphere.report import style
from isosphere.report.records import checked_metric, read_all
from isosphere.runs import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENOUGH = 3  # pairs of runs, for an interval
INTERVAL = f"95 % interval (bootstrap over cells and seeds; of one cell Student's t; from {ENOUGH} pairs on)"


@dataclass(frozen=True)
class Difference:
    """A method less another: the differences of each cell by seed, the mean over cells, and its 95 % interval."""

    method: str
    than: str
    cells: dict[str, list[float]]
    mean: float
    low: float | None  # None for fewer than three pairs of runs: an interval drawn from two is just these two
    high: float | None

    @property
    def positive(self) -> int:
        """In how many cells the mean over seeds is above zero."""
        return sum(bool(np.mean(found) > 0) for found in self.cells.values())

    @property
    def pairs(self) -> int:
        """How many pairs of runs there are."""
        return sum(map(len, self.cells.values()))


def pooled(
    records: Sequence[Record], metric: str, method: str, than: str, resamples: int = 10_000
) -> Difference | None:
    """The paired difference by seed within each cell, pooled over cells; None where no pair exists.

    The interval of several cells is a bootstrap that draws cells and, within each, seeds, both with replacement. That
    of one cell is Student's, as drawing from three differences would give just their range. There is none of fewer than
    three pairs.
    """
    values = {(r["cell"], r["method"], r["seed"]): r["last"][metric] for r in records if metric in r["last"]}
    cells: dict[str, list[float]] = {}
    for (cell, name, seed), value in sorted(values.items()):
        if name == method and (cell, than, seed) in values:
            cells.setdefault(cell, []).append(value - values[cell, than, seed])
    if not cells:
        return None
    mean = float(np.mean([np.mean(found) for found in cells.values()]))
    if sum(map(len, cells.values())) < ENOUGH:
        return Difference(method, than, cells, mean, None, None)
    if len(cells) == 1:
        (found,) = cells.values()
        return Difference(method, than, cells, mean, *students(found))
    generator = np.random.default_rng(0)
    drawn = np.stack(
        [generator.choice(found, (resamples, len(cells), len(found))).mean(2) for found in cells.values()], axis=2
    )  # (resamples, draw, cell): a fresh draw of each cell's seeds for every draw of a cell
    picks = generator.integers(len(cells), size=(resamples, len(cells)))
    low, high = np.quantile(np.take_along_axis(drawn, picks[..., None], 2).mean((1, 2)), (0.025, 0.975))
    return Difference(method, than, cells, mean, float(low), float(high))


def students(found: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean of at least two values."""
    from scipy import special  # slow to import

    mean = float(np.mean(found))
    reach = float(special.stdtrit(len(found) - 1, 0.975) * np.std(found, ddof=1) / len(found) ** 0.5)
    return mean - reach, mean + reach


def compared_methods(records: Sequence[Record]) -> list[tuple[str, str]]:
    """All methods against the baseline, and the rivals against each other."""
    methods = list(dict.fromkeys(record["method"] for record in records))
    pairs = [(method, BASELINE) for method in methods if method != BASELINE]
    return pairs + [RIVALS] * (set(RIVALS) <= set(methods))


# ---------------------------------------------------------------- the figure


def differences(runs: list[Path], out: Path, metric: str = "", than: str = BASELINE) -> list[Path]:
    """Draw every method less `than`: a row for each cell with its seeds, and the pooled mean with its interval.

    Without a metric it is the one by which the runs are judged. Fewer than three pairs of runs have no interval.
    """
    records = read_all(runs, finished=True)
    metric = checked_metric(metric, (record["last"] for record in records))
    found = all_differences(records, metric, than)
    if not found:
        raise BadArgument("runs", than, "pairs of one cell and seed, one of each of them the method to compare with")
    cells = cells_in_order(records, found)
    rows, columns = style.rows_of(len(found), 4)
    title = f"{registry.metric(metric).heading} less {labels.method_label(than)}, paired by seed\n"
    title += labels.about([record["recipe"] for record in records])
    height = 1.0 + 0.32 * (len(cells) + 1)
    with style.sheet(out, title, rows, columns, (3.6, height), sharex=True, sharey=True) as (figure, panels):
        for panel, its in zip(panels, found, strict=False):
            draw_forest(panel, its, cells)
            interval = "" if its.low is None or its.high is None else f" [{100 * its.low:+.1f}, {100 * its.high:+.1f}]"
            panel.set_title(f"{labels.method_label(its.method)}: {100 * its.mean:+.1f}{interval}")
            panel.set_xlabel(f"difference of {registry.metric(metric).heading} (points)")
        style.blank(panels[len(found) :])
        style.legend_below(figure, panels)
    return style.files(out)


def all_differences(records: Sequence[Record], metric: str, than: str = BASELINE) -> list[Difference]:
    """Every method less `than`, in the order of legends."""
    others = {record["method"] for record in records} - {than}
    methods = sorted(others, key=lambda method: (constraints.place(method), method))
    found = (pooled(records, metric, method, than) for method in methods)
    return [one for one in found if one is not None]


def cells_in_order(records: Sequence[Record], found: Sequence[Difference]) -> list[str]:
    """The cells of these differences by loss and learning rate."""
    losses = list(dict.fromkeys(labels.about([record["recipe"]]) for record in records))
    order = {r["cell"]: (losses.index(labels.about([r["recipe"]])), labels.rate(r["recipe"])) for r in records}
    return sorted({cell for one in found for cell in one.cells}, key=order.__getitem__)


def draw_forest(panel: "Axes", its: Difference, cells: Sequence[str]) -> None:
    """A row for each cell with its seeds in points, and the pooled mean below."""
    color = style.METHOD_COLORS.get(its.method, style.BLACK)
    panel.axvline(0, color=style.GRAY, linewidth=1)
    for row, cell in enumerate(cells):
        seeds = [100 * value for value in its.cells.get(cell, [])]
        panel.plot(seeds, [row] * len(seeds), "o", color=color, alpha=0.5, markeredgewidth=0, label="a seed")
        if seeds:
            panel.plot(np.mean(seeds), row, "|", color=color, markersize=12, markeredgewidth=2, label="mean")
    error = None
    if its.low is not None and its.high is not None:
        error = [[100 * (its.mean - its.low)], [100 * (its.high - its.mean)]]
    options: dict[str, Any] = {"fmt": "D", "color": style.BLACK, "markersize": 6, "capsize": 4}
    label = "mean over cells" + ", 95 % interval" * (its.low is not None)
    panel.errorbar(100 * its.mean, len(cells), xerr=error, label=label, **options)
    panel.axhline(len(cells) - 0.5, color=style.GRAY, linewidth=0.6)
    panel.set_yticks(range(len(cells) + 1), [*cells, "pooled"])
    panel.set_ylim(len(cells) + 0.6, -0.6)
