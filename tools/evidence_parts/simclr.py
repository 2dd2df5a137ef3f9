"""The tables of docs/evidence/simclr.md."""

from collections.abc import Sequence

import numpy as np

from evidence_parts.common import PAIRS, difference, gain, label, only, rate, results, short, signed, table
from isosphere.paper.published import SIMCLR_RESULTS
from isosphere.report.tables import mean_of, spread, values_of
from isosphere.runs import Record

SMALL, LARGE = "simclr_cifar10_resnet18", "simclr_cifar10_tuned_by_resnet18"
HUNDRED = "simclr_cifar100_resnet18_tuned_by_cifar10"
WARMUP = "simclr_cifar10_untuned_steps20_lr0.446_weight_decay0.00028_warmup{}"
RATES = {"probe": "probe_top1", "at 1": "probe_top1@1", "at 2": "probe_top1@2", "at 10": "probe_top1@10"}
MEASURES = RATES | {"k-NN": "knn"}
EPOCHS = (1, 10, 25, 50, 75, 100)
STEPS = 195  # of an epoch: 50,000 images by 256
LEARNED = 6.2  # a loss below it has left chance: log 511 is 6.236


def scores(name: str) -> str:
    """Probe, k-NN and norms of every method, and what the paper printed."""
    runs, rows = results(name).runs, []
    paper = SIMCLR_RESULTS["cifar100" if name == HUNDRED else "cifar10", 100]
    for method in dict.fromkeys(run["method"] for run in runs):
        its = only(runs, method=method)
        lasts = [run["last"] for run in its]
        eta = its[0]["recipe"]["constraint"].get("eta")
        shown = [spread(values_of(lasts, key)) for key in (*RATES.values(), "probe_top5", "knn")]
        norms = [short(mean_of(lasts, key) or 0) for key in ("norm_mean", "norm_variance")]
        theirs = f"{paper[method][0]:.1f}" if method in paper else "-"
        rows.append((label(method), "-" if eta is None else rate(eta), *shown, *norms, theirs))
    return table(f"method | eta | {' | '.join(RATES)} | top-5 | k-NN | mean norm | variance | paper's probe", rows)


def known() -> str:
    """Probe and k-NN of every method on one line for each set of runs, and the paper's probe."""
    methods, rows = ("none", "l2reg", "sec", "sec-ema", "sec-relative"), []
    wanted = {
        (SMALL, "probe_top1"): "ResNet-18, CIFAR-10: probe", (SMALL, "knn"): "the same: k-NN",
        (LARGE, "probe_top1"): "ResNet-50, CIFAR-10: probe",
        (HUNDRED, "probe_top1"): "ResNet-18, CIFAR-100: probe", (HUNDRED, "knn"): "the same: k-NN",
    }  # fmt: skip
    for (name, key), words in wanted.items():
        values = {method: values_of([run["last"] for run in only(results(name).runs, method=method)], key)
                  for method in methods}  # fmt: skip
        seeds = str(max(map(len, values.values())))
        rows.append((words, seeds, *[spread(values[method]) if values[method] else "-" for method in methods]))
    paper = SIMCLR_RESULTS["cifar10", 100]
    rows.append(("the paper's ResNet-50: probe", "-", *[f"{paper[m][0]:.1f}" if m in paper else "-" for m in methods]))
    return table(f"in percent | seeds | {' | '.join(map(label, methods))}", rows)


def differences() -> str:
    """Paired differences of ResNet-18."""
    runs = results(SMALL).runs
    rows = [(f"{label(method)} less {label(than)}",
             *[gain(difference(runs, key, method, than)) for key in MEASURES.values()])
            for method, than in PAIRS]  # fmt: skip
    return table(f"difference | {' | '.join(MEASURES)}", rows)


def norms(name: str) -> str:
    """Mean norm of a training batch over time, and its standard deviation as a share of the mean."""
    runs, rows = results(name).runs, []
    for method in dict.fromkeys(run["method"] for run in runs):
        its = only(runs, method=method)
        rows.append((label(method), *[norm_at(its, step) for step in (50, *(STEPS * epoch for epoch in EPOCHS))]))
    return table("after | 50 steps | 1 epoch | " + " | ".join(f"{epoch}" for epoch in EPOCHS[1:]), rows)


def norm_at(runs: Sequence[Record], step: int) -> str:
    """The norms at the nearest step that was logged, as the mean over seeds."""
    found = [min(run["norms"], key=lambda line: abs(line[0] - step)) for run in runs]
    mean = float(np.mean([line[2] for line in found]))
    share = float(np.mean([line[3] ** 0.5 / line[2] for line in found]))
    return f"{short(mean)} ({100 * share:.0f} %)"


def starts() -> str:
    """How long ResNet-50 stays at chance, and what k-NN has half-way."""
    rows = []
    for run in results(LARGE).runs:
        left = next(line[0] for line in run["norms"] if line[1] < LEARNED)
        half = next(test["knn"] for test in run["tests"] if test["step"] == 50 * STEPS)
        loss = min(run["norms"], key=lambda line: abs(line[0] - 25 * STEPS))[1]
        largest = max(line[2] for line in run["norms"])
        rows.append((label(run["method"]), f"{left:,}", f"{largest:,.0f}", f"{loss:.2f}", f"{100 * half:.1f}"))
    headings = "method | loss below 6.2 from step | largest mean norm logged | loss after 25 epochs | k-NN after 50"
    return table(headings, rows)


def warmup() -> str:
    """20 epochs without and with a warm-up."""
    rows = []
    for name, share in (("none", "0"), ("a tenth of the run", "0.1")):
        (run,) = results(WARMUP.format(share)).runs
        left = next(line[0] for line in run["norms"] if line[1] < LEARNED)
        shown = [f"{100 * run['last'][key]:.1f}" for key in MEASURES.values()]
        largest = max(line[2] for line in run["norms"])
        rows.append((name, *shown, norm_at([run], 50), f"{largest:,.0f}", f"{left:,}"))
    return table(
        f"warm-up | {' | '.join(MEASURES)} | norm after 50 steps | largest logged | loss below 6.2 from step", rows
    )


def best_of(last: dict[str, float]) -> float:
    """The best of the probe's rates, by which trials are judged."""
    return max((last[key] for key in RATES.values() if key in last), default=0.0)


DECAYS = {"up to 2 x": 0.0, "10 x": 1e-4, "50 x": 1e-3}  # times the authors', and the weight decay that it is above
GROUPS = {f"{epochs} epochs, {name}": (epochs, least) for epochs in (20, 100) for name, least in DECAYS.items()}


def trials() -> str:
    """The best trial of each method on held-out training images, by length and times the authors' weight decay."""
    rows = []
    for method in ("none", "sec", "sec-relative"):
        groups: dict[tuple[int, float], list[float]] = {}
        for run in only(results(SMALL).trials, method=method):
            decay = run["recipe"]["optimizer"]["weight_decay"]
            least = max(one for one in DECAYS.values() if decay > one)
            groups.setdefault((run["recipe"]["loop"]["steps"], least), []).append(best_of(run["last"]))
        shown = [
            f"{100 * max(groups[key]):.1f} of {len(groups[key])}" if key in groups else "-" for key in GROUPS.values()
        ]
        rows.append((label(method), *shown))
    return table(f"method | {' | '.join(GROUPS)}", rows)


def finalists() -> str:
    """How far the two finalists of each method are apart, in points."""
    rows = []
    for method in ("none", "sec", "sec-relative"):
        its = [run for run in only(results(SMALL).trials, method=method) if run["recipe"]["loop"]["steps"] == 100]
        best, other = sorted((best_of(run["last"]) for run in its), reverse=True)
        rows.append((label(method), f"{100 * best:.1f}", signed(best - other, 2)))
    return table("method | best of two long trials | ahead of the other by", rows)


OTHERS = (
    ("chosen by ten short trials", "simclr_cifar10_untuned_resnet18_lr0.112_weight_decay0.0014"),
    ("the authors' weight decay", "simclr_cifar10_untuned_eta0.35_resnet18_lr0.446"),
    ("the authors' weight decay", "simclr_cifar10_untuned_eta10_resnet18_lr0.446"),
    ("seed 1 with other batches", "simclr_resnet18_none_seed1_other_batches"),
)


def others() -> str:
    """Runs on test images that were replaced."""
    rows = []
    for why, name in OTHERS:
        (run,) = results(name).runs
        optimizer, eta = run["recipe"]["optimizer"], run["recipe"]["constraint"].get("eta")
        settings = f"rate {rate(optimizer['lr'])}, weight decay {rate(optimizer['weight_decay'])}"
        settings += f", eta {rate(eta)}" if eta else ""
        shown = [f"{100 * run['last'][key]:.1f}" for key in ("probe_top1", "knn")]
        rows.append((label(run["method"]), why, settings, *shown))
    return table("method | what | settings | probe | k-NN", rows)
