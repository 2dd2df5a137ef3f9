"""Draw a figure of the paper, or another, from runs: as PNG and SVG.

  isosphere figure                                  lists all figures
  isosphere figure norms runs/a runs/b              writes norms.png and norms.svg
  isosphere figure convergence runs/a --metric map@r --out course
  isosphere figure feature-maps runs/a --images a.jpg b.jpg
"""

import argparse
from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser

OWN = {
    "metric": "convergence, constraints, rates, trials, differences, causes: the metric, for instance map@r",
    "metrics": "ablation: the metrics, for instance recall@1,nmi",
    "than": "differences: the method to compare with; by default none, the baseline",
    "source": "norms: train or test images; by default train",
    "classes": "map: how many classes are in color; by default 6",
    "queries": "gallery: numbers of the query images, for instance 0,7; by default six",
    "count": "gallery: neighbors, by default 3; feature-maps: channels, by default 6",
}
"""Options that only some figures have."""


def declare(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", default="", help="which figure; without a name all are listed")
    parser.add_argument("runs", nargs="*", help="run folders, or JSON files of results")
    parser.add_argument("--out", type=Path, help="the file to write, without suffix; by default NAME in this folder")
    parser.add_argument("--images", nargs="+", type=Path, default=[], help="feature-maps: the images to draw")
    for name, about in OWN.items():
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS, help=about)


def run(asked: Namespace) -> None:
    from isosphere.errors import BadArgument
    from isosphere.paper.figures import ALL

    if not asked.name:
        return _list()
    if asked.name not in ALL:
        raise BadArgument("NAME", asked.name, f"one of {', '.join(ALL)}")
    figure, out = ALL[asked.name], asked.out or Path(asked.name)
    options = figure.options({name: value for name, value in vars(asked).items() if name in OWN})
    if asked.name == "feature-maps":
        from isosphere.paper.feature_maps import last_maps

        options |= last_maps([*map(Path, asked.runs)], asked.images)
    for path in figure(asked.runs, out, **options):
        print(path)


def _list() -> None:
    from rich.console import Console
    from rich.table import Table

    from isosphere.paper.figures import ALL

    table = Table(box=None, show_header=False)
    for name, figure in ALL.items():
        table.add_row(name, figure.description)
    Console().print(table, highlight=False)
