"""Differences between constraints by cell and pooled over cells, with intervals: a forest plot."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isosphere.figures import style, words
from isosphere.figures.runs import Record, read_all
from isosphere.tables import Difference, pooled


def pooled_difference(records: Sequence[Record], metric: str, arm: str, than: str = "none") -> Difference | None:
    """The difference paired by seed within each cell, in points, pooled over cells; None where no pair exists."""
    points = [
        {"cell": r.cell, "arm": r.arm, "seed": r.seed, "last": {name: 100 * value for name, value in r.last.items()}}
        for r in records
    ]
    return pooled(points, metric, arm, than)


def differences(runs: list[Path], out: Path, metric: str = "", than: str = "none") -> list[Path]:
    """Draw every arm less `than`: a row for each cell with its seeds, and the pooled mean with its interval.

    Without a metric it is the one by which the runs are judged. One pair of runs has no interval.
    """
    records = read_all(runs, finished=True)
    metric = metric or words.headline(record.last for record in records)
    if not any(metric in record.last for record in records):
        had = ", ".join(dict.fromkeys(name for record in records for name in record.last))
        raise ValueError(f"no run has {metric}; they have {had or 'none at all: they diverged'}; choose with --metric")
    arms = sorted({record.arm for record in records} - {than}, key=lambda arm: (words.place(arm), arm))
    found = {arm: its for arm in arms if (its := pooled_difference(records, metric, arm, than)) is not None}
    if not found:
        raise ValueError(f"no two runs of a cell and seed of which one is {than!r}: there is nothing to compare")
    losses = list(dict.fromkeys(words.about([record.recipe]) for record in records))
    order = {r.cell: (losses.index(words.about([r.recipe])), words.rate(r.recipe)) for r in records if r.arm == than}
    cells = sorted({cell for its in found.values() for cell in its.cells}, key=lambda cell: order[cell])
    rows, columns = style.rows_of(len(found), 4)
    title = f"{words.metric(metric)} less that with {words.arm_words(than)}, paired by seed\n"
    title += words.about([record.recipe for record in records])
    height = 1.0 + 0.32 * (len(cells) + 1)
    with style.sheet(out, title, rows, columns, (3.6, height), sharex=True, sharey=True) as (figure, panels):
        for panel, (arm, its) in zip(panels, found.items(), strict=False):
            color = style.ARM_COLORS.get(arm, style.BLACK)
            panel.axvline(0, color=style.GRAY, linewidth=1)
            for row, cell in enumerate(cells):
                seeds = its.cells.get(cell, [])
                panel.plot(seeds, [row] * len(seeds), "o", color=color, alpha=0.5, markeredgewidth=0, label="a seed")
                if seeds:
                    panel.plot(np.mean(seeds), row, "|", color=color, markersize=12, markeredgewidth=2, label="mean")
            error = None if its.low is None else [[its.mean - its.low], [its.high - its.mean]]
            told = "mean over cells" + ", 95 % interval" * (its.low is not None)
            panel.errorbar(
                its.mean, len(cells), xerr=error, fmt="D", color=style.BLACK, markersize=6, capsize=4, label=told
            )
            panel.axhline(len(cells) - 0.5, color=style.GRAY, linewidth=0.6)
            panel.set_yticks(range(len(cells) + 1), [*cells, "pooled"])
            panel.set_ylim(len(cells) + 0.6, -0.6)
            interval = "" if its.low is None else f" [{its.low:+.1f}, {its.high:+.1f}]"
            panel.set_title(f"{words.arm_words(arm)}: {its.mean:+.1f}{interval}")
            panel.set_xlabel(f"difference of {words.metric(metric)} (points)")
        for panel in panels[len(found) :]:
            panel.set_axis_off()
        style.legend_below(figure, panels)
    return style.files(out)
