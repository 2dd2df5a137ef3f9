"""How far every training embedding turned between two snapshots (Fig. 7), and how that depends on its norm."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np

from isosphere.errors import BadArgument
from isosphere.metrics.registry import TURN_SLOPE
from isosphere.recipes import labels as words
from isosphere.report import style
from isosphere.report.records import missing_snapshots, read_folders, snapshots
from isosphere.runs import RunFolder

Interval = tuple[int, int]
BINS = 60


def turns(run: RunFolder) -> dict[Interval, np.ndarray]:
    """The angles (M,) in degrees that training embeddings turned, by the steps between which they did."""
    part = "angles between two snapshots"
    shots = snapshots(run, part)
    found = {(s.since, s.step): s.angles for s in shots if s.angles is not None and s.since is not None}
    if not found:
        raise missing_snapshots(run, part)
    return found


def turn_slopes(run: RunFolder) -> list[tuple[float, float]]:
    """(step, least-squares slope of log angle by log norm where the turn began) wherever it is defined or recorded."""
    found: list[tuple[float, float]] = []
    norms: dict[int | None, np.ndarray | None] = {shot.step: shot.norms for shot in run.snapshots}
    for shot in run.snapshots:
        before = norms.get(shot.since)
        if shot.angles is None or before is None or before.shape != shot.angles.shape:
            continue
        known = (before > 0) & (shot.angles > 0)
        x, y = np.log(before[known]), np.log(shot.angles[known])
        if len(x) > 2 and x.std() > 1e-6:
            found.append((shot.step, float(np.polyfit(x, y, 1)[0])))
    return [(step, slope) for step, slope in found if math.isfinite(slope)] + run.course("probe", TURN_SLOPE)


def directions(runs: list[Path], out: Path) -> list[Path]:
    """Draw the angles of all runs, a panel for each interval that all have, with their variances."""
    folders = read_folders(runs)
    recipes, found = [run.values for run in folders], [turns(run) for run in folders]
    shared = [interval for interval in found[0] if all(interval in other for other in found)]
    if not shared:
        raise BadArgument("runs", [run.name for run in folders], "runs with an interval between snapshots in common")
    labels = words.labels(recipes, [run.name for run in folders])
    styles = style.styles_of(labels, recipes)
    count = len(next(iter(found[0].values())))
    title = f"Angle that {count:,} training embeddings turned\n{words.about(recipes)}"
    if any(end != begin for (_, end), (begin, _) in pairwise(shared)):
        title += "; intervals between are missing"
    rows, columns = style.rows_of(len(shared), 4)
    with style.sheet(out, title, rows, columns, size=(3.4, 2.5 + 0.2 * len(runs))) as (figure, panels):
        for panel, interval in zip(panels, shared, strict=False):
            for label, its in zip(labels, found, strict=True):
                angles = its[interval]
                density, edges = np.histogram(angles, BINS, density=True)
                legend = f"variance {angles.var():.3g} deg², mean {angles.mean():.3g}°"
                style.distribution(panel, density, edges, *styles[label], legend)
            panel.set_xlim(left=0)
            panel.set_xlabel("angle turned (degrees)")
            panel.set_ylabel("density")
            style.legend_above(panel, f"step {interval[0]:,} → {interval[1]:,}")
        style.blank(panels[len(shared) :])
        style.legend_of(figure, labels, styles)
    return style.files(out)
