"""Find near copies in a gallery: groups of images that are nearly the same.

  isosphere duplicates gallery
  isosphere duplicates gallery --above 0.95 --page copies.html

Two images belong to one group if their cosine is at least --above, or if others between them connect them.
By default the threshold comes from the gallery: 95 % of its small, compressed pictures are at least that near
to their originals. It is printed.
"""

from argparse import Namespace

from isosphere.cli.galleries import declare_gallery, declare_run
from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    declare_gallery(parser)
    parser.add_argument("--above", type=float, help="the least cosine of copies; by default suggested from the gallery")
    declare_run(parser)


def run(asked: Namespace) -> None:
    from isosphere.cli.endings import note
    from isosphere.cli.galleries import opened, print_json, print_table, threshold, wrote
    from isosphere.gallery.groups import duplicates, suggested_above
    from isosphere.gallery.pages import Shelf, picture, write_shelves
    from isosphere.inference import progress_bar

    gallery = opened(asked)
    above = threshold("above", asked.above)
    if above is None:
        above = suggested_above(gallery)
        note(f"threshold {above:.4f}: 95 % of the gallery's small pictures are that near to their originals")
    with progress_bar("comparing", len(gallery)) as show:
        groups, edges = duplicates(gallery, above, show)
    nearest: dict[int, float] = {}
    for left, right, cosine in zip(edges.left.tolist(), edges.right.tolist(), edges.cosines.tolist(), strict=True):
        for row in (left, right):
            nearest[row] = max(nearest.get(row, -1.0), cosine)
    copies = sum(map(len, groups)) - len(groups)
    said = f"{len(groups):,} groups; without {copies:,} of {len(gallery):,} images no two are as near as {above:.4f}"
    if asked.json:
        listed = [[{"path": gallery.paths[row], "score": round(nearest[row], 4)} for row in its] for its in groups]
        print_json({"above": above, "groups": listed})
    elif asked.page is None:
        rows = [
            (number, f"{nearest[row]:.4f}", gallery.labels[row], gallery.paths[row])
            for number, its in enumerate(groups, 1)
            for row in its
        ]
        print_table(said, ("group", "cosine to the nearest", "label", "path"), rows, numbers=(0, 1))
    if asked.page is not None:
        shelves = [
            Shelf(f"Group {number}, {len(its)} images", [picture(gallery, row, f"{nearest[row]:.4f}") for row in its])
            for number, its in enumerate(groups, 1)
        ]
        write_shelves(asked.page, "Near copies", [str(asked.gallery)], [f"{said}."], shelves)
        wrote(asked)
