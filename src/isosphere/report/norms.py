"""Distributions of embedding norms with and without a constraint (Fig. 1 and 5a)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from isosphere.errors import BadArgument
from isosphere.recipes import labels as words
from isosphere.report import style
from isosphere.report.records import embedded, missing_snapshots, read_folders, snapshots
from isosphere.runs import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 60


def last_norms(run: RunFolder, source: Literal["train", "test"] = "train") -> np.ndarray:
    """Norms (M,) at the end of a run: of the training images in its last snapshot, or of its test embeddings."""
    if source not in ("train", "test"):
        raise BadArgument("source", source, "train or test")
    if source == "train":
        found = snapshots(run)[-1].norms
        if found is None:
            raise missing_snapshots(run, "norms of its training images")
        return found
    return np.linalg.norm(embedded(run).embeddings.astype(np.float64), axis=1)


def norms(runs: list[Path], out: Path, source: Literal["train", "test"] = "train") -> list[Path]:
    """Draw the norms of training images in the last snapshot, or of test images. A column is a data set."""
    folders = read_folders(runs)
    values = [last_norms(run, source) for run in folders]
    panels_of: dict[str, list[int]] = {}
    for number, run in enumerate(folders):
        panels_of.setdefault(words.dataset(run.values), []).append(number)
    about = words.about([run.values for run in folders])
    title = f"Norms of {'training' if source == 'train' else 'test'} embeddings\n{about}"
    rows, columns = max(map(len, panels_of.values())), len(panels_of)
    with style.sheet(out, title, rows, columns, size=(5.0, 2.2), sharex="col") as (_, panels):
        for column, (dataset, numbers) in enumerate(panels_of.items()):
            chosen = [folders[number] for number in numbers]
            labels = words.labels([run.values for run in chosen], [run.name for run in chosen])
            styles = style.styles_of(labels, [run.values for run in chosen])
            for row, (number, label) in enumerate(zip(numbers, labels, strict=True)):
                panel, lengths = panels[row * columns + column], values[number]
                legend = f"{label}: mean {lengths.mean():.3g}, variance {lengths.var():.3g}"
                density, edges = np.histogram(lengths, BINS, density=True)
                style.distribution(panel, density, edges, *styles[label], legend)
                panel.set_ylabel("density")
                panel.set_xlim(0, 1.02 * max(values[other].max() for other in numbers))
                style.legend_above(panel, f"{dataset}, {len(lengths):,} images" if row == 0 else "")
            panel.set_xlabel("norm |f|")
            panel.tick_params(labelbottom=True)
            style.blank([panels[row * columns + column] for row in range(len(numbers), rows)])
    return style.files(out)


def draw_densities(
    panel: "Axes", found: Mapping[str, np.ndarray], styles: Mapping[str, tuple[str, str]], log: bool = False
) -> None:
    """Densities by name, each in bins of its own, so a narrow one keeps its shape next to a wide one.

    If `log`, they are of the logarithm, where values of zero are left out.
    """
    for name, values in found.items():
        its = np.log(values[values > 0]) if log else values
        if len(its):
            density, edges = np.histogram(its, int(min(40, np.sqrt(len(its)))) + 1, density=True)
            style.distribution(panel, density, np.exp(edges) if log else edges, *styles[name], name)
    style.plain_axes(panel, log_x=log)
