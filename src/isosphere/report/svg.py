"""A panel as inline SVG, in colors that can be read on light and on dark ground."""

import hashlib
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isosphere.errors import need
from isosphere.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (3.7, 2.35)  # inches: its text is as large as that around it on a phone
INSIDE, PAD = (0.13, 0.2, 0.84, 0.76), 0.05  # of a panel without its labels; inches around them
INKS = {"#000000": "var(--ink)", "#dddddd": "var(--line)", "#ffffff": "var(--card)", "#777777": "var(--soft)"}
DASHES = {"-": "none", "--": "7 3", ":": "2 3", "-.": "9 3 2 3"}
LIGHTER = 0.35  # how far a color goes to white on dark ground
POINTS = 200  # at most, of a line


def panel_svg(draw: Callable[["Axes"], object], words: str, size: tuple[float, float] = SIZE) -> str:
    """A panel that `draw` fills, with words for those who cannot see it; nothing where it draws nothing."""
    with style.our_style():
        figure = style.new_figure(size, layout=None)
        panel = figure.add_axes(INSIDE)
        draw(panel)
        if not panel.has_data():
            return ""
        _fit(figure, panel)
        figure.patch.set_visible(False)
        panel.patch.set_visible(False)
        file = io.StringIO()
        need("matplotlib.backends.backend_svg", "train", "drawing figures").FigureCanvasSVG(figure).print_svg(file)
    found: Any = re.search(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>(.*)</svg>", file.getvalue(), re.DOTALL)
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", found[2], flags=re.DOTALL)
    drawn = re.sub(r"<g id=\"[a-z]\w*\"", "<g", re.sub(r"\s*\n\s*", "\n", drawn))
    mark = hashlib.sha256(drawn.encode()).hexdigest()[:8]  # names are of the whole page
    drawn = re.sub(r"(id=\"|#)([mp][0-9a-f]{10})\b", rf"\g<1>\g<2>{mark}", drawn)
    drawn = re.sub(r"(fill|stroke): (#[0-9a-f]{6})", lambda part: f"{part[1]}: {ink(part[2])}", drawn)
    return f'<svg {found[1]} role="img" aria-label="{html.escape(words)}">{drawn}</svg>'


def _fit(figure: Any, panel: "Axes") -> None:
    """Give a panel the room that its labels leave. For many small ones this is quicker than a layout engine."""
    (width, height), inside = figure.get_size_inches(), panel.get_position()
    box: Any = panel.get_tightbbox()
    x0, y0, x1, y1 = (edge / figure.dpi for edge in box.extents)
    left, low = inside.x0 * width - x0 + PAD, inside.y0 * height - y0 + PAD
    right, high = x1 - inside.x1 * width + PAD, y1 - inside.y1 * height + PAD
    panel.set_position((left / width, low / height, 1 - (left + right) / width, 1 - (low + high) / height))


def ink(color: str) -> str:
    """A color in CSS, as it is in figures on light ground, and lighter on dark."""
    color = color.lower()
    parts = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    light = "".join(f"{round(part + LIGHTER * (255 - part)):02x}" for part in parts)
    return INKS.get(color, f"light-dark({color}, #{light})")


def legend(styles: Mapping[str, tuple[str, str]]) -> str:
    """Names, each after the line that stands for it."""
    items = []
    for name, (color, line) in styles.items():
        options = f"stroke: {ink(color)}; stroke-width: 2; stroke-dasharray: {DASHES[line]}"
        swatch = f'<svg width="30" height="14" aria-hidden="true"><path d="M0 7H30" style="{options}"/></svg>'
        items.append(f"<li>{swatch}{html.escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def thinned(items: Sequence) -> list:
    """At most POINTS of them, evenly picked."""
    if len(items) <= POINTS:
        return list(items)
    return [items[round(number * (len(items) - 1) / (POINTS - 1))] for number in range(POINTS)]
