"""Train two small models without and with SEC, and compare them.

  isosphere demo

It takes about two minutes on two CPU cores. It needs no images: it draws characters of many scripts.
Both models are measured on characters never seen in training.
"""

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from isosphere.cli.parser import Parser

RECIPES = ("rendered", "rendered-sec")


def declare(parser: Parser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where run folders go; by default runs/")
    parser.add_argument("--steps", type=int, default=0, help="steps of each run; by default 0, which is the recipe's")
    parser.device()


def run(asked: Namespace) -> None:
    from isosphere.recipes import find
    from isosphere.report import write_page
    from isosphere.report.tables import comparison, show
    from isosphere.train.folder import claimed
    from isosphere.train.tuning import run_many

    changes = {"loop.snapshot_every": max(1, asked.steps // 5) if asked.steps else 200, "loop.snapshot_images": 0}
    changes |= {"loop.steps": asked.steps} if asked.steps else {}
    with ExitStack() as stack:
        recipes = {
            stack.enter_context(claimed(asked.out, f"demo-{name}")): find(name, changes) for name in RECIPES
        }
        show(comparison(run_many(recipes, asked.device)))
    for folder in recipes:
        print(f"run folder: {folder}")
    first = list(recipes)[0]
    page = write_page(list(recipes), first.with_name(first.name.replace(RECIPES[0], "report") + ".html"))
    print(f"open in a browser: {page}")
