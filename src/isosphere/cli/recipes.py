"""List the recipes, or show every field of one with the reason for it.

  isosphere recipes                                 recipes for your own images
  isosphere recipes photos-sec                      all fields of this one
  isosphere recipes cub200                          all recipes whose name begins so
  isosphere recipes --all                           all recipes, also the paper's
"""

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from isosphere.cli.parser import Parser

if TYPE_CHECKING:
    from isosphere.recipes import Recipe


def declare(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", default="", help="a recipe, or the beginning of some names")
    parser.add_argument("--all", action="store_true", help="list all recipes, also the paper's")


def run(asked: Namespace) -> None:
    from isosphere.paper import ALL, find

    begin = [name for name in ALL if name.startswith(asked.name)]
    if asked.name in ALL or not begin:
        _show_fields(asked.name, find(asked.name, {}))
    elif asked.name or asked.all:
        _print((name, ALL[name].claim) for name in begin)
    else:
        _show_own()


def _show_own() -> None:
    """Those for one's own images, without a constraint and with SEC; how the names of others end."""
    from isosphere.paper import RECIPES as papers
    from isosphere.recipes import RECIPES, SUFFIXES

    plain = [name for name in RECIPES if not name.endswith(tuple(filter(None, SUFFIXES)))]
    shown = [name for base in plain for name in (base, f"{base}-sec")]
    print("isosphere train NAME ./your_images\n")
    _print((name, RECIPES[name].claim) for name in shown)
    print("\nOther methods, for most of these:\n")
    _print((f"NAME{end}", claim) for end, claim in SUFFIXES.items() if end not in ("", "-sec"))
    print(f"\n`isosphere recipes NAME` shows all fields of one; `--all` lists the paper's {len(papers)}, too.")


def _show_fields(name: str, recipe: "Recipe") -> None:
    from rich.markup import escape

    from isosphere.recipes import options

    print(f"{name}: {recipe.claim}\n")
    _print(
        (f"--{field}", escape(value), f"{escape(' '.join(reason.split()))} [dim]{escape(kind)}[/dim]")
        for field, kind, value, reason in options.describe(recipe)
    )


def _print(rows: Iterable[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console().print(table, highlight=False)
