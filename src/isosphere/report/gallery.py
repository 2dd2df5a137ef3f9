"""The nearest test images of a few queries, right or wrong, for several runs (Fig. 9)."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isosphere.errors import BadArgument, DamagedFile, MissingPart, Option
from isosphere.recipes import labels as words
from isosphere.report import style
from isosphere.report.records import embedded, read_folders
from isosphere.report.retrievals import evenly, nearest, spread
from isosphere.runs import RunFolder, read_test_images

PIXELS = 256  # longer side of an image


def gallery(
    runs: list[Path],
    out: Path,
    queries: Sequence[int] = (),
    count: int = 3,
    images: Sequence[Any] | None = None,
) -> list[Path]:
    """Draw queries, a row each, and what each run retrieves for them, framed as right or wrong.

    Without `queries` six are spread over the classes. A gallery that the test set has of its own is all they search.
    Images all of one class have no labels: none is right or wrong. `images[i]` is test image i as (H, W) or (H, W, 3).
    Without them the images that a run kept are read, or the files it was tested on.
    """
    folders = read_folders(runs)
    recipes, found = [run.values for run in folders], [embedded(run) for run in folders]
    first, labels = found[0], found[0].labels
    if not all(np.array_equal(labels, other.labels) for other in found):
        raise BadArgument("runs", [run.name for run in folders], "runs with the same test images")
    labeled = len(np.unique(labels)) > 1
    queries = list(queries) or (evenly(first, 6) if labeled else spread(len(labels), 6))
    if not all(isinstance(query, (int, np.integer)) and 0 <= query < len(labels) for query in queries):
        raise BadArgument("queries", queries, f"numbers of test images, from 0 to {len(labels) - 1}")
    names = words.labels(recipes, [run.name for run in folders])
    results = [nearest(its, queries, count) for its in found]
    shown = {int(i) for i in queries} | {int(i) for its in results for i in its.indices.flat}
    pictures = _pictures(folders, sorted(shown)) if images is None else images
    marks = "✓ of the query's class (solid green), ✗ of another (dashed red)" if labeled else "they have no labels"
    title = f"The {count} nearest {'test ' * labeled}images and their cosines: {marks}\n{words.about(recipes)}"
    columns = 1 + count * len(runs)
    with style.sheet(out, title, len(queries), columns, size=(1.25, 1.6)) as (_, panels):
        for row, query in enumerate(queries):
            line = panels[row * columns : (row + 1) * columns]
            named = words.class_name(first.classes, int(labels[query])) if labeled else f"image {query}"
            named = "\n".join(textwrap.wrap(named, 17, max_lines=2, placeholder=" …"))
            _show(line[0], pictures[query], f"query\n{named}", style.BLACK, "-")
            for number, its in enumerate(results):
                for place in range(count):
                    index, right = int(its.indices[row, place]), labels[its.indices[row, place]] == labels[query]
                    mark = f"{('✓ ' if right else '✗ ') * labeled}{its.cosines[row, place]:.2f}"
                    options = (style.RIGHT, "-") if right else (style.WRONG, (0, (3, 2)))
                    options = options if labeled else (style.GRAY, "-")
                    _show(line[1 + number * count + place], pictures[index], mark, *options)
                if row == 0:
                    middle = line[1 + number * count + (count - 1) // 2]
                    name = style.wrapped(names[number], 1.25 * count)
                    above: dict[str, Any] = {"xytext": (0, 18), "textcoords": "offset points", "fontsize": 8}
                    # outside the layout, which would widen the column to it
                    middle.annotate(name, (0.5, 1), xycoords="axes fraction", ha="center", **above).set_in_layout(False)
                    line[0].set_title("\n" * name.count("\n") + line[0].get_title(), fontsize=8)  # room for it
    return style.files(out)


def _pictures(folders: list[RunFolder], needed: list[int]) -> dict[int, np.ndarray]:
    """These test images, from the first run that has some."""
    held = next((its for run in folders if (its := read_test_images(run)) is not None), None)
    if held is None:
        raise MissingPart(folders[0].folder, "test images", (Option("loop.save_embeddings", True),))
    try:
        return {index: np.asarray(held.image(index, PIXELS)) for index in needed}
    except (OSError, ValueError) as error:
        raise DamagedFile(held.run.folder, f"a test image cannot be read: {error}") from error


def _show(panel: Any, picture: np.ndarray, title: str, color: str, line: Any) -> None:
    panel.imshow(np.asarray(picture), cmap="gray" if np.ndim(picture) == 2 else None)
    panel.set_title(title, fontsize=8)
    panel.set(xticks=[], yticks=[], anchor="N")  # titles of a row at one height, under the name of their run
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set(visible=True, color=color, linewidth=2.5, linestyle=line)
