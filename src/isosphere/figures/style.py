"""One look for all figures: the colours of Okabe and Ito, legends outside, PNG and SVG that are the same every time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#777777"

ARM_COLOURS = {
    "none": VERMILION,
    "sec": BLUE,
    "l2reg": ORANGE,
    "sec-relative": GREEN,
    "sec-ema": SKY,
    "sec-initial": PURPLE,
    "sec-fixed": PURPLE,
    "balanced": BLACK,
}
"""A constraint has one colour in all figures."""
CYCLE = (VERMILION, BLUE, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW)
LINES = ("-", "--", ":", "-.")
RIGHT, WRONG = GREEN, VERMILION

STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "figure.titlesize": 11,
    "font.size": 9,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "image.interpolation": "nearest",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "svg.hashsalt": "isosphere",  # else the names of clip paths are drawn by lot
}
FORMATS = {".png": {"Software": "isosphere"}, ".svg": {"Creator": "isosphere", "Date": None}}


@contextmanager
def sheet(
    out: Path, title: str, rows: int = 1, columns: int = 1, size: tuple[float, float] = (4.2, 3.0), **grid: Any
) -> Iterator[tuple[Any, "list[Axes]"]]:
    """A figure and its panels row by row, `size` inches each; written to `files(out)` when the block ends well."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own settings must not change what a figure looks like
        matplotlib.rcParams.update(STYLE)
        width = max(columns * size[0], 0.085 * max(map(len, title.split("\n"))))
        figure = Figure(figsize=(width, rows * size[1] + 0.8), layout="constrained")
        figure.suptitle(title)
        panels = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, list(panels.flat)
        out.parent.mkdir(parents=True, exist_ok=True)
        for path in files(out):
            figure.savefig(path, metadata=FORMATS[path.suffix] | {"Title": title.replace("\n", ": ")})


def files(out: Path) -> list[Path]:
    """The two files of a figure: `out` with .png and with .svg."""
    stem = out.name[: -len(out.suffix)] if out.suffix in FORMATS else out.name
    return [out.with_name(stem + suffix) for suffix in FORMATS]


def rows_of(count: int, columns: int) -> tuple[int, int]:
    """Rows and columns for so many panels, at most so many side by side."""
    rows = -(-count // columns)
    return rows, -(-count // rows)


def legend_below(figure: Any, panels: "Sequence[Axes]") -> None:
    """One legend for all panels, under them; equal labels once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    _below(figure, list(handles.values()), list(handles))


def legend_above(panel: "Axes", title: str = "") -> None:
    """A panel's own legend, above its data and under its title, which it carries."""
    legend = panel.legend(title=title, loc="lower center", bbox_to_anchor=(0.5, 1.0), borderaxespad=0.2)
    legend.get_title().set_fontsize(STYLE["axes.titlesize"])


def distribution(panel: "Axes", values: Any, edges: Any, colour: str, line: str, label: str) -> None:
    """A histogram as an outline over a tint, so that several can be seen through each other."""
    panel.stairs(values, edges, fill=True, color=colour, alpha=0.2)
    panel.stairs(values, edges, color=colour, linestyle=line, linewidth=1.4, label=label)


def looks(labels: Sequence[str], arms: Sequence[str], losses: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and line of every label: by constraint and loss where these tell them apart, else in order."""
    kinds = {label: (arm, loss) for label, arm, loss in zip(labels, arms, losses, strict=True)}
    order = list(dict.fromkeys(losses))
    known = all(arm in ARM_COLOURS for arm in arms) and len(order) <= len(LINES)
    colours = {arm: ARM_COLOURS.get(arm) for arm in arms}
    if known and len(set(kinds.values())) == len(kinds) and len(set(colours.values())) == len(colours):
        return {label: (ARM_COLOURS[arm], LINES[order.index(loss)]) for label, (arm, loss) in kinds.items()}
    return {
        label: (CYCLE[number % len(CYCLE)], LINES[number // len(CYCLE) % len(LINES)])
        for number, label in enumerate(kinds)
    }


def legend_of(figure: Any, labels: Sequence[str], looks: dict[str, tuple[str, str]]) -> None:
    """A legend under all panels that tells whose colour and line is whose."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=looks[label][0], linestyle=looks[label][1]) for label in labels]
    _below(figure, lines, list(labels))


def _below(figure: Any, handles: list[Any], labels: list[str]) -> None:
    """A legend of as many columns as fit the figure, which grows if not even one does."""
    entry = 0.55 + 0.065 * max(map(len, labels))  # inches
    figure.set_figwidth(max(figure.get_figwidth(), entry + 0.2))
    columns = min(len(labels), int(figure.get_figwidth() / entry))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def narrow(panels: "Sequence[Axes]", counts: "Sequence[np.ndarray]", edges: "np.ndarray") -> None:
    """Show the part of the axis where any histogram has at least a ten-thousandth of its counts in a bin."""
    seen = sum((its > its.sum() * 1e-4).astype(int) for its in counts).nonzero()[0]
    for panel in panels:
        panel.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
