"""The tables of docs/evidence/figures.md."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from evidence_parts.common import DATASETS, LOSSES, ROOT, label, only, results, short, table


def distributions() -> str:
    """Norms of training images, cosines of pairs of test images and violated triplets."""
    found = json.loads((ROOT / "results" / "figures_cars196_triplet.json").read_text(encoding="utf-8"))
    rows = [
        (label(method), f"{its['norm_mean']:.1f}", short(its["norm_variance"]),
         f"{100 * its['norm_variance'] ** 0.5 / its['norm_mean']:.1f} %", f"{its['positive_cosine_sd']:.3f}",
         f"{its['negative_cosine_sd']:.3f}", f"{100 * its['violated_triplets']:.1f} %")
        for method, its in found.items()
    ]  # fmt: skip
    headings = (
        "method | mean norm | variance | standard deviation, of the mean | of positive cosines | of negative cosines | "
        "violated triplets"
    )
    return table(headings, rows)


def overtaken() -> str:
    """When SEC passes the baseline's last R@1."""
    runs = {run["method"]: run for run in results("cars196_triplet_8000").runs}
    end = runs["none"]["last"]["recall@1"]
    step = next(test["step"] for test in runs["sec"]["tests"] if test["recall@1"] > end)
    return f"SEC passes the baseline's last R@1 after {step:,} of {runs['none']['tests'][-1]['step']:,} steps."


def turned(shown: Callable[[dict[str, Any]], str]) -> str:
    """A figure of how far embeddings turned, in every 1,000 steps."""
    runs = results("cars196_triplet_8000").runs
    rows = [(label(run["method"]), *[shown(turn) for turn in run["turns"]]) for run in runs]
    return table("steps up to | " + " | ".join(f"{turn['step']:,}" for turn in runs[0]["turns"]), rows)


def turns() -> str:
    """Mean angle and variance, and the spread as a share of the mean."""
    return turned(lambda turn: f"{turn['turn_mean']:.0f} ({turn['turn_variance']:.0f}; "
                               f"{100 * turn['turn_variance'] ** 0.5 / turn['turn_mean']:.0f} %)")  # fmt: skip


def slopes() -> str:
    """The slope of log angle against log norm."""
    return turned(lambda turn: f"{turn['turn_slope']:.2f}")


def courses() -> str:
    """The norms of training batches at the beginning and at the end of the tuned runs."""
    rows = []
    for (dataset, name), (loss, word) in product(DATASETS.items(), LOSSES.items()):
        shown = []
        for method, place in product(("none", "sec"), (0, -1)):
            its = only(results(f"retrieval_{dataset}").runs, cell=f"{dataset}-{loss}", method=method)
            mean, variance = np.mean([run["norms"][place][2:] for run in its], axis=0)
            shown.append(f"{short(mean)} ({short(variance)})")
        rows.append((name, word, *shown))
    return table("data | loss | baseline, after 50 steps | at the end | SEC, after 50 steps | at the end", rows)


def first_recalls() -> str:
    """R@1 of the two runs that were made once more for pictures."""
    runs = only(results("retrieval_cub200").runs, cell="cub200-ms", seed=0)
    long = results("cars196_triplet_8000").runs
    rows = [
        (
            name,
            *[f"{100 * one['last']['recall@1']:.1f}" for method in ("none", "sec") for one in only(its, method=method)],
        )
        for name, its in (("CUB-200-2011, multi-similarity", runs), ("Cars196, triplet, 8,000 steps", long))
    ]
    return table("first image found is right, % | baseline | SEC", rows)
