"""Write one page about a run, a comparison of runs, or a whole table.

  isosphere report runs/my_photos-sec-seed0 runs/my_photos-seed0
  isosphere report results/retrieval_cub200.json --out table3.html
  isosphere report norms.jsonl

The page is one HTML file. Any browser opens it, without a network.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    about = "run folders, files of a NormMonitor, or JSON files of results"
    parser.add_argument("runs", type=Path, nargs="+", help=about)
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the file; by default report.html")


def run(asked: Namespace) -> None:
    from isosphere.report import write_page

    print(write_page(asked.runs, asked.out))
