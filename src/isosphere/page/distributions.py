"""Charts of distributions, each in bins of its own, so that a narrow one keeps its shape beside a wide one."""

import math
from collections.abc import Sequence

import numpy as np

from isosphere.page.charts import Series, line_chart
from isosphere.page.markup import number, table

SHARES = {"least": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95, "greatest": 1.0}
Values = tuple[str, int, np.ndarray]  # name, style, values (N,)


def distribution_chart(title: str, x_name: str, found: Sequence[Values], log: bool = False) -> str:
    """Densities of values, by their logarithms if `log`, where those of zero are not drawn; beneath the quantiles."""
    drawn = [(name, style, np.log(values[values > 0]) if log else values) for name, style, values in found]
    drawn = [(name, style, values.astype(float)) for name, style, values in drawn if len(values)]
    if not drawn:
        return ""
    least = (max(values.max() for *_, values in drawn) - min(values.min() for *_, values in drawn)) / 200 or 0.01
    series = []
    for name, style, values in drawn:
        points = histogram(values, least)
        series.append(Series(name, style, [(math.exp(x), y) for x, y in points] if log else points))
    quantiles = [[number(value) for value in np.quantile(values, list(SHARES.values()))] for *_, values in found]
    names = [name for name, *_ in found]
    numbers = table(f"quantiles of the {x_name}", ["share below", *names], zip(SHARES, *quantiles, strict=True))
    told = "; ".join(f"{name} has the median {its[3]}" for name, its in zip(names, quantiles, strict=True))
    return line_chart(title, x_name, series, log_x=log, told=told, numbers=numbers)


def histogram(values: np.ndarray, least: float) -> list[tuple[float, float]]:
    """(middle of the bin, density in it), and zero at both ends: the more values, the more bins, none below `least`."""
    span = float(values.max() - values.min())
    width = max(span / min(40, math.sqrt(len(values))), least)
    count = int(span / width) + 1
    edges = values.min() - (count * width - span) / 2 + width * np.arange(count + 1)
    counts, _ = np.histogram(values, edges)
    inner = zip((edges[1:] + edges[:-1]) / 2, counts / len(values) / width, strict=True)
    return [(float(x), float(y)) for x, y in [(edges[0], 0.0), *inner, (edges[-1], 0.0)]]
