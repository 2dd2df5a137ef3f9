"""List the images of a gallery that probably have a wrong label, the surest first.

  isosphere label-issues gallery
  isosphere label-issues gallery --k 10 --page issues.html

Each image's k nearest vote on its label. It is listed if they are as sure of another label as they usually
are of that label's own images. The list is for a person to look through; nothing is changed.
"""

from argparse import Namespace
from typing import TYPE_CHECKING

from isosphere.cli.galleries import declare_gallery
from isosphere.cli.parser import Parser

if TYPE_CHECKING:
    from isosphere.gallery import Gallery
    from isosphere.gallery.votes import Doubt

NEIGHBORS = 5  # shown on the page


def declare(parser: Parser) -> None:
    declare_gallery(parser)
    parser.add_argument("--k", type=int, default=20, help="how many of the nearest vote; by default 20")


def run(asked: Namespace) -> None:
    from isosphere.cli.galleries import opened, print_json, print_table, wrote
    from isosphere.gallery.votes import label_issues
    from isosphere.inference import progress_bar

    gallery = opened(asked)
    with progress_bar("comparing", len(gallery)) as show:
        issues, alone = label_issues(gallery, asked.k, show)
    said = [f"{len(issues):,} of {len(gallery):,} labels are doubtful"]
    said += [f"{alone:,} images are the only one of their label: they cannot be judged"] if alone else []
    if asked.json:
        print_json([vars(one) | {"path": gallery.paths[one.row]} for one in issues])
    elif asked.page is None:
        rows = [
            (f"{one.share:.2f}", one.instead, f"{one.own:.2f}", one.label, gallery.paths[one.row]) for one in issues
        ]
        heads = ("vote", "for", "vote", "for its label", "path")
        print_table("; ".join(said), heads, rows, numbers=(0, 2))
    if asked.page is not None:
        _write(asked, gallery, issues, said)
        wrote(asked)


def _write(asked: Namespace, gallery: "Gallery", issues: "list[Doubt]", said: list[str]) -> None:
    """The page: each image next to its nearest, which agree with its label or not."""
    import torch

    from isosphere.gallery.pages import MOST, Shelf, picture, write_shelves

    shown = issues[: MOST // (NEIGHBORS + 1)]
    shelves, doubts = [], iter(shown)
    for _, found in gallery.neighbors(NEIGHBORS, torch.tensor([one.row for one in shown])):
        for indices, scores in zip(found.indices.tolist(), found.scores.tolist(), strict=True):
            one = next(doubts)
            near = [
                picture(gallery, row, f"{score:.3f}", "right" if gallery.labels[row] == one.label else "wrong")
                for row, score in zip(indices, scores, strict=True)
            ]
            words = f"Vote {one.share:.2f} for {one.instead}, {one.own:.2f} for {one.label}: {gallery.paths[one.row]}"
            shelves.append(Shelf(f"{one.label}, or {one.instead}?", near, picture(gallery, one.row), words))
    sentences = [f"{its}." for its in said]
    sentences += [f"The {len(shown)} surest are shown."] if len(shown) < len(issues) else []
    sentences += ["A neighbor is right if it has the label of the image, and wrong if it has another one."]
    write_shelves(asked.page, "Doubtful labels", [str(asked.gallery)], sentences, shelves)
