"""The nearest test images of a few queries, right or wrong, for one run beside another (Fig. 9)."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isosphere.figures import style, words
from isosphere.figures.runs import (
    ANY_NAME,
    locate,
    read_class_names,
    read_embeddings,
    read_queries,
    read_recipe,
    read_thumbnails,
)
from isosphere.metrics.neighbors import checked_embeddings
from isosphere.sphere import cosines


def nearest(
    embeddings: np.ndarray, queries: Sequence[int], count: int = 3, asks: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` nearest by cosine: indices (Q, count) and cosines (Q, count), best first.

    `asks` (N,) are the images that ask the others; where all do, each asks all but itself.
    """
    everything = checked_embeddings(torch.from_numpy(embeddings))
    apart = asks is not None and not asks.all()
    others = int((~asks).sum()) if apart else len(everything) - 1
    if count > others:
        raise ValueError(f"of {len(everything)} test images {others} can be retrieved, fewer than {count}")
    rows = torch.as_tensor(list(queries))
    scores = cosines(everything[rows], everything)
    if apart:
        scores[:, torch.from_numpy(asks)] = -torch.inf
    else:
        scores[torch.arange(len(rows)), rows] = -torch.inf  # self
    best = scores.sort(dim=1, descending=True, stable=True)
    return best.indices[:, :count].numpy(), best.values[:, :count].numpy()


def evenly(labels: np.ndarray, count: int, asks: np.ndarray | None = None) -> list[int]:
    """Queries that nobody picked: the middle image of classes spread evenly over all that have one to find."""
    asks = np.ones(len(labels), bool) if asks is None else asks
    classes, sizes = np.unique(labels, return_counts=True)
    classes = classes[sizes > 1] if asks.all() else np.intersect1d(labels[asks], labels[~asks])
    if not len(classes):
        raise ValueError("no test class has two images: nothing can be retrieved")
    chosen = classes[spread(len(classes), count)]
    return [int(places[len(places) // 2]) for places in (np.flatnonzero((labels == label) & asks) for label in chosen)]


def spread(size: int, count: int) -> list[int]:
    """`count` places, or all, spread evenly from the first to the last."""
    return np.linspace(0, size - 1, min(count, size)).round().astype(int).tolist()


def gallery(
    runs: list[Path],
    out: Path,
    queries: Sequence[int] = (),
    count: int = 3,
    images: Sequence[Any] | None = None,
) -> list[Path]:
    """Draw queries, a row each, and what each run retrieves for them, framed as right or wrong.

    Without `queries` six are spread over the classes. A gallery that the test set has of its own is all they search.
    Images all of one class have no labels: none is right or wrong.
    `images[i]` is test image i as (H, W) or (H, W, 3); without them the files that test_paths.txt of a run names are
    read, or its test_thumbnails.npz.
    """
    if not runs:
        raise ValueError("the gallery needs at least one run folder")
    recipes, found = [read_recipe(run) for run in runs], [read_embeddings(run) for run in runs]
    labels = found[0][1]
    asks = read_queries(runs[0], len(labels))
    for run, (_, others) in zip(runs, found, strict=True):
        if not np.array_equal(labels, others):
            raise ValueError(f"{run} and {runs[0]} have different test images, so they have no common gallery")
    labeled = len(np.unique(labels)) > 1
    queries = list(queries) or (evenly(labels, 6, asks) if labeled else spread(len(labels), 6))
    if not all(isinstance(query, (int, np.integer)) and 0 <= query < len(labels) for query in queries):
        raise ValueError(f"queries are numbers of test images, 0 to {len(labels) - 1}, not {queries}")
    pictures = _pictures(runs, len(labels)) if images is None else images
    classes = read_class_names(runs[0])
    names = words.labels(recipes, [run.name for run in runs])
    results = [nearest(embeddings, queries, count, asks) for embeddings, _ in found]
    marks = "✓ of the query's class (solid green), ✗ of another (dashed red)" if labeled else "they have no labels"
    title = f"The {count} nearest {'test ' * labeled}images and their cosines: {marks}\n{words.about(recipes)}"
    columns = 1 + count * len(runs)
    with style.sheet(out, title, len(queries), columns, size=(1.25, 1.6)) as (_, panels):
        for row, query in enumerate(queries):
            line = panels[row * columns : (row + 1) * columns]
            told = words.class_name(classes, labels[query]) if labeled else f"image {query}"
            told = "\n".join(textwrap.wrap(told, 17, max_lines=2, placeholder=" …"))
            _show(line[0], pictures[query], f"query\n{told}", style.BLACK, "-")
            for number, (indices, scores) in enumerate(results):
                for place in range(count):
                    index, right = int(indices[row, place]), labels[indices[row, place]] == labels[query]
                    told = f"{('✓ ' if right else '✗ ') * labeled}{scores[row, place]:.2f}"
                    look = (style.RIGHT, "-") if right else (style.WRONG, (0, (3, 2)))
                    look = look if labeled else (style.GRAY, "-")
                    _show(line[1 + number * count + place], pictures[index], told, *look)
                if row == 0:
                    middle = line[1 + number * count + (count - 1) // 2]
                    name = style.wrapped(names[number], 1.25 * count)
                    above = {"xytext": (0, 18), "textcoords": "offset points", "ha": "center", "fontsize": 8}
                    # outside the layout, which would widen the column to it
                    middle.annotate(name, (0.5, 1), xycoords="axes fraction", **above).set_in_layout(False)
                    line[0].set_title("\n" * name.count("\n") + line[0].get_title(), fontsize=8)  # room for it
    return style.files(out)


def _pictures(runs: list[Path], size: int) -> "Files | np.ndarray":
    """The test images, from the first run that has test_paths.txt or test_thumbnails.npz."""
    for run in runs:
        path = run / "test_paths.txt"
        pictures = Files(path) if path.is_file() else read_thumbnails(run)
        if pictures is not None:
            if len(pictures) != size:
                raise ValueError(f"{run} keeps {len(pictures)} test images, but {size} test embeddings")
            return pictures
    raise ValueError(
        f"{runs[0]} has neither test_thumbnails.npz nor test_paths.txt, the file of each test image, one a line in the "
        "order of the test embeddings: write it"
    )


class Files:
    """The test images as files, in the order of test_paths.txt: a path a line and, after a tab, perhaps its class."""

    def __init__(self, path: Path) -> None:
        self.run, self.root = path.parent, str(read_recipe(path.parent)["data"].get("root") or "")
        self.paths = [line.split("\t")[0] for line in path.read_text(**ANY_NAME).splitlines()]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray:
        from PIL import Image, ImageOps

        try:
            with Image.open(locate(self.paths[index], self.root, self.run)) as opened:
                picture = ImageOps.exif_transpose(opened).convert("RGB")
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read the test image {self.paths[index]}: {error}") from error
        picture.thumbnail((256, 256))
        return np.asarray(picture)


def _show(panel: Any, picture: np.ndarray, told: str, color: str, line: Any) -> None:
    panel.imshow(np.asarray(picture), cmap="gray" if np.ndim(picture) == 2 else None)
    panel.set_title(told, fontsize=8)
    panel.set(xticks=[], yticks=[], anchor="N")  # titles of a row at one height, under the name of their run
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set(visible=True, color=color, linewidth=2.5, linestyle=line)
