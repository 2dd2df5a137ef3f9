"""Find the images of a gallery that are nearest to a photo.

  isosphere search gallery photo.jpg --k 10
  isosphere search gallery photo.jpg other.jpg --page found.html
  isosphere search gallery ./new_photos --label gull --json

Images are compared by cosine, and the best stands first. A folder stands for all images in it. The search is
exact. --engine takes an approximate index instead; see `isosphere index --help`.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.galleries import declare_gallery, declare_run
from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    declare_gallery(parser)
    parser.add_argument("images", type=Path, nargs="+", help="image files, or folders of them")
    parser.add_argument("--k", type=int, default=10, help="how many are found for each; by default 10")
    parser.add_argument("--label", action="append", help="search only images of this label; can be given again")
    parser.add_argument("--engine", metavar="NAME", help="usearch, usearch-int8 or qdrant, if the gallery has it")
    declare_run(parser)


def run(asked: Namespace) -> None:
    from isosphere.cli.galleries import images_of, opened, print_json, print_table, wrote
    from isosphere.gallery.pages import Shelf, file_picture, picture, write_shelves

    gallery, images = opened(asked), images_of(asked.images)
    found = gallery.search(images, asked.k, asked.label)
    answers = [
        [
            {"score": round(score, 4), "label": label, "path": path, "row": row}
            for score, label, path, row in zip(*its, strict=True)
        ]
        for its in zip(found.scores.tolist(), found.labels, found.paths, found.indices.tolist(), strict=True)
    ]
    if asked.json:
        print_json([{"image": image, "found": its} for image, its in zip(images, answers, strict=True)])
    elif asked.page is None:
        for image, its in zip(images, answers, strict=True):
            rows = [(rank, f"{one['score']:.3f}", one["label"], one["path"]) for rank, one in enumerate(its, 1)]
            print_table(image, ("", "cosine", "label", "path"), rows, numbers=(0, 1))
    if asked.page is not None:
        shelves = [
            Shelf(image, [picture(gallery, one["row"], f"{one['score']:.3f}") for one in its], file_picture(image))
            for image, its in zip(images, answers, strict=True)
        ]
        among = f" with the label {' or '.join(asked.label)}" if asked.label else ""
        said = [f"The {found.indices.shape[1]} nearest of {len(gallery):,} images{among}, by cosine, the best first."]
        write_shelves(asked.page, "Search", [str(asked.gallery)], said, shelves)
        wrote(asked)
