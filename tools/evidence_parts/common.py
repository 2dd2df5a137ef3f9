"""What all parts share: the files of results, differences in points, words for them, Markdown tables."""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from isosphere.recipes.constraints import METHODS
from isosphere.report import differences
from isosphere.report.differences import Difference
from isosphere.runs import Record, Results, read_results

ROOT = Path(__file__).resolve().parents[2]
DATASETS = {"cub200": "CUB-200-2011", "cars196": "Cars196"}
LOSSES = {"triplet": "triplet", "semihard": "semi-hard", "npair": "N-pair", "ms": "multi-similarity"}
THREE = ("none", "sec", "sec-relative")
METRICS = (("MAP@R", "map@r"), ("R@1", "recall@1"))  # the primary one first
PAIRS = (("sec", "none"), ("sec-relative", "none"), ("sec-relative", "sec"))


@lru_cache
def results(name: str) -> Results:
    """A file of results by its name."""
    return read_results(ROOT / "results" / f"{name}.json", strict=True)


@lru_cache
def benchmark(name: str) -> dict[str, Any]:
    """A file of timings by its name."""
    return dict(json.loads((ROOT / "results" / f"bench_{name}.json").read_text(encoding="utf-8")))


def retrieval() -> list[Record]:
    """The final runs of the tuned comparison on both data sets."""
    return [run for dataset in DATASETS for run in results(f"retrieval_{dataset}").runs]


def rendered() -> list[Record]:
    """The runs on rendered characters, with the names of methods."""
    found = results("rendered").runs
    return [{**run, "method": run["method"].removeprefix("rendered").lstrip("-") or "none"} for run in found]


def only(runs: Iterable[Record], **wanted: object) -> list[Record]:
    """The runs of one cell, method or seed."""
    return [run for run in runs if all(dict(run)[key] == value for key, value in wanted.items())]


def label(method: str) -> str:
    """A method in words."""
    return METHODS[method].label


def difference(runs: Sequence[Record], metric: str, method: str = "sec", than: str = "none") -> Difference:
    """A method less another, paired by seed and pooled over cells."""
    found = differences.pooled(runs, metric, method, than)
    assert found is not None, f"no pairs of {method} and {than}"
    return found


def signed(fraction: float, decimals: int = 1) -> str:
    """A fraction in points with its sign, never -0.0."""
    shown = f"{100 * fraction:+.{decimals}f}"
    return shown.lstrip("+-") if not float(shown) else shown


def gain(found: Difference) -> str:
    """The mean in points, with its interval in parentheses."""
    if found.low is None or found.high is None:
        return f"{signed(found.mean)} ({found.pairs} pair{'s' * (found.pairs > 1)})"
    return f"{signed(found.mean)} ({signed(found.low)} to {signed(found.high)})"


def change(name: str, found: Difference) -> str:
    """What the interval says of a metric, in words and points."""
    if found.low is None or found.high is None:
        return f"{name} {signed(found.mean)} points (pairs of runs: {found.pairs}, too few for an interval)"
    interval = f"95 % interval {signed(found.low)} to {signed(found.high)}"
    if found.low <= 0 <= found.high:
        return f"{name} shows no clear change, {signed(found.mean)} points ({interval})"
    verb = "rises" if found.low > 0 else "falls"
    return f"{name} {verb} by {100 * abs(found.mean):.1f} points ({interval})"


def answer(
    runs: Sequence[Record], where: str, metrics: Iterable[tuple[str, str]] = METRICS, method: str = "sec",
    than: str = "none",
) -> str:  # fmt: skip
    """The first line of an answer: what the first metric's interval says, then each metric."""
    found = [(name, difference(runs, key, method, than)) for name, key in metrics]
    low, high = found[0][1].low, found[0][1].high
    verdict = "Not shown" if low is None or high is None or low <= 0 <= high else "Yes" if low > 0 else "No, it hurts"
    return f"**{verdict}. {where}, {'; '.join(change(*one) for one in found)}.**"


def among(values: Iterable[float], decimals: int = 1) -> str:
    """The least and the most of some differences, in points."""
    low, high = min(values := list(values)), max(values)
    return f"{signed(low, decimals)} to {signed(high, decimals)}"


def table(headings: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the headings stand between bars."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {headings} |", "|" + "---|" * (headings.count("|") + 1), *lines])


def rate(value: float) -> str:
    """A learning rate or a strength, short: 2.5e-5, 0.1, 2,500."""
    if value >= 1e-3 or not value:
        return f"{value:,.4g}"
    digits, power = f"{value:.2e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def short(value: float) -> str:
    """A number in two digits that count, or whole from 10 on."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}" if value >= 1e-4 else f"{value:.1e}".replace("e-0", "e-")
