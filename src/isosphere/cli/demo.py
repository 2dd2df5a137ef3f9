"""Train two small models, without and with a constraint, compare them, and search.

  isosphere demo

It takes about two minutes on two CPU cores. It needs no images: it draws characters of many scripts.
Both models are measured on characters never seen in training.
"""

from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from isosphere.cli.parser import Parser

SHARED = {"loss": "MultiSimilarity", "loop.snapshot_images": 0}
RUNS = {"plain": {}, "even-norms": {"constraint": "LogNorms", "constraint.eta": 4.0}}
"""From scratch SEC cost accuracy on held-out training classes and log norms did not (`isosphere reproduce causes`)."""
QUERIES, FOUND = 6, 5


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

    shared = SHARED | {"loop.snapshot_every": max(1, asked.steps // 5) if asked.steps else 200}
    shared |= {"loop.steps": asked.steps} if asked.steps else {}
    with ExitStack() as stack:
        recipes = {
            stack.enter_context(claimed(asked.out, f"demo-{name}")): find("rendered", shared | change)
            for name, change in RUNS.items()
        }
        results = run_many(recipes, asked.device)
    folders = [*recipes]
    show(comparison(results))
    print(_verdict(*(result["last"] for result in results.values())))
    print(_search(folders[-1]))
    for folder in folders:
        print(f"run folder: {folder}")
    page = write_page(folders, folders[0].with_name(folders[0].name.replace("plain", "report") + ".html"))
    print(f"open in a browser: {page}")


def _verdict(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """What the table shows, in two lines."""
    from isosphere.metrics import registry
    from isosphere.metrics.registry import NORM_MEAN, NORM_VARIANCE

    shown = [registry.metric(key) for key in (registry.choosing("retrieval"), registry.leading("retrieval"))]
    changes = ", ".join(f"{one.heading} {100 * (after[one.key] - before[one.key]):+.1f}" for one in shown)
    spreads = " to ".join(f"{last[NORM_VARIANCE] ** 0.5 / last[NORM_MEAN]:.2f}" for last in (before, after))
    return (
        f"Even norms change {changes} points; the norms' coefficient of variation goes from {spreads}.\n"
        "One seed decides nothing: docs/evidence has several, and says where constraints help and where not."
    )


def _search(folder: Path) -> str:
    """What the trained model finds for a few characters among all that it has never seen."""
    from isosphere.report.records import embedded
    from isosphere.report.retrievals import evenly, nearest
    from isosphere.runs import read

    held = embedded(read(folder))
    names = [held.classes[label].split(" ", 1)[1].lower() for label in held.labels]
    queries = evenly(held, QUERIES)
    lines = [f"Search with {folder.name}, the {FOUND} nearest of {len(names):,} images never seen in training:"]
    for query, found in zip(queries, nearest(held, queries, FOUND).indices, strict=True):
        right = sum(names[index] == names[query] for index in found)
        wrong = dict.fromkeys(names[index] for index in found if names[index] != names[query])
        lines.append(f"  {names[query]}: {right} of {FOUND} right" + (f", else {'; '.join(wrong)}" if wrong else ""))
    return "\n".join(lines)
