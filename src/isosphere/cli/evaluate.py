"""Measure a trained run on its test classes, or on other images.

  isosphere evaluate runs/my_photos-seed0
  isosphere evaluate runs/my_photos-seed0 --data ./other_photos
  isosphere evaluate runs/people-cosface-seed0 --data.pairs lfw --data.pairs_root faces

With --data it measures retrieval among other images. This works for all runs, also on faces or without
labels. If these have train/ and test/ folders, or a CSV with a split, only the test images are measured.
Every field of the run's data can be changed, for instance --data.pairs.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser
from isosphere.cli.trained import declare_last
from isosphere.errors import BadUsage

SHOWN = {
    "data.root": "where the run's own images are now; by default where they were",
    "data.pairs": "faces: other sets of pairs, for instance lfw,cfp_fp",
    "data.skip_unreadable": "true leaves out files that cannot be read; by default they are an error",
}


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="the run folder of the trained model")
    parser.add_argument("--data", type=Path, help="folder, CSV or Parquet file; by default the run's own test images")
    parser.add_argument("--probe", action="store_true", help="runs without labels: a linear probe at several rates")
    declare_last(parser)
    parser.device()
    parser.fields(SHOWN, lambda field: field.startswith("data."))


def run(asked: Namespace) -> None:
    from isosphere.cli.trained import load
    from isosphere.report.tables import comparison, probe_table, show
    from isosphere.train.contrastive import RATES
    from isosphere.train.measure import measure_run, probe_run

    if asked.probe and asked.data is not None:
        raise BadUsage("isosphere evaluate", "--probe is taken on the run's own images: leave out --data")
    trained = load(asked, others=asked.data is not None)
    if asked.probe:
        found, tested = probe_run(trained, RATES)
        show(probe_table(found, asked.run.name, tested))
        return
    show(comparison({asked.run: measure_run(trained, None if asked.data is None else str(asked.data))}))
