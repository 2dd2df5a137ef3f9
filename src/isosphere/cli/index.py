"""Make a gallery of images that can be searched, or bring it up to date.

  isosphere index runs/my_photos-sec-seed0 ./photos --out gallery
  isosphere index runs/my_photos-sec-seed0 ./more.csv --out gallery

The gallery is a folder. It has a vector, the path, the label and a small picture of each image. The same
call again embeds what is new or changed, and drops what is gone. Another folder or CSV is added to it. A call
that was stopped goes on where it was. Files that cannot be read are left out, and named.

A vector has as many numbers as the model gives, in half precision. --dim and --quantize make it smaller;
`isosphere sizes` measures what that costs. Both are for a new gallery.

All images are taken, also where there are train, val and test folders, and also without labels.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser

FIELDS = {
    "data.fraction": "faces: share of the shorter side that is cut out; by default the run's",
    "data.align": "faces: false cuts out a central square; by default the run's",
}


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="the run folder of the trained model")
    parser.add_argument("images", type=Path, help="a folder of class folders, a flat folder of images, or a CSV")
    parser.add_argument("--out", type=Path, required=True, help="the gallery, a folder; made if it is not there")
    parser.add_argument("--dim", type=int, help="keep fewer numbers of a vector, by principal components of the images")
    parser.add_argument("--whiten", action="store_true", help="with --dim: give all components the same variance")
    parser.add_argument("--quantize", choices=("int8", "binary"), help="keep a byte or a bit for each number")
    parser.device()
    parser.fields(FIELDS, lambda field: field in FIELDS)


def run(asked: Namespace) -> None:
    from isosphere.cli.trained import load
    from isosphere.gallery import index

    kept = {"dim": asked.dim, "whiten": asked.whiten, "quantize": asked.quantize}
    changes = index(load(asked, others=True), asked.run, asked.images, asked.out, **kept)
    said = f"{changes.added} embedded, {changes.removed} removed, {changes.kept} kept"
    said += f", {changes.relabeled} of them with another label" if changes.relabeled else ""
    print(f"{asked.out}: {changes.added + changes.kept} images ({said})")
