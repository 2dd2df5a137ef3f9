"""The runs of `isosphere reproduce heads`: rates and first weights of the head, on held-out training classes."""

from evidence_parts.common import DATASETS, label, rate, results, table

Head = tuple[str, int, str, str]  # backbone's learning rate, factor of the head's, first weights, method
FACTORS = (1, 10, 100)


def head_runs(dataset: str) -> tuple[dict[Head, float], float]:
    """MAP@R of every run, and of the untrained features."""
    runs = results(f"heads_{dataset}").runs
    found = {}
    for run in runs:
        lr, factor, start = run["cell"].removeprefix(f"{dataset}-ms-lr").rsplit("-", 2)
        found[lr, int(factor[1:]), start, run["method"]] = run["last"]["map@r"]
    return found, runs[0]["untrained"]["map@r"]


def head_gains(dataset: str, factor: int) -> list[float]:
    """SEC less the baseline, wherever the head has so many times the backbone's rate."""
    found = head_runs(dataset)[0]
    return [value - found[(*key[:3], "none")] for key, value in found.items() if key[1] == factor and key[3] == "sec"]


def best_settings(dataset: str) -> list[tuple[str, ...]]:
    """The best run of each method: its setting, and on which edges of the ranges it lies."""
    found, _ = head_runs(dataset)
    rates = sorted({float(key[0]) for key in found})
    rows: list[tuple[str, ...]] = []
    for method in ("none", "sec"):
        best = max((key for key in found if key[3] == method), key=lambda key: found[key])
        lr, factor, start = float(best[0]), best[1], best[2]
        edges = ["rate"] * (lr in (rates[0], rates[-1])) + ["head"] * (factor in (FACTORS[0], FACTORS[-1]))
        first = "PCA" if start == "pca" else start
        place = (rate(lr), f"{factor} x", first, " and ".join(edges) or "none")
        rows.append((DATASETS[dataset], label(method), f"{100 * found[best]:.1f}", *place))
    return rows


def heads_table() -> str:
    """MAP@R of every run."""
    rows = []
    for dataset, name in DATASETS.items():
        found = head_runs(dataset)[0]
        for lr, factor in dict.fromkeys(key[:2] for key in found):
            shown = [
                found.get((lr, factor, start, method)) for start in ("random", "pca") for method in ("none", "sec")
            ]
            cells = ["not run" if value is None else f"{100 * value:.1f}" for value in shown]
            rows.append((name, rate(float(lr)), f"{factor} x", *cells))
    return table("data | backbone's rate | head | random, baseline | random, SEC | PCA, baseline | PCA, SEC", rows)
