"""Charts as SVG in the page itself, their numbers in a table beneath; the page's script adds what hovering shows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from isosphere.page.markup import embedded, folded, number, table, text

WIDTH, HEIGHT = 400, 230
LEFT, RIGHT, TOP, BOTTOM = 50, 382, 12, 190  # the box of the axes, which page.js knows from the chart's data
POINTS, ROWS = 150, 20  # at most so many in a line and in its table
DIGIT = 7.7  # a digit's width, in a wide font
DASHES = ("", "7 3", "2 3", "9 3 2 3")
MARKS = (
    "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z", "M-3.5 -3.5H3.5V3.5H-3.5Z", "M0 -4.8L4.5 3.6H-4.5Z",
    "M0 -5L4.5 0L0 5L-4.5 0Z", "M0 4.8L4.5 -3.6H-4.5Z", "M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
)  # fmt: skip


@dataclass(frozen=True)
class Series:
    """A line: its name, which of the styles it is drawn in, its points, and a band (x, low, high) around it."""

    name: str
    style: int
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()


def legend(styles: Mapping[str, int]) -> str:
    """Names beside the lines and marks that stand for them."""
    items = []
    for name, style in styles.items():
        line = f'<path class="line" d="M0 7H30"{_dash(style)}/>{_mark(style, 15, 7)}'
        swatch = f'<svg width="30" height="14" aria-hidden="true" class="{_color(style)}">{line}</svg>'
        items.append(f"<li>{swatch}{text(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def line_chart(
    title: str,
    x_name: str,
    series: Sequence[Series],
    log: bool = False,
    level: float | None = None,
    log_x: bool = False,
    told: str = "",
    numbers: str = "",
) -> str:
    """Lines over a common x, both axes linear or logarithmic, a dotted line at `level`; nothing without two points.

    Unless given, `told`, for those who cannot see it, says where the lines end, and `numbers` is a table of points.
    """
    title += ", log axis" * log
    series = [_thinned(one, log) for one in series]
    series = [one for one in series if one.points]
    if max((len(one.points) for one in series), default=0) < 2:
        return ""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points] + [y for one in series for _, *ends in one.band for y in ends]
    y_low, y_high = _padded(min(ys), max(ys), log, level)
    x_low, x_high = (min(xs) / 1.2, max(xs) * 1.2) if log_x else (min(xs), max(xs))
    ticks = _log_ticks(y_low, y_high) if log else _ticks(y_low, y_high)
    left = max(LEFT, 8 + _width(_labels(ticks)))

    def place(x: float, y: float) -> str:
        share = math.log(y / y_low) / math.log(y_high / y_low) if log else (y - y_low) / (y_high - y_low)
        along = math.log(x / x_low) / math.log(x_high / x_low) if log_x else (x - x_low) / (x_high - x_low or 1)
        return f"{left + along * (RIGHT - left):.1f} {BOTTOM - share * (BOTTOM - TOP):.1f}"

    drawn = [_y_axis(ticks, left, place, x_low), _x_axis(x_low, x_high, log_x, x_name, left, place, y_low)]
    if level is not None:
        drawn.append(f'<path class="level" d="M{place(x_low, level)}L{place(x_high, level)}"/>')
    for one in series:
        if one.band:
            edge = [place(x, low) for x, low, _ in one.band] + [place(x, high) for x, _, high in reversed(one.band)]
            drawn.append(f'<path class="band {_color(one.style)}" d="M{"L".join(edge)}Z"/>')
    for one in series:
        places = [place(x, y) for x, y in one.points]
        marked = places if len(places) <= 12 else places[len(places) // 12 :: len(places) // 6]
        marks = "".join(_mark(one.style, *spot.split()) for spot in marked)
        line = f'<path class="line" d="M{"L".join(places)}"{_dash(one.style)}/>'
        drawn.append(f'<g class="{_color(one.style)}">{line}{marks}</g>')
    data = {
        "box": [left, RIGHT, TOP, BOTTOM], "x": [x_low, x_high], "log_x": log_x, "name": x_name,
        "series": [{"name": one.name, "style": one.style % 8, "points": one.points} for one in series],
    }  # fmt: skip
    told = told or "; ".join(f"{one.name} ends at {number(one.points[-1][1])}" for one in series)
    numbers = folded("numbers", numbers or _numbers(title, x_name, series))
    return _figure(title, f"{title} by {x_name}: {told}", HEIGHT, "".join(drawn), data, numbers)


def _numbers(title: str, x_name: str, series: Sequence[Series]) -> str:
    values = [dict(one.points) for one in series]
    xs = sorted({x for one in values for x in one})
    chosen = [xs[round(i * (len(xs) - 1) / (ROWS - 1))] for i in range(ROWS)] if len(xs) > ROWS else xs
    rows = [[number(x), *[number(one.get(x)) for one in values]] for x in chosen]
    return table(f"{title} by {x_name}", [x_name, *[one.name for one in series]], rows)


Bar = tuple[str, int, float, float, float, str]  # name, style, value, low, high, label


def interval_chart(title: str, groups: Sequence[tuple[str, Sequence[Bar]]], level: float | None = None) -> str:
    """Values with intervals, a row each under the heading of its group, on one axis."""
    bars = [bar for _, its in groups for bar in its]
    if not bars:
        return ""
    short = {bar[0]: bar[0] if len(bar[0]) <= 20 else bar[0][:19] + "…" for bar in bars}
    left, right, row = 10 + _width(short.values()), WIDTH - 10 - _width([bar[5] for bar in bars]), 18
    ends = [value for bar in bars for value in bar[2:5]]
    low, high = _padded(min(ends), max(ends), False, level)

    def along(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    drawn, y = [], 4
    for heading, its in groups:
        y += row + 4
        drawn.append(f'<text class="heading" x="0" y="{y - 4}">{text(heading)}</text>')
        for name, style, value, begin, end, label in its:
            y += row
            whisker = f'<path class="line" d="M{along(begin):.1f} {y - 4}H{along(end):.1f}"/>'
            mark = whisker + _mark(style, f"{along(value):.1f}", y - 4)
            drawn.append(
                f'<g class="{_color(style)}"><title>{text(name)}: {text(label)}</title>{mark}</g>'
                f'<text x="0" y="{y}">{text(short[name])}</text>'
                f'<text class="end" x="{WIDTH}" y="{y}">{text(label)}</text>'
            )
    bottom, ticks = y + 10, _ticks(low, high, max(1, (right - left) // 50))
    grid = "".join(
        f'<path class="grid" d="M{along(tick):.1f} 8V{bottom}"/>'
        f'<text class="middle" x="{along(tick):.1f}" y="{bottom + 14}">{label}</text>'
        for tick, label in zip(ticks, _labels(ticks), strict=True)
    )
    if level is not None:
        grid += f'<path class="level" d="M{along(level):.1f} 8V{bottom}"/>'
    told = "; ".join(f"{heading}, {bar[0]}: {bar[5]}" for heading, its in groups for bar in its)
    return _figure(title, f"{title}. {told}", bottom + 22, grid + "".join(drawn))


# ---------------------------------------------------------------- parts of a chart


def _figure(title: str, told: str, height: float, drawn: str, data: object = None, numbers: str = "") -> str:
    hover = f' tabindex="0" data-chart="{text(embedded(data))}"' if data else ""
    return (
        f'<figure class="chart"><figcaption>{text(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{text(told)}"{hover}>{drawn}</svg>'
        f"{numbers}</figure>"
    )


def _thinned(one: Series, log: bool) -> Series:
    """At most POINTS points, evenly picked, of four digits; above zero where the axis is logarithmic."""
    points = [(x, float(f"{y:.4g}")) for x, y in one.points if math.isfinite(y) and (y > 0 or not log)]
    band = [(x, low, high) for x, low, high in one.band if low > 0 or not log]
    return Series(one.name, one.style, [(float(f"{x:.6g}"), y) for x, y in _some(points)], _some(band))


def _some(items: list) -> list:
    return [items[round(i * (len(items) - 1) / (POINTS - 1))] for i in range(POINTS)] if len(items) > POINTS else items


def _padded(low: float, high: float, log: bool, level: float | None) -> tuple[float, float]:
    """The ends of an axis, a little beyond the values, and apart."""
    if level is not None:
        low, high = min(low, level), max(high, level)
    if log:
        return low / 1.15, high * 1.15
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return (0.0 if 0 <= low < 0.3 * high else low - margin), high + margin


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between low and high."""
    rough = (high - low) / about
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    count = math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1
    return [float(f"{(math.ceil(low / step - 1e-9) + i) * step:.12g}") for i in range(count)]


def _log_ticks(low: float, high: float) -> list[float]:
    if high / low < 8:
        return _ticks(low, high)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 100 else (1, 3) if high / low < 1000 else (1,)
    found = [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]
    return found[:: math.ceil(len(found) / 7)]


def _labels(ticks: Sequence[float]) -> list[str]:
    """The ticks as numbers, in as many digits as tell them apart."""
    labels, digits = [number(tick) for tick in ticks], 3
    while len(set(labels)) < len(labels):
        digits += 1
        labels = [f"{tick:.{digits}g}" for tick in ticks]
    return labels


def _width(texts: Iterable[str]) -> float:
    """The room that the longest of them takes at most."""
    return DIGIT * max(map(len, texts), default=0)


def _y_axis(ticks: Sequence[float], left: float, place, x_low: float) -> str:
    drawn = []
    for tick, label in zip(ticks, _labels(ticks), strict=True):
        y = place(x_low, tick).split()[1]
        drawn.append(f'<path class="grid" d="M{left} {y}H{RIGHT}"/>')
        drawn.append(f'<text class="end" x="{left - 6}" y="{float(y) + 4:.1f}">{label}</text>')
    return "".join(drawn)


def _x_axis(low: float, high: float, log: bool, name: str, left: float, place, y_low: float) -> str:
    drawn = [f'<path class="axis" d="M{left} {BOTTOM}H{RIGHT}"/>']
    ticks = (_log_ticks if log else _ticks)(low, high) if high > low else [low]
    for tick, label in zip(ticks, _labels(ticks), strict=True):
        x = min(float(place(tick, y_low).split()[0]), WIDTH - _width([label]) / 2)  # the last one stays inside
        drawn.append(f'<text class="middle" x="{x:.1f}" y="{BOTTOM + 16}">{label}</text>')
    drawn.append(f'<text class="middle" x="{(left + RIGHT) / 2}" y="{BOTTOM + 34}">{text(name)}</text>')
    return "".join(drawn)


def _color(style: int) -> str:
    return f"s{style % 8}"


def _dash(style: int) -> str:
    dash = DASHES[(style + style // 8) % len(DASHES)]  # another one for the next of the same color
    return f' stroke-dasharray="{dash}"' if dash else ""


def _mark(style: int, x: object, y: object) -> str:
    return f'<path class="mark" d="{MARKS[style % len(MARKS)]}" transform="translate({x} {y})"/>'
