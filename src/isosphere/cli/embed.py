"""Write the embeddings of images with a trained run.

  isosphere embed runs/my_photos-seed0 ./other_photos --out e.npy

This writes three files:

  e.npy           the raw embeddings, a row for each image
  e.labels.npy    their labels
  e.paths.txt     a line for each image: path, tab, label

All images are taken, also where there are train, val and test folders. They are resized and cropped as the
run's test images are. With --features the file holds the backbone's output. Use it for runs without labels.

Faces are framed as in the run's training, and averaged with their mirror images. FOLDER:0.52 cuts them to
another share of the frame.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser
from isosphere.cli.trained import declare_last
from isosphere.errors import BadArgument

FIELDS = {
    "data.skip_unreadable": "true leaves out files that cannot be read; by default they are an error",
    "data.label_regex": "labels from names of files: the group in brackets of a pattern; by default the run's",
    "data.fraction": "faces: share of the shorter side that is cut out; by default the run's",
    "data.align": "faces: false cuts out a central square; by default the run's",
}


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="the run folder of the trained model")
    parser.add_argument("images", type=Path, help="a folder of class folders, a flat folder, or a CSV or Parquet file")
    parser.add_argument("--out", type=Path, required=True, help="the .npy file; labels and paths go next to it")
    parser.add_argument("--features", action="store_true", help="write the backbone's features, not embeddings")
    declare_last(parser)
    parser.device()
    parser.fields(FIELDS, lambda field: field in FIELDS)


def run(asked: Namespace) -> None:
    from isosphere.cli.trained import load
    from isosphere.files import writable
    from isosphere.inference import embed_files

    if asked.out.suffix != ".npy":
        raise BadArgument("--out", str(asked.out), "a .npy file")
    writable(asked.out)
    for path in embed_files(load(asked, others=True), str(asked.images), asked.out, asked.features):
        print(path)
