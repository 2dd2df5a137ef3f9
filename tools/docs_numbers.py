"""Tables of numbers in the docs, made from results/ while the site is built: `<!-- numbers: NAME -->` in a page."""

import json
from collections import defaultdict
from pathlib import Path

from docs_reference import table

from isosphere.metrics.registry import metric
from isosphere.report.tables import spread
from isosphere.runs import Record, read_results

RESULTS = Path(__file__).resolve().parents[1] / "results"
DATA = {"cub200": "CUB-200-2011", "cars196": "Cars196"}
LOSSES = {"triplet": "triplet", "semihard": "semi-hard", "npair": "N-pair", "ms": "multi-similarity"}
METHODS = {"none": "baseline", "l2reg": "L2-reg", "sec": "SEC", "sec-initial": "SEC, radius of the first batch"}


def results(name: str) -> list[Record]:
    """The final runs in a file of results."""
    return read_results(RESULTS / f"{name}.json", strict=True).runs


def percent(runs: list[Record], key: str) -> str:
    """Mean and spread over seeds of a metric, in percent."""
    return spread([100 * run["last"][key] for run in runs])


def norms() -> str:
    """What constraints do to the norms of one loss on one data set."""
    held = json.loads((RESULTS / "figures_cars196_triplet.json").read_text(encoding="utf-8"))
    rows = [
        (METHODS[method], f"{its['norm_mean']:.3g}", f"{100 * its['norm_variance'] ** 0.5 / its['norm_mean']:.1f}")
        for method, its in held.items()
    ]
    return table(("constraint", "mean norm", "spread, % of the mean"), rows)


def chosen() -> str:
    """The strength and rate that trials chose for SEC, and what it was worth."""
    rows = []
    for data, name in DATA.items():
        runs = results(f"retrieval_{data}")
        for loss, words in LOSSES.items():
            cell = [run for run in runs if run["cell"] == f"{data}-{loss}"]
            none, sec = ([run for run in cell if run["method"] == method] for method in ("none", "sec"))
            recipe = sec[0]["recipe"]
            eta, rate = f"{recipe['constraint']['eta']:g}", f"{recipe['optimizer']['lr']:g}"
            rows.append((name, words, eta, rate, percent(none, "recall@1"), percent(sec, "recall@1")))
    return table(("data", "loss", "eta", "rate of the head", "R@1, baseline", "R@1, SEC"), rows)


def heads() -> str:
    """SEC less the baseline by the head's learning rate."""
    rows = []
    for data, name in DATA.items():
        found = {(run["cell"], run["method"]): 100 * run["last"]["map@r"] for run in results(f"heads_{data}")}
        gains = defaultdict(list)
        for (cell, method), value in found.items():
            if method == "sec":
                gains[int(cell.rsplit("-", 2)[1][1:])].append(value - found[cell, "none"])
        rows += [(name, f"{factor} times", f"{min(g):+.1f}", f"{max(g):+.1f}") for factor, g in sorted(gains.items())]
    return table(("data", "the head's rate, in the backbone's", "MAP@R, worst", "MAP@R, best"), rows)


def scratch() -> str:
    """Networks from scratch: the demo's characters, and the smoke test on faces."""
    rows = []
    for method in ("rendered", "rendered-sec"):
        runs = [run for run in results("rendered") if run["method"] == method]
        eta = runs[0]["recipe"]["constraint"].get("eta", "none")
        rows += [("characters, triplet", name, f"{eta}", percent(runs, name)) for name in ("recall@1", "map@r")]
    for loss in ("cosface", "arcface"):
        weak = [run for run in results("faces_lfw_eta0.1") if run["cell"].endswith(loss)]
        runs = [run for run in results("faces_lfw") if run["cell"].endswith(loss)]
        none, strong = ([run for run in runs if run["method"] == method] for method in ("none", "sec"))
        for eta, its in (("none", none), ("0.1", weak), (f"{strong[0]['recipe']['constraint']['eta']:g}", strong)):
            rows.append((f"faces, {loss}", "cfp_ff", eta, percent(its, "cfp_ff")))
    named = ((what, metric(key).heading, eta, value) for what, key, eta, value in rows)
    return table(("what", "metric", "eta", "percent"), named)


NUMBERS = {"norms": norms, "chosen": chosen, "heads": heads, "scratch": scratch}
