"""Distributions of embedding norms with and without a constraint (Fig. 1 and 5a)."""

from pathlib import Path
from typing import Literal

import numpy as np

from isosphere.figures import style, words
from isosphere.figures.runs import read_embeddings, read_recipe, read_snapshots

BINS = 60


def last_norms(folder: Path, source: Literal["train", "test"] = "train") -> np.ndarray:
    """Norms (M,) at the end of a run: of the training images in its last snapshot, or of its test embeddings."""
    if source == "train":
        return list(read_snapshots(folder).values())[-1].norms.astype(np.float64)
    if source == "test":
        return np.linalg.norm(read_embeddings(folder)[0].astype(np.float64), axis=1)
    raise ValueError(f"source must be train or test, not {source!r}")


def norms(runs: list[Path], out: Path, source: Literal["train", "test"] = "train") -> list[Path]:
    """Draw the norms of training images in the last snapshot, or of test images; a column for each data set."""
    if not runs:
        raise ValueError("the figure of norms needs at least one run folder")
    recipes, values = [read_recipe(run) for run in runs], [last_norms(run, source) for run in runs]
    panels_of: dict[str, list[int]] = {}
    for number, recipe in enumerate(recipes):
        panels_of.setdefault(words.dataset(recipe), []).append(number)
    title = f"Norms of {'training' if source == 'train' else 'test'} embeddings\n{words.about(recipes)}"
    rows, columns = max(map(len, panels_of.values())), len(panels_of)
    with style.sheet(out, title, rows, columns, size=(5.0, 2.2), sharex="col") as (_, panels):
        for column, (dataset, numbers) in enumerate(panels_of.items()):
            chosen = [recipes[number] for number in numbers]
            labels = words.labels(chosen, [runs[number].name for number in numbers])
            looks = style.looks(labels, list(map(words.arm, chosen)), list(map(words.loss, chosen)))
            for row, (number, label) in enumerate(zip(numbers, labels, strict=True)):
                panel, lengths = panels[row * columns + column], values[number]
                density, edges = np.histogram(lengths, BINS, density=True)
                told = f"{label}: mean {lengths.mean():.3g}, variance {lengths.var():.3g}"
                style.distribution(panel, density, edges, *looks[label], told)
                panel.set_ylabel("density")
                panel.set_xlim(0, 1.02 * max(values[other].max() for other in numbers))
                style.legend_above(panel, f"{dataset}, {len(lengths):,} images" if row == 0 else "")
            panel.set_xlabel("norm |f|")
            panel.tick_params(labelbottom=True)
            for row in range(len(numbers), rows):
                panels[row * columns + column].set_axis_off()
    return style.files(out)
