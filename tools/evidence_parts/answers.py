"""The answers of docs/evidence/index.md: a first line with number and interval, then the table behind it."""

import numpy as np

from evidence_parts.common import (
    DATASETS,
    LOSSES,
    METRICS,
    PAIRS,
    among,
    answer,
    difference,
    gain,
    label,
    only,
    rate,
    rendered,
    results,
    retrieval,
    signed,
    table,
)
from evidence_parts.heads import FACTORS, best_settings, head_gains, head_runs
from isosphere.paper.causes import PRIMARY, Gap
from isosphere.paper.causes_text import COMPARED, markdown
from isosphere.runs import Record

CAUSES = {"cub200": "CUB-200-2011, from ImageNet", "rendered": "rendered characters, from scratch"}


def helps() -> str:
    """Does SEC help retrieval?"""
    runs = retrieval()
    rows = []
    for dataset, name in DATASETS.items():
        its = [run for run in runs if run["cell"].startswith(dataset)]
        for loss, word in LOSSES.items():
            cell = only(its, cell=f"{dataset}-{loss}")
            rows.append((name, word, *[gain(difference(cell, key)) for _, key in METRICS]))
        rows.append((name, "all four", *[gain(difference(its, key)) for _, key in METRICS]))
    first = answer(runs, "With pretrained weights and a slow head, over eight cells")
    return f"{first}\n\n{table('data | loss | SEC less baseline, MAP@R | R@1', rows)}"


def rates() -> str:
    """Is it more than the learning rate of the weights?"""
    runs, course = retrieval(), results("rates_cub200").runs
    equal = equal_rates(runs)
    same = {run["cell"] for run in equal}
    where = " and ".join(sorted({DATASETS[cell.split("-")[0]] for cell in same}))
    best = {method: oracle(course, method) for method in ("none", "sec")}
    over = " and ".join(signed(sec - none) for sec, none in zip(best["sec"], best["none"], strict=True))
    rows = []
    for cell in sorted({run["cell"] for run in course}, key=lr_of):
        its = only(course, cell=cell)
        rows.append((rate(lr_of(cell)), *[gain(difference(its, "recall@1", *pair)) for pair in PAIRS]))
    headings = "head's rate | " + " | ".join(f"{label(method)} less {label(than)}, R@1" for method, than in PAIRS)
    lines = (
        answer(equal, f"Where tuning gave both the same rate, in {len(same)} cells of {where}"),
        "With the best of five rates for each, picked on test, R@1 with SEC is "
        f"{over} points from the baseline on CUB-200-2011.",
        table(headings, rows),
    )
    return "\n\n".join(lines)


def equal_rates(runs: list[Record]) -> list[Record]:
    """The runs of cells where tuning gave SEC and the baseline one rate and one weight decay."""
    settings = {(run["cell"], run["method"]): run["recipe"]["optimizer"] for run in runs}
    return [run for run in runs if settings[run["cell"], "none"] == settings[run["cell"], "sec"]]


def oracle(course: list[Record], method: str) -> list[float]:
    """R@1 of each seed at the rate that is best on test: never a result."""
    return [max(run["last"]["recall@1"] for run in only(course, method=method, seed=seed)) for seed in (0, 1)]


def lr_of(cell: str) -> float:
    """The learning rate in a cell's name."""
    return float(cell.split("-lr")[1])


def heads() -> str:
    """Which head does a fair comparison need?"""
    fast = [gained for dataset in DATASETS for gained in head_gains(dataset, 100)]
    rows, settings = [], []
    for dataset, name in DATASETS.items():
        found, untrained = head_runs(dataset)
        best = {method: max(value for key, value in found.items() if key[3] == method) for method in ("none", "sec")}
        gains = [among(head_gains(dataset, factor)) for factor in FACTORS]
        rows.append((name, *gains, signed(best["sec"] - best["none"])))
        settings += [*best_settings(dataset), (name, "untrained features", f"{100 * untrained:.1f}", *["-"] * 4)]
    lines = (
        f"**A head at 1 or 10 times the backbone's rate. At 100 times SEC is {among(fast, 0)} points of MAP@R from the "
        "baseline (one seed, so no interval).**",
        table("SEC less baseline, MAP@R | head at 1 x | at 10 x | at 100 x | each with its best setting", rows),
        table("data | method | MAP@R | backbone's rate | head | first weights | at an edge of the range", settings),
    )
    return "\n\n".join(lines)


def forms() -> str:
    """Is another form better?"""
    runs, course, long = retrieval(), results("rates_cub200").runs, results("cars196_triplet_8000").runs
    rows = [
        (name, f"{label(method)} less {label(than)}", *[gain(difference(its, key, method, than)) for _, key in METRICS])
        for name, its, pairs in (
            ("eight tuned cells", runs, PAIRS[1:]),
            ("CUB-200-2011, five rates", course, (("sec-relative", "sec"), ("balanced", "none"))),
            ("Cars196, 8,000 steps", long, (("sec-initial", "sec"), ("l2reg", "none"))),
            ("rendered characters", rendered(), (("sec-relative", "sec"), ("sec-ema", "sec"), ("l2reg", "none"))),
        )
        for method, than in pairs
    ]  # fmt: skip
    first = answer(runs, "With relative SEC in place of SEC", method="sec-relative", than="sec")
    return f"{first}\n\n{table('runs | difference | MAP@R | R@1', rows)}"


def eta() -> str:
    """Which eta?"""
    runs = retrieval()
    chosen: dict[str, dict[str, float]] = {"sec": {}, "sec-relative": {}}
    for run in runs:
        if run["method"] in chosen:
            chosen[run["method"]][run["cell"]] = run["recipe"]["constraint"]["eta"]
    counts = {method: {eta: list(its.values()).count(eta) for eta in its.values()} for method, its in chosen.items()}
    favorite, count = max(counts["sec"].items(), key=lambda one: one[1])
    rows = []
    for method, its in counts.items():
        found = sorted(its.items())
        rows.append((label(method), "eight tuned cells", ", ".join(f"{rate(eta)} in {times}" for eta, times in found)))
        trials = {
            run["recipe"]["constraint"]["eta"]: run["last"]["map@r"]
            for run in results("cub200_ms_eta_tuning").runs
            if run["recipe"]["constraint"]["relative"] == (method == "sec-relative")
        }
        shown = ", ".join(f"{rate(eta)}: {100 * value:.1f}" for eta, value in sorted(trials.items()))
        rows.append((label(method), "CUB-200-2011, held-out classes, MAP@R", shown))
    return (
        f"**{rate(favorite)} with pretrained weights: tuning chose it in {count} of 8 cells "
        f"(a choice has no interval).**\n\n{table('method | where | eta', rows)}"
    )


def scratch() -> str:
    """Does it help from scratch?"""
    runs = rendered()
    first = answer(runs, "On rendered characters")
    rows = [
        (f"{label(method)} less {label(than)}", *[gain(difference(runs, key, method, than)) for key in
         ("map@r", "recall@1", "nmi", "f1")])
        for method, than in PAIRS
    ]  # fmt: skip
    return f"{first}\n\n{table('difference | MAP@R | R@1 | NMI | F1', rows)}"


FACES = (("CFP-FF", "cfp_ff"), ("CFP-FP", "cfp_fp"), ("rank 1 of 10,000", "rank1@10000"))


def faces() -> str:
    """Does it help on faces?"""
    runs = results("faces_lfw").runs
    first = answer(runs, "In a smoke test at the paper's eta", FACES[::2])
    rows = []
    for cell, name in (("lfw-cosface", "CosFace"), ("lfw-arcface", "ArcFace")):
        its = only(runs, cell=cell)
        rows.append((name, "5, three seeds", *[gain(difference(its, key)) for _, key in FACES]))
        light = [*only(its, method="none", seed=0), *only(results("faces_lfw_eta0.1").runs, cell=cell)]
        rows.append((name, "0.1, one seed", *[gain(difference(light, key)) for _, key in FACES]))
    headings = "head | eta | " + " | ".join(name for name, _ in FACES)
    return f"{first}\n\n{table(headings, rows)}"


PROBES = (("the linear probe", "probe_top1"), ("k-NN", "knn"))


def simclr() -> str:
    """Does it help with SimCLR?"""
    tuned = results("simclr_cifar10_resnet18").runs
    first = answer(tuned, "With ResNet-18 on CIFAR-10", PROBES)
    rows = []
    for network, name in (
        ("ResNet-18, CIFAR-10", "simclr_cifar10_resnet18"),
        ("ResNet-50, CIFAR-10", "simclr_cifar10_tuned_by_resnet18"),
        ("ResNet-18, CIFAR-100", "simclr_cifar100_resnet18_tuned_by_cifar10"),
    ):
        its = results(name).runs
        methods = dict.fromkeys(run["method"] for run in its if run["method"] != "none")
        for method in methods:
            rows.append((network, label(method), *[gain(difference(its, key, method)) for _, key in PROBES]))
    return f"{first}\n\n{table('network, data | method less baseline | probe | k-NN', rows)}"


def length() -> str:
    """Does it survive longer training?"""
    runs = results("cars196_triplet_8000").runs
    short = only(results("retrieval_cars196").runs, cell="cars196-triplet")
    rows = [
        (steps, *[gain(difference(its, key)) for key in ("map@r", "recall@1", "nmi")])
        for steps, its in (("8,000, the paper's rate", runs), ("1,600, tuned", short))
    ]
    first = answer(runs, "After 8,000 steps")
    return f"{first}\n\n{table('steps | SEC less baseline, MAP@R | R@1 | NMI', rows)}"


def causes() -> str:
    """Why does it help?"""
    parts, rows = [], []
    for dataset, where in CAUSES.items():
        runs, gaps = results(f"causes_{dataset}").runs, []
        for method in ("sec", "sec-log", "sec-decoupled", "scale", "placebo"):
            its = [compared(runs, method, "none", PRIMARY) for compared in COMPARED.values()]
            if all(gap.seeds for gap in its):
                rows.append((where, label(method), *map(gap_in_words, its)))
                gaps = its if method == "sec" else gaps
        equal, best, loss = (f"{gap.mean:+.1f}" for gap in gaps)
        seeds = len(gaps[1].seeds)
        parts.append(
            f"- {where}: {equal} at equal rates, {best} with each at its best rate, and {loss} at equal training loss "
            f"({seeds} seed{'s' * (seeds > 1)})"
        )
    first = "**Not shown yet to be more than a rate.** SEC less the baseline, in points of MAP@R:"
    heading = "where | method less baseline, MAP@R | " + " | ".join(COMPARED)
    return "\n\n".join((first, "\n".join(parts), table(heading, rows)))


def gap_in_words(gap: Gap) -> str:
    """A difference over seeds with its interval."""
    if gap.ends is None:
        return f"{gap.mean:+.1f} (1 seed)"
    return f"{gap.mean:+.1f} ({gap.ends[0]:+.1f} to {gap.ends[1]:+.1f})"


def causes_tables() -> str:
    """All of the experiment on causes."""
    return markdown([run for dataset in CAUSES for run in results(f"causes_{dataset}").runs])


def spread_of_seeds() -> str:
    """How far seeds of the baseline are apart."""
    found: dict[str, list[float]] = {}
    for run in retrieval():
        if run["method"] == "none":
            found.setdefault(run["cell"], []).append(run["last"]["recall@1"])
    apart = [100 * float(np.std(values, ddof=1)) for values in found.values()]
    return f"The standard deviation of R@1 over a cell's seeds is {min(apart):.1f} to {max(apart):.1f} points."
