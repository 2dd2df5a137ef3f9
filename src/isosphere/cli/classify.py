"""Label new images by the vote of the nearest images of a gallery.

  isosphere classify gallery photo.jpg
  isosphere classify gallery ./new_photos --above 0.6 --json

The k nearest vote; nearer ones count more. With --above an image is called unknown if not even the nearest has
that cosine. `isosphere calibrate` measures which cosine is wrong how often. How often the vote is right for the
gallery's own images, each left out, is printed, too.
"""

from argparse import Namespace
from pathlib import Path

from isosphere.cli.galleries import declare_gallery, declare_run
from isosphere.cli.parser import Parser

UNKNOWN = "unknown"


def declare(parser: Parser) -> None:
    declare_gallery(parser)
    parser.add_argument("images", type=Path, nargs="+", help="image files, or folders of them")
    parser.add_argument("--k", type=int, default=20, help="how many of the nearest vote; by default 20")
    parser.add_argument("--above", type=float, help="the least cosine to the nearest; below it the label is unknown")
    declare_run(parser)


def run(asked: Namespace) -> None:
    from isosphere.cli.galleries import images_of, opened, print_json, print_table, threshold, wrote
    from isosphere.gallery.pages import Shelf, file_picture, picture, write_shelves
    from isosphere.gallery.votes import checked, classify

    above = threshold("above", asked.above)
    gallery, images = opened(asked), images_of(asked.images)
    votes, (right, count) = classify(gallery, images, asked.k), checked(gallery, asked.k)
    names = [
        gallery.classes[winner] if above is None or score >= above else UNKNOWN
        for winner, score in zip(votes.winners.tolist(), votes.scores.tolist(), strict=True)
    ]
    said = f"the vote is right for {100 * right:.1f} % of {count:,} of the gallery's own images, each left out"
    found = list(zip(images, names, votes.shares.tolist(), votes.scores.tolist(), votes.rows.tolist(), strict=True))
    if asked.json:
        print_json([
            {"image": image, "label": name, "share": round(share, 4), "score": round(score, 4),
             "nearest": gallery.paths[row]} for image, name, share, score, row in found
        ])  # fmt: skip
    elif asked.page is None:
        rows = [(name, f"{share:.2f}", f"{score:.3f}", image) for image, name, share, score, _ in found]
        print_table(said, ("label", "vote", "cosine of the nearest", "image"), rows, numbers=(1, 2))
    if asked.page is not None:
        shelves = [
            Shelf(f"{name}, vote {share:.2f}", [picture(gallery, row, f"{score:.3f}")], file_picture(image))
            for image, name, share, score, row in found
        ]
        write_shelves(asked.page, "Labels by vote", [str(asked.gallery)], [f"{said[0].upper()}{said[1:]}."], shelves)
        wrote(asked)
