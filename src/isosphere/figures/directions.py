"""How far every training embedding turned between two snapshots (Fig. 7)."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from isosphere.figures import style, words
from isosphere.figures.runs import read_recipe, read_snapshots, record_turns

Interval = tuple[int, int]
BINS = 60


def turns(folder: Path) -> dict[Interval, np.ndarray]:
    """The angles (M,) in degrees that training embeddings turned, by the steps between which they did."""
    angles = {step: snapshot for step, snapshot in read_snapshots(folder).items() if snapshot.angles is not None}
    found = {(its.since, step): its.angles.astype(np.float64) for step, its in angles.items() if its.since is not None}
    if angles and not found:
        raise ValueError(f"{folder} has angles, but snapshots between are missing, so nobody knows since which step")
    if not found:
        raise ValueError(f"{folder} has no angles between two snapshots: {record_turns(read_recipe(folder))}")
    return found


def directions(runs: list[Path], out: Path) -> list[Path]:
    """Draw the angles of all runs, a panel for each interval that all have, with their variances."""
    if not runs:
        raise ValueError("the figure of directions needs at least one run folder")
    recipes, found = [read_recipe(run) for run in runs], [turns(run) for run in runs]
    shared = [interval for interval in found[0] if all(interval in other for other in found)]
    if not shared:
        raise ValueError(f"{' and '.join(map(str, runs))} have no interval between snapshots in common")
    labels = words.labels(recipes, [run.name for run in runs])
    looks = style.looks(labels, list(map(words.arm, recipes)), list(map(words.loss, recipes)))
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
                told = f"variance {angles.var():.3g} deg², mean {angles.mean():.3g}°"
                style.distribution(panel, density, edges, *looks[label], told)
            panel.set_xlim(left=0)
            panel.set_xlabel("angle turned (degrees)")
            panel.set_ylabel("density")
            style.legend_above(panel, f"step {interval[0]:,} → {interval[1]:,}")
        for panel in panels[len(shared) :]:
            panel.set_axis_off()
        style.legend_of(figure, labels, looks)
    return style.files(out)
