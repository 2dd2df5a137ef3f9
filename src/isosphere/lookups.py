"""The commands that show what is there: embeddings, figures, pages, recipes, data sets. Nothing is trained."""

from pathlib import Path
from typing import Annotated

import typer

from isosphere.arguments import parse_changes, split_changes


def inspect(
    embeddings: Annotated[Path, typer.Argument(help="a .npy file of raw embeddings, (N, D), or a .npz also of labels")],
    labels: Annotated[Path | None, typer.Argument(help="a .npy file of labels, (N,), integers or names")] = None,
) -> None:
    """Metrics and norms of embeddings from any tool, and whether SEC could matter for them.

    Without labels, or with those of one class only, norms alone are told. One .npz, as np.savez makes it, may hold
    both: the arrays embeddings and labels. A run's test_embeddings.npz is one.
    """
    from rich.console import Console

    from isosphere.report import inspection

    for part in inspection(embeddings, labels):
        Console().print(part, highlight=False)


def figure(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="which figure; none lists them all")] = "",
    runs: Annotated[list[Path] | None, typer.Argument(help="run folders, or JSON files of results")] = None,
    out: Annotated[Path | None, typer.Option(help="the file, without suffix; by default NAME here")] = None,
    images: Annotated[list[Path] | None, typer.Option(help="feature-maps: the images to look at")] = None,
) -> None:
    """Draw a figure of the paper, or another, from runs as PNG and SVG: `isosphere figure norms runs/a runs/b`.

    A figure's own options are changed as `--metric map@r`.
    """
    from isosphere.figures import FIGURES

    if not name:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, show_header=False)
        for key, about in FIGURES.items():
            table.add_row(key, about.description)
        Console().print(table, highlight=False)
        return
    if name not in FIGURES:
        raise ValueError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    # The command-line library takes options that it does not know for runs.
    folders, changes = split_changes([*map(str, runs or ()), *context.args])
    options = FIGURES[name].options(parse_changes(changes))
    if name == "feature-maps":
        from isosphere.inference import feature_maps

        options |= feature_maps([*map(Path, folders)], list(images or ()))
    for path in FIGURES[name](folders, out or Path(name), **options):
        print(path)


def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders, files of a NormMonitor, or JSON files of results")],
    out: Annotated[Path, typer.Option(help="the page")] = Path("report.html"),
) -> None:
    """Write one self-contained page about a run, a comparison of runs, or a whole table: open it in any browser."""
    from isosphere.page import write_page

    print(write_page(runs, out))


def recipes(
    name: Annotated[str, typer.Argument(help="a recipe, or how the names of some begin; none gives an overview")] = "",
) -> None:
    """List the recipes, or show every field of one with the reason for it."""
    from rich.console import Console
    from rich.table import Table

    from isosphere.paper import ALL, find
    from isosphere.recipes import SUFFIXES, options, schema

    console, table = Console(), Table(box=None, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    if not name:
        for key in (key for key, recipe in ALL.items() if recipe.constraint == schema.Baseline()):
            table.add_row(key, ALL[key].claim.split(":")[0])
        table.add_row("", "")
        for suffix, claim in SUFFIXES.items():
            table.add_row(f"NAME{suffix}", claim)
        console.print("Most names may end in one of those below; `isosphere recipes cub200` lists all that begin so.\n")
    elif name in ALL or not any(key.startswith(name) for key in ALL):
        recipe = find(name, {})
        table.title = f"{name}: {recipe.claim}"
        for field, kind, value, reason in options.describe(recipe):
            table.add_row(f"--{field}", value, f"{' '.join(reason.split())} [dim]{kind}[/dim]")
    else:
        for key, recipe in ALL.items():
            if key.startswith(name):
                table.add_row(key, recipe.claim)
    console.print(table, highlight=False)


def datasets(
    root: Annotated[Path, typer.Argument(help="the folder that holds the benchmarks")] = Path("data"),
    get: Annotated[str, typer.Option(help="first download this one (cub200 or sop), check it and unpack it")] = "",
) -> None:
    """Which retrieval benchmarks are installed, where, whether complete, and where to get the others."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from isosphere.data.layouts import SOURCES
    from isosphere.data.retrieval import install, installed

    if get:
        install(get, root)
    table = Table("name", "data set", "state", "folder or source", box=None)
    table.columns[3].overflow = "fold"
    table.columns[0].no_wrap = True
    for row in installed(root):
        how = f"--get {row.name}, or " if SOURCES[row.name].archive else ""
        table.add_row(row.name, row.title, escape(row.state), escape(str(row.folder or how + row.source)))
    table.caption = "CIFAR-10, CIFAR-100: isosphere train simclr-cifar10 --data.download true"
    Console().print(table, highlight=False)
