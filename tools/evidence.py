"""Write the numbers of docs/evidence/index.md from results/: `python tools/evidence.py`.

Each part of the page between `<!-- NAME -->` and `<!-- /NAME -->` is made by the function of that name here. With
`--check` nothing is written, and the exit code is 1 if a part is not what the results say.
"""

import re
import sys
from pathlib import Path

from isosphere.report import differences, tables
from isosphere.runs import Record, read_results

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence" / "index.md"
DATASETS = {"cub200": "CUB-200-2011", "cars196": "Cars196"}
RELATIVE = "relative SEC (ours)"
Head = tuple[str, int, str, str]  # backbone's learning rate, factor of the head's, first weights, method


def head_runs(dataset: str) -> tuple[dict[Head, float], float]:
    """MAP@R in percent of every run of the heads table, and of the untrained features."""
    runs = results(f"heads_{dataset}")
    found = {}
    for run in runs:
        rate, factor, start = run["cell"].removeprefix(f"{dataset}-ms-lr").rsplit("-", 2)
        found[rate, int(factor[1:]), start, run["method"]] = 100 * run["last"]["map@r"]
    return found, 100 * runs[0]["untrained"]["map@r"]


def fast_heads(found: dict[Head, float]) -> list[float]:
    """SEC less the baseline, in points, wherever the head has 100 times the backbone's rate."""
    return [value - found[(*key[:3], "none")] for key, value in found.items() if key[1] == 100 and key[3] == "sec"]


def claims() -> list[str]:
    """What README must say of SEC, as the results have it."""
    lost = [-value for dataset in DATASETS for value in fast_heads(head_runs(dataset)[0])]
    found = [f"a head at 100 times the backbone's rate, SEC lost {min(lost):.0f} to {max(lost):.0f} points of MAP@R"]
    runs = [run for dataset in DATASETS for run in results(f"retrieval_{dataset}")]
    recall, ranked = (points(runs, metric, "sec", "none") for metric in ("recall@1", "map@r"))
    low, high = recall[1:]
    found += [
        f"Pooled over the eight cells SEC is worth {recall[0]:.1f} points of R@1 "
        f"(bootstrap over cells and seeds: {low:.1f} to {high:.1f}) and {ranked[0]:.1f} of MAP@R"
    ]
    mean, low, high = points(runs, "recall@1", "sec-relative", "sec")
    found += [f"is not better than SEC ({mean:.1f}, {low:.1f} to {high:.1f})"]
    for dataset, name in DATASETS.items():
        for method, label in (("none", f"**{name}**: no constraint"), ("sec", "SEC"), ("sec-relative", RELATIVE)):
            cells = (f"{dataset}-{loss}" for loss in ("triplet", "semihard", "npair", "ms"))
            lasts = [[run["last"]["recall@1"] for run in runs if (run["cell"], run["method"]) == (cell, method)]
                     for cell in cells]  # fmt: skip
            found += [f"| {label} | {' | '.join(tables.spread([100 * one for one in cell]) for cell in lasts)} |"]
    return found


def points(runs: list[Record], metric: str, method: str, than: str) -> tuple[float, float, float]:
    """A method less another in points, pooled over cells, and its interval."""
    found = differences.pooled(runs, metric, method, than)
    return 100 * found.mean, 100 * found.low, 100 * found.high


def results(name: str) -> list[Record]:
    """The final runs in a file of results."""
    return read_results(ROOT / "results" / f"{name}.json", strict=True).runs


def heads() -> str:
    """Item: which head a fair comparison needs."""
    lines, rows, columns = [], [], [(start, method) for start in ("random", "pca") for method in ("none", "sec")]
    for dataset, name in DATASETS.items():
        found, untrained = head_runs(dataset)
        best = {method: max((key for key in found if key[3] == method), key=found.get) for method in ("none", "sec")}
        gain = found[best["sec"]] - found[best["none"]]
        fast = fast_heads(found)
        lines.append(
            f"- **{name}**: with its own best setting, SEC is {gain:+.1f} points of MAP@R from the baseline "
            f"({found[best['sec']]:.1f} and {found[best['none']]:.1f}; untrained features {untrained:.1f}). With a "
            f"head at 100 times the backbone's rate it is {min(fast):+.1f} to {max(fast):+.1f} points from it."
        )
        lines += [f"  - {setting(method, best[method], found)}" for method in best]
        for rate, factor in dict.fromkeys(key[:2] for key in found):
            shown = [found.get((rate, factor, *column)) for column in columns]
            cells = " | ".join("not run" if value is None else f"{value:.1f}" for value in shown)
            rows.append(f"| {name} | {float(rate):.3g} | {factor} | {cells} |")
    heading = (
        "| data | backbone rate | head factor | random, baseline | random, SEC | PCA, baseline | PCA, SEC |\n"
        "|---|---|---|---|---|---|---|"
    )
    return "\n".join([*lines, "", heading, *rows])


def setting(method: str, best: Head, found: dict[Head, float]) -> str:
    """The winner of a method in words, with the edges of the ranges that it lies on."""
    rate, factor, start, _ = best
    rates, factors = (sorted({float(key[0]) for key in found}), sorted({key[1] for key in found}))
    edges = [f"backbone rate {rate}"] * (float(rate) in (rates[0], rates[-1]))
    edges += [f"factor {factor}"] * (factor in (factors[0], factors[-1]))
    edge = f"; at the edge of the range: {', '.join(edges)}" if edges else ""
    name = {"none": "baseline", "sec": "SEC"}[method]
    return f"{name}: backbone rate {rate}, head at {factor} times it, {start} start{edge}."


PARTS = {"heads": heads}


def main(check: bool) -> int:
    """Write or check the page; returns the exit code."""
    before = text = PAGE.read_text(encoding="utf-8")
    for name, make in PARTS.items():
        part = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        made = make().replace("\\", r"\\")
        text, count = part.subn(rf"\g<1>{made}\g<2>", text)
        if count != 1:
            sys.exit(f"{PAGE} has {count} parts {name}; one is needed")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    if missing := [claim for claim in claims() if claim not in readme]:
        sys.exit(f"README.md does not say: {'; '.join(missing)}")
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return int(check and text != before)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
