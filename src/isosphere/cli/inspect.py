"""Measure embeddings of any tool: metrics, norms, and whether SEC could matter.

  isosphere inspect e.npy labels.npy
  isosphere inspect e.npy                           without labels: norms only
  isosphere inspect both.npz                        from np.savez, with the arrays embeddings and labels

With labels of a single class it shows norms only, too. A run's test_embeddings.npz can be inspected as well.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    parser.add_argument("embeddings", type=Path, help="a .npy file of raw embeddings, (N, D), or a .npz also of labels")
    parser.add_argument("labels", type=Path, nargs="?", help="a .npy file of labels, (N,), integers or names")


def run(asked: Namespace) -> None:
    from rich.console import Console

    from isosphere.report import inspection

    for part in inspection(asked.embeddings, asked.labels):
        Console().print(part, highlight=False)
