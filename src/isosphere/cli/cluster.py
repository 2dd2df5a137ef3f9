"""Group the images of a gallery: by k-means, or by density.

  isosphere cluster gallery --clusters 40 --page clusters.html
  isosphere cluster gallery --density --out clusters.csv

k-means takes the number of clusters; by default that of the labels. With --density (DBSCAN) the number comes
out, and images far from all others are in no cluster, which is -1. Two images are near if their cosine is at
least --above, and dense if --least images are near. By default --above makes about half of all images dense.
"""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isosphere.cli.galleries import declare_gallery
from isosphere.cli.parser import Parser

if TYPE_CHECKING:
    import numpy as np

    from isosphere.gallery import Gallery

SHOWN = 12  # pictures of a cluster


def declare(parser: Parser) -> None:
    declare_gallery(parser)
    parser.add_argument("--clusters", type=int, help="their number, for k-means; by default that of the labels")
    parser.add_argument("--density", action="store_true", help="by density, not by k-means")
    parser.add_argument("--above", type=float, help="with --density: the least cosine of images that are near")
    parser.add_argument("--least", type=int, default=5, help="with --density: near images that make one dense; 5")
    parser.add_argument("--seed", type=int, default=0, help="of k-means; by default 0")
    parser.add_argument("--out", type=Path, help="write a CSV of path,label,cluster")


def run(asked: Namespace) -> None:
    import csv
    import io

    import numpy as np

    from isosphere import files
    from isosphere.cli.galleries import opened, print_json, print_table, wrote
    from isosphere.gallery.pages import Shelf, picture, write_shelves
    from isosphere.metrics import nmi

    if asked.out is not None:
        files.writable(asked.out)
    gallery = opened(asked)
    found, how = _clustered(asked, gallery)
    numbers = [int(number) for number in np.unique(found) if number >= 0]
    said = f"{len(numbers):,} cluster{'s' * (len(numbers) != 1)} by {how}"
    said += f"; {int((found < 0).sum()):,} of {len(gallery):,} images in none" if asked.density else ""
    said += f"; NMI with the labels {nmi(found, gallery.codes):.3f}" if gallery.labeled else ""
    members = {number: np.flatnonzero(found == number) for number in numbers}
    rows = [(number, len(its), *_main_label(gallery, its), gallery.paths[its[0]]) for number, its in members.items()]
    if asked.out is not None:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(("path", "label", "cluster"))
        writer.writerows(zip(gallery.paths, gallery.labels, found.tolist(), strict=True))
        files.write(asked.out, text.getvalue(), "surrogateescape")
    if asked.json:
        paths = {number: [gallery.paths[row] for row in its] for number, its in members.items()}
        print_json({"how": how, "clusters": paths})
    elif asked.page is None:
        heads = ("cluster", "images", "most have the label", "share", "one of them")
        print_table(said, heads, rows, numbers=(0, 1, 3))
    if asked.page is not None:
        shelves = [
            Shelf(_title(number, its, row), [picture(gallery, place) for place in its[:SHOWN]])
            for (number, its), row in zip(members.items(), rows, strict=True)
        ]
        write_shelves(asked.page, "Clusters", [str(asked.gallery)], [f"{said}."], shelves)
        wrote(asked)


def _clustered(asked: Namespace, gallery: "Gallery") -> "tuple[np.ndarray, str]":
    """The cluster of each row, and how it was found."""
    from isosphere.cli.galleries import threshold
    from isosphere.errors import BadArgument, BadUsage
    from isosphere.gallery.groups import by_density, by_means, suggested_density
    from isosphere.inference import progress_bar

    if asked.density:
        if asked.clusters is not None:
            raise BadUsage("isosphere cluster", "--clusters is for k-means: leave it out, or --density")
        above = threshold("above", asked.above)
        if above is None:
            with progress_bar("looking for a threshold", len(gallery)) as show:
                above = suggested_density(gallery, asked.least, show)
        with progress_bar("comparing", len(gallery)) as show:
            return by_density(gallery, above, asked.least, show), f"density (cosine {above:.4f}, {asked.least} images)"
    if asked.above is not None:
        raise BadUsage("isosphere cluster", "--above is for --density")
    if asked.clusters is None and not gallery.labeled:
        raise BadArgument("--clusters", None, "given, as the images have no labels to count")
    clusters = len(gallery.classes) if asked.clusters is None else asked.clusters
    return by_means(gallery, clusters, asked.seed), f"k-means (seed {asked.seed})"


def _main_label(gallery: "Gallery", rows: "np.ndarray") -> tuple[str, str]:
    """The label that most of some rows have, and its share."""
    from collections import Counter

    label, count = Counter(gallery.labels[row] for row in rows).most_common(1)[0]
    return label, f"{count / len(rows):.2f}"


def _title(number: int, rows: "np.ndarray", row: tuple[Any, ...]) -> str:
    return f"Cluster {number}, {len(rows):,} images, {row[3]} of them {row[2]}"
