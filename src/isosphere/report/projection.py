"""A map of the embedding space: directions of test images on their two principal axes.

Principal axes and not t-SNE: they are the same for every seed and need no other package. Distances on them mean what
they mean on the sphere, as far as two axes can show it.
"""

from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch

from isosphere.errors import BadArgument
from isosphere.recipes import labels as words
from isosphere.report import style
from isosphere.report.records import embedded, read_folders
from isosphere.sphere import directions

MARKERS = "os^DvPX"


def principal_map(embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centered directions on their two principal axes, (N, D) -> (N, 2), and the share of variance of each, (2,)."""
    unit = directions(torch.from_numpy(embeddings).double())
    if unit.shape[0] < 2 or unit.shape[1] < 2:
        raise BadArgument("embeddings", tuple(unit.shape), "at least two, of two dimensions")
    centered = unit - unit.mean(0)
    values, axes = torch.linalg.eigh(centered.T @ centered)  # rising
    axes = axes[:, -2:].flip(1)
    # An axis has no sign of its own: its largest component points up, so that a map is the same every time.
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    return (centered @ axes).numpy(), (values[-2:].flip(0) / values.clamp(min=0).sum().clamp(min=1e-300)).numpy()


def projection(runs: list[Path], out: Path, classes: int = 6) -> list[Path]:
    """Draw a map for each run. A few classes, evenly chosen in their order, are in colors, the rest in gray."""
    if not 1 <= classes <= len(MARKERS):
        raise BadArgument("classes", classes, f"from 1 to {len(MARKERS)}")
    folders = read_folders(runs)
    recipes, found = [run.values for run in folders], [embedded(run) for run in folders]
    names = words.labels(recipes, [run.name for run in folders])
    title = f"Directions of test embeddings on their principal axes\n{words.about(recipes)}"
    rows, columns = style.rows_of(len(runs), 3)
    with style.sheet(out, title, rows, columns, size=(4.6, 4.2)) as (figure, panels):
        for panel, name, its in zip(panels, names, found, strict=False):
            points, shares = principal_map(its.embeddings)
            known = np.unique(its.labels)
            chosen = known[np.linspace(0, len(known) - 1, min(classes, len(known))).round().astype(int)]
            rest = ~np.isin(its.labels, chosen)
            # Points are pixels also in the SVG: sixty thousand of them as text would be many megabytes.
            pale: dict[str, Any] = {"color": "#CCCCCC", "label": "other classes"}
            panel.scatter(points[rest, 0], points[rest, 1], s=3, linewidths=0, rasterized=True, **pale)
            for number, label in enumerate(chosen):
                options: dict[str, Any] = {"color": style.CYCLE[number], "marker": MARKERS[number]}
                known_as = shorten(words.class_name(its.classes, int(label)), 40, placeholder=" …")
                own = points[its.labels == label]
                panel.scatter(own[:, 0], own[:, 1], s=20, linewidths=0, rasterized=True, label=known_as, **options)
            panel.set_title(style.wrapped(name, 3.6))
            panel.set_xlabel(f"first axis ({shares[0]:.1%} of the variance)")
            panel.set_ylabel(f"second axis ({shares[1]:.1%})")
            panel.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")
        style.blank(panels[len(runs) :])
        style.legend_below(figure, panels)
    return style.files(out)
