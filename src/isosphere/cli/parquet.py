"""Write a gallery as a Parquet file, for other databases.

  isosphere parquet gallery --out gallery.parquet

The columns are id, path, label and vector, a unit vector of 32-bit numbers. An image keeps its id. The guide on
search shows how pgvector and LanceDB take the file.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    parser.add_argument("gallery", type=Path, help="the folder that `isosphere index` wrote")
    parser.add_argument("--out", type=Path, required=True, help="the .parquet file")


def run(asked: Namespace) -> None:
    from isosphere.files import writable
    from isosphere.gallery import load_gallery
    from isosphere.gallery.tables import write_parquet

    writable(asked.out)
    print(write_parquet(load_gallery(asked.gallery, "cpu"), asked.out))
