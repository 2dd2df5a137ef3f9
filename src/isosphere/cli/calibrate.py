"""Find the cosine from which two images show the same, with its error rates.

  isosphere calibrate gallery
  isosphere calibrate gallery --page same.html

It compares all pairs of images, of one label and of two. A false accept takes two labels for the same, a
false reject takes one label for two. A threshold is chosen on half of the labels and judged on the other half,
both ways; the errors are the means. Give a threshold to `isosphere classify --above`.
"""

from argparse import Namespace

from isosphere.cli.galleries import declare_gallery
from isosphere.cli.parser import Parser


def declare(parser: Parser) -> None:
    declare_gallery(parser)
    parser.add_argument("--seed", type=int, default=0, help="of how the labels are split; by default 0")


def run(asked: Namespace) -> None:
    from isosphere.cli.galleries import opened, print_json, print_table, wrote
    from isosphere.gallery.calibration import calibrate
    from isosphere.gallery.thresholds import thresholds_section
    from isosphere.inference import progress_bar
    from isosphere.report.page.shell import write_sections

    gallery = opened(asked)
    with progress_bar("comparing", len(gallery)) as show:
        points, pairs = calibrate(gallery, asked.seed, show)
    said = f"{int(pairs.same.sum()):,} pairs of one label, {int(pairs.different.sum()):,} of two"
    heads = ("chosen for", "threshold", "false accepts %", "in halves", "false rejects %", "in halves")
    rows = [
        (
            "equal errors" if one.wanted is None else f"{100 * one.wanted:g} % false accepts",
            f"{one.threshold:.4f}",
            *(
                cell
                for mean, halves in zip((one.accepts, one.rejects), one.spread, strict=True)
                for cell in (f"{100 * mean:.3g}", " and ".join(f"{100 * half:.3g}" for half in halves))
            ),
        )
        for one in points
    ]
    if asked.json:
        print_json([vars(one) for one in points])
    elif asked.page is None:
        print_table(said, heads, rows, numbers=(1, 2, 4))
    if asked.page is not None:
        sections = thresholds_section(f"{said}.", heads, rows, pairs, points)
        write_sections(asked.page, "The same or not", [str(asked.gallery)], sections)
        wrote(asked)
