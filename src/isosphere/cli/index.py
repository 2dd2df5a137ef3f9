"""Make a gallery of images that can be searched, or bring it up to date.

  isosphere index runs/my_photos-seed0 ./photos --out gallery
  isosphere index runs/my_photos-seed0 ./more.csv --out gallery

The gallery is a folder. It has a vector, the path, the label and a small picture of each image. The same
call again embeds what is new or changed, and drops what is gone. Another folder or CSV is added to it. A call
that was stopped goes on where it was. Files that cannot be read are left out, and named.

Search is exact. For millions of images --engine usearch makes an approximate index in the gallery. --engine
qdrant uploads the vectors, paths and labels to your own Qdrant. Both print how much of exact search they find.

A vector has as many numbers as the model gives, in half precision. --dim and --quantize make it smaller;
`isosphere sizes` measures what that costs. Both are for a new gallery.

All images are taken, also where there are train, val and test folders, and also without labels.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.parser import Parser

FIELDS = {
    "data.label_regex": "labels from names of files: the group in brackets of a pattern; by default the run's",
    "data.fraction": "faces: share of the shorter side that is cut out; by default the run's",
    "data.align": "faces: false cuts out a central square; by default the run's",
}


def declare(parser: Parser) -> None:
    parser.add_argument("run", type=Path, help="the run folder of the trained model")
    parser.add_argument("images", type=Path, help="a folder of class folders, a flat folder, or a CSV or Parquet file")
    parser.add_argument("--out", type=Path, required=True, help="the gallery, a folder; made if it is not there")
    parser.add_argument("--remove", action="store_true", help="take the images of this folder or CSV out instead")
    parser.add_argument("--dim", type=int, help="keep fewer numbers of a vector, by principal components of the images")
    parser.add_argument("--whiten", action="store_true", help="with --dim: give all components the same variance")
    parser.add_argument("--quantize", choices=("int8", "binary"), help="keep a byte or a bit for each number")
    engines = "make an approximate index, too: usearch, usearch-int8, or qdrant; later calls keep it up to date"
    parser.add_argument("--engine", metavar="NAME", help=engines)
    parser.add_argument("--url", help="with --engine qdrant: its address, as http://localhost:6333")
    parser.add_argument("--collection", help="with --engine qdrant: the collection; by default the gallery's name")
    parser.set_defaults(last=False)  # a gallery is opened again with the run's best weights
    parser.device()
    parser.fields(FIELDS, lambda field: field in FIELDS)


def run(asked: Namespace) -> None:
    from isosphere.cli.trained import load
    from isosphere.gallery import forget, index
    from isosphere.gallery.engines import add_engine, check_engine, sync_engines
    from isosphere.inference import progress_bar

    check_engine(asked.engine, asked.url)
    if asked.remove:
        changes = forget(asked.images, asked.out)
    else:
        kept = {"dim": asked.dim, "whiten": asked.whiten, "quantize": asked.quantize}
        changes = index(load(asked, others=True), asked.run, asked.images, asked.out, **kept)
    said = f"{changes.added} embedded, {changes.removed} removed, {changes.kept} kept"
    said += f", {changes.relabeled} of them with another label" if changes.relabeled else ""
    print(f"{asked.out}: {changes.added + changes.kept} images ({said})")
    with progress_bar("indexing", changes.added + changes.kept) as show:
        measured = sync_engines(asked.out, show)
        if asked.engine is not None and asked.engine not in measured:
            options = {}
            if asked.engine == "qdrant":
                options = {"url": asked.url, "collection": asked.collection or asked.out.resolve().name}
            measured[asked.engine] = add_engine(asked.out, asked.engine, options, show)
    for name, its in measured.items():
        print(f"{name}: recall@{its.k} {its.recall:.3f} against exact search, over {its.images:,} of the images")
