"""Measure what smaller vectors cost: R@1 against bytes, on a run's test images.

  isosphere sizes runs/my_photos-seed0
  isosphere sizes runs/my_photos-seed0 --dims 128,64 --whiten --json

Each line is a way in which `isosphere index` can keep vectors: --dim for fewer numbers, --quantize for fewer
bits. The images were not trained on. Their principal components are those of the images themselves, as in a
gallery of them, without labels.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="the run folder of the trained model, with its test embeddings")
    parser.add_argument("--dims", help="how many numbers to keep, with commas; by default 512,256,128,64,32,16")
    parser.add_argument("--whiten", action="store_true", help="give all components the same variance")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")


def run(asked: Namespace) -> None:
    from isosphere.cli.galleries import print_json, print_table
    from isosphere.errors import BadArgument, MissingPart, Option
    from isosphere.gallery.sizes import SMALLER, sizes
    from isosphere.runs import read

    words = [] if asked.dims is None else asked.dims.split(",")
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise BadArgument("--dims", asked.dims, "whole numbers with commas, as 128,64")
    held = read(asked.run).embedded
    if held is None:
        raise MissingPart(asked.run, "test embeddings", (Option("loop.save_embeddings", True),))
    found = sizes(held, [int(word) for word in words] or SMALLER, asked.whiten)
    if asked.json:
        print_json([one._asdict() for one in found])
        return
    heads = ("numbers", "kept as", "bytes", "R@1 %")
    rows = [
        (one.dim, one.stored + ", whitened" * one.whiten, f"{one.bytes:,}", f"{100 * one.recall:.1f}") for one in found
    ]
    print_table(f"{asked.run.name}: {int(held.is_query.sum()):,} queries", heads, rows, numbers=(0, 2, 3))
