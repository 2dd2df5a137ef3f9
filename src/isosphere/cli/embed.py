"""Write the embeddings of images with a trained run.

  isosphere embed runs/my_photos-sec-seed0 ./other_photos --out e.npy

This writes the raw embeddings to e.npy, their labels to e.labels.npy, and e.paths.txt: a line is an image's
path, a tab and its label. Of train, val and test all images are taken, seen as the run's test images are.
With --features it is what the backbone gives, on which a run without labels has its probe trained.
Faces are framed as those that the run was trained on, and averaged with their mirror images. FOLDER:0.52
frames them by another share.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser
from isosphere.errors import BadArgument

FIELDS = {
    "data.skip_unreadable": "true leaves out what cannot be read",
    "data.fraction": "faces: share of the shorter side of their frame",
    "data.align": "faces: false cuts out a central square",
}


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("images", type=Path, help="a folder of class folders, a flat folder of images, or a CSV")
    parser.add_argument("--out", type=Path, required=True, help="the .npy file; labels and paths are put next to it")
    parser.add_argument("--features", action="store_true", help="the backbone's features, not embeddings")
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
