"""Run a whole table of the paper, and print mean and spread over seeds.

  isosphere reproduce table3 --dataset cub200 --data.root data --model.weights resnet50_msra.safetensors
  isosphere reproduce table3 --dataset cub200 --losses triplet ms --methods none sec --seeds 0 1 2
  isosphere reproduce table5 --dataset cifar10 --data.download true

Every finished run is added to a JSON file in the results folder and is not run again. The same command goes
on where it was stopped. A run that was killed starts over. Data are loaded and compiled once for all runs.
Fields of the recipes can be changed as in `isosphere train`.
"""

from argparse import BooleanOptionalAction, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from isosphere.cli.parser import Parser
from isosphere.errors import BadUsage, NotResults

if TYPE_CHECKING:
    from isosphere.paper.results import Results
    from isosphere.runs import Record

SHOWN = {
    "data.root": "the folder that holds the data sets",
    "data.cache": "where images are kept that were decoded once; by default ~/.cache/isosphere",
    "model.weights": "a file of pretrained weights; by default training starts from scratch",
    "loop.steps": "length of training, in epochs for table4 and table5",
    "loop.compile": "true compiles the network: faster on a GPU; by default false",
}


def declare(parser: Parser) -> None:
    parser.add_argument("table", help="table2, table3, table4, table5, table8, table9, causes, heads or rates")
    text = "table3: cub200 cars196 sop inshop; table4: casia lfw; table5: cifar10 cifar100"
    parser.add_argument("--dataset", default="", help=text)
    text = "table3: triplet semihard npair ms ...; table4: cosface arcface ...; by default the table's"
    parser.add_argument("--losses", nargs="+", default=[], help=text)
    parser.renamed("methods", nargs="+", help="none l2reg sec sec-relative sec-ema ...; by default the table's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="seeds of the final runs; by default 0")
    parser.add_argument("--epochs", type=int, default=100, help="table5: 100 or 200; by default 100")
    parser.add_argument("--paper", action="store_true", help="train as the authors did, without tuning")
    text = "table3, table5: tune on held-out training data, or take the recipes as they are; by default tune"
    parser.add_argument("--tune", action=BooleanOptionalAction, default=True, help=text)
    text = "run no trials: take rates and strengths from this file of results"
    parser.add_argument("--tuned-by", type=Path, metavar="FILE", help=text)
    text = "folder of JSON files; runs that it holds are not run again; by default results/"
    parser.add_argument("--results", type=Path, default=Path("results"), help=text)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where run folders go; by default runs/")
    parser.device()
    parser.fields(SHOWN)


def run(asked: Namespace) -> None:
    from isosphere.paper.experiment import open_results
    from isosphere.paper.reproduce import reproduce
    from isosphere.paper.results import Results
    from isosphere.paper.tables import TUNED, Asked, cells
    from isosphere.recipes import override

    changes, tuned_by = {"loop.save_every": "0"} | asked.changes, asked.tuned_by
    tuning = asked.tune and asked.table in TUNED and not asked.paper
    if tuned_by is not None:
        _check_source(tuned_by, tuning, asked.changes)
    wanted = Asked(asked.dataset, tuple(asked.losses), tuple(asked.methods or ()), asked.paper, asked.epochs)
    chosen = {
        cell: {method: override(recipe, changes) for method, recipe in its.items()}
        for cell, its in cells(asked.table, wanted).items()
    }
    source = Results(tuned_by) if tuned_by else None
    held = open_results(asked.results, asked.table, chosen, asked.changes, tuning, asked.paper, source)
    seeds, folder = dict.fromkeys(asked.seeds), asked.out / held.path.stem
    records = reproduce(chosen, seeds, tuning, held, folder, asked.device, source)
    _show(asked, records, [*chosen], held)
    print(f"results: {held.path}")


def _check_source(tuned_by: Path, tuning: bool, changes: dict[str, str]) -> None:
    """That --tuned-by has something to decide, and nothing else decides it."""
    from isosphere.runs import results_path

    if not results_path(tuned_by).is_file():
        raise NotResults(tuned_by, "there is no such file")
    if not tuning:
        text = "--tuned-by stands for the trials of table3 and table5: leave out --paper and --no-tune"
        raise BadUsage("isosphere reproduce", text)
    if decided := [f"--{key}" for key in changes if key.split(".")[0] in ("optimizer", "constraint")]:
        text = f"--tuned-by decides optimizer and constraint: leave out {', '.join(decided)}"
        raise BadUsage("isosphere reproduce", text)


def _show(asked: Namespace, records: list["Record"], cells: list[str], held: "Results") -> None:
    """The table over seeds, differences from the baseline, and the paper's numbers."""
    from isosphere.paper.experiment import siblings
    from isosphere.paper.tables import printed
    from isosphere.report.tables import differences_table, printed_table, seeds_table, show
    from isosphere.runs import read_results

    show(seeds_table(records))
    differences = differences_table(records)
    if asked.table in ("table3", "table4", "table5") and differences.rows:
        show(differences)
        others = siblings(asked.results, held.experiment) if held.experiment else []
        if len(others) > 1:
            every = [record for path in others for record in read_results(path).runs]
            show(differences_table(every, f"all of {', '.join(path.stem for path in others)}"))
    for cell in cells:
        metrics, rows = printed(asked.table, cell)
        if rows:
            alike = asked.paper and not (held.experiment and held.experiment.changes)
            text = "trained likewise" if alike else "another protocol: not comparable with ours"
            show(printed_table(metrics, rows, f"printed in the paper for {cell} ({text})"))
