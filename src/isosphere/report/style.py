"""One style for all figures: Okabe and Ito's colors, legends outside, PNG and SVG that are the same every time."""

import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isosphere.errors import NoRoom, need
from isosphere.files import replacing, writable
from isosphere.recipes import constraints
from isosphere.recipes import labels as words
from isosphere.recipes.constraints import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRAY = "#777777"

METHOD_COLORS = {name: method.color for name, method in constraints.METHODS.items()}
CYCLE = (VERMILION, BLUE, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW)
LINES = ("-", "--", ":", "-.")
RIGHT, WRONG = GREEN, VERMILION

STYLE: dict[str, Any] = {
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
    "legend.handlelength": 3.6,  # room for the pattern of a line and its marker
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "svg.hashsalt": "isosphere",  # else the names of clip paths are drawn by lot
}
FORMATS: dict[str, dict[str, Any]] = {".png": {"Software": "isosphere"}, ".svg": {"Creator": "isosphere", "Date": None}}


@contextmanager
def sheet(
    out: Path, title: str, rows: int = 1, columns: int = 1, size: tuple[float, float] = (4.2, 3.0), **grid: Any
) -> Iterator[tuple[Any, "list[Axes]"]]:
    """A figure and its panels row by row, `size` inches each. It is written to `files(out)` when the block ends well.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    for path in files(out):
        writable(path)
    with our_style():
        width = max(columns * size[0], 0.085 * max(map(len, title.split("\n"))))
        figure = new_figure((width, rows * size[1] + 0.8))
        figure.suptitle(title)
        panels = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, list(panels.flat)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "constrained_layout not applied")
            try:
                figure.draw_without_rendering()
            except UserWarning as error:
                raise NoRoom(title.split("\n")[0]) from error
        for path in files(out):
            with replacing(path) as file:
                about = FORMATS[path.suffix] | {"Title": title.replace("\n", ": ")}
                figure.savefig(file, format=path.suffix[1:], metadata=about)


@contextmanager
def our_style(salt: str = STYLE["svg.hashsalt"]) -> Iterator[None]:
    """Our settings, whatever the user's own are; `salt` makes the names inside an SVG its own."""
    matplotlib = need("matplotlib", "train", "drawing figures")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | {"svg.hashsalt": salt})
        yield


def new_figure(size: tuple[float, float], layout: str | None = "constrained") -> Any:
    """An empty figure of so many inches."""
    return need("matplotlib.figure", "train", "drawing figures").Figure(figsize=size, layout=layout)


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
    """A panel's own legend, above its data and under its title, which it carries; long lines are broken."""
    handles, labels = panel.get_legend_handles_labels()
    figure: Any = panel.figure
    grid: Any = panel.get_gridspec()
    width = figure.get_figwidth() / grid.ncols
    labels = [wrapped(label, width - 1.3) for label in labels]
    legend = panel.legend(
        handles, labels, title=wrapped(title, width - 0.6), loc="lower center", bbox_to_anchor=(0.5, 1.0),
        borderaxespad=0.2,
    )  # fmt: skip
    legend.get_title().set_fontsize(STYLE["axes.titlesize"])


def wrapped(text: str, inches: float) -> str:
    """A text in lines that fit a width."""
    return textwrap.fill(text, max(8, int(inches / 0.068)))


def distribution(panel: "Axes", values: Any, edges: Any, color: str, line: str, label: str) -> None:
    """A histogram as an outline over a tint, so that several can be seen through each other."""
    panel.stairs(values, edges, fill=True, color=color, alpha=0.2)
    panel.stairs(values, edges, color=color, linestyle=line, linewidth=1.4, label=label)


def styles(labels: Sequence[str], methods: Sequence[str], losses: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Color and line of every label: a constraint's color, and a line by loss if that is enough, else in order."""
    kinds = {label: (method, loss) for label, method, loss in zip(labels, methods, losses, strict=True)}
    order = list(dict.fromkeys(losses))
    colors = {method: METHOD_COLORS.get(method) for method in methods}
    if None not in colors.values() and len(set(colors.values())) == len(colors):
        if len(set(kinds.values())) == len(kinds) and len(order) <= len(LINES):
            return {label: (METHOD_COLORS[method], LINES[order.index(loss)]) for label, (method, loss) in kinds.items()}
        variants = {method: [label for label, (its, _) in kinds.items() if its == method] for method in colors}
        if len(variants) > 1 and max(map(len, variants.values())) <= len(LINES):
            return {label: (METHOD_COLORS[its], LINES[variants[its].index(label)]) for label, (its, _) in kinds.items()}
    return {
        label: (CYCLE[number % len(CYCLE)], LINES[number // len(CYCLE) % len(LINES)])
        for number, label in enumerate(kinds)
    }


def styles_of(
    labels: Sequence[str], recipes: Sequence[Mapping[str, Any]], one_loss: bool = False
) -> dict[str, tuple[str, str]]:
    """Color and line of every label, by the constraints and losses of its recipes. With `one_loss` a panel has one."""
    losses = [""] * len(recipes) if one_loss else list(map(words.loss, recipes))
    return styles(labels, list(map(words.method, recipes)), losses)


def blank(panels: "Sequence[Axes]") -> None:
    """Panels that are not needed."""
    for panel in panels:
        panel.set_axis_off()


def legend_of(figure: Any, labels: Sequence[str], styles: dict[str, tuple[str, Any]]) -> None:
    """A legend under all panels of whose color and line is whose."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=styles[label][0], linestyle=styles[label][1]) for label in labels]
    _below(figure, lines, list(labels))


def _below(figure: Any, handles: list[Any], labels: list[str]) -> None:
    """A legend of as many columns as fit the figure, which grows if not even one does."""
    for columns in range(len(labels), 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        width = legend.get_window_extent().width / figure.dpi + 0.2  # inches
        if width <= figure.get_figwidth():
            return
        if columns > 1:
            legend.remove()
    figure.set_figwidth(width)


def plain_axes(panel: "Axes", log: bool = False, log_x: bool = False) -> None:
    """Few ticks with plain numbers, on logarithmic axes too."""
    from matplotlib import ticker

    panel.locator_params(nbins=5)
    for axis, limits, wanted, scale in (
        (panel.yaxis, panel.get_ylim, log, panel.set_yscale), (panel.xaxis, panel.get_xlim, log_x, panel.set_xscale),
    ):  # fmt: skip
        if not wanted:
            continue
        scale("log")
        low, high = limits()
        decades = np.log10(high / low)
        factors = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
        near = decades < 0.8  # too near for ticks at round factors
        axis.set_major_locator(ticker.MaxNLocator(4) if near else ticker.LogLocator(subs=factors, numticks=6))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.3g}"))
        axis.set_minor_locator(ticker.NullLocator())


def narrow(panels: "Sequence[Axes]", counts: "Sequence[np.ndarray]", edges: "np.ndarray") -> None:
    """Show the part of the axis where any histogram has at least a ten-thousandth of its counts in a bin."""
    seen = sum((its > its.sum() * 1e-4).astype(int) for its in counts).nonzero()[0]
    for panel in panels:
        panel.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
