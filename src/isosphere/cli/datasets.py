"""List which retrieval benchmarks are installed, and where to get the others.

  isosphere datasets                                those in data/
  isosphere datasets ./data --get cub200            download it, check it and unpack it
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    parser.add_argument("root", type=Path, nargs="?", default=Path("data"), help="their folder; by default data/")
    parser.add_argument("--get", default="", metavar="NAME", help="download this one first: cub200 or sop")


def run(asked: Namespace) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from isosphere.data.layouts import SOURCES
    from isosphere.data.retrieval import install, installed

    if asked.get:
        install(asked.get, asked.root)
    table = Table("name", "data set", "state", "folder or source", box=None)
    table.columns[3].overflow = "fold"
    table.columns[0].no_wrap = True
    for row in installed(asked.root):
        how = f"--get {row.name}, or " if SOURCES[row.name].archive else ""
        table.add_row(row.name, row.title, escape(row.state), escape(str(row.folder or how + row.source)))
    table.caption = "CIFAR-10, CIFAR-100: isosphere train simclr-cifar10 --data.download true"
    Console().print(table, highlight=False)
