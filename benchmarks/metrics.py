"""Speed and memory of the metrics next to their peers, each pair measured in turn in one run.

    python benchmarks/metrics.py                       20,000 x 512 on two threads, against faiss and scikit-learn
    python benchmarks/metrics.py --size sop            60,502 x 512 in 11,316 classes, against pytorch-metric-learning
                                                       with faiss; one round takes five minutes
    python benchmarks/metrics.py --device cuda --size sop    the same size on a GPU, against fixed seconds
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from isosphere import metrics, sphere

SIZES = {"cpu": (20_000, 200, 2.0), "sop": (60_502, 11_316, 2.2)}  # embeddings, classes, noise around unit centers
DIM = 512
KS = tuple(range(1, 1001))
SOP_KS = (1, 10, 100, 1000)
WORK = {
    "ours": "rank of the first positive from blocks of exact cosines; greedy k-means++, then Lloyd until nothing moves",
    "peer": "AccuracyCalculator on unit vectors: faiss IndexFlatL2 with k 1000, then faiss k-means from random points, "
    "20 iterations, as it sets them; R@10 to R@1000 are read off its neighbors, F1 off its clusters",
}


def blobs(size: str, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random classes with noise: embeddings (N, 512) and labels (N,)."""
    count, classes, noise = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    centers = torch.randn(classes, DIM, generator=generator)
    return (centers[labels] + noise * torch.randn(count, DIM, generator=generator)).to(device), labels.to(device)


def seconds(work: Callable[[], object], device: str) -> tuple[float, object]:
    """How long one call takes, and what it returns."""
    begin = time.perf_counter()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def memory_above_start(name: str) -> float:
    """GiB by which the peak of resident memory rises while one metric runs, in a process of its own."""
    command = [sys.executable, __file__, "--measure-memory", name]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure_memory(name: str) -> float:
    """The body of that process: its peak in the end less what it held before the metric began, GiB."""
    embeddings, labels = blobs("cpu", "cpu")
    torch.ones(512, DIM) @ torch.ones(DIM, 512)  # the library's own buffers are not the metric's
    before = resident("VmRSS")
    if name == "recall":
        metrics.recall_at_k(embeddings, labels, KS)
    elif name == "all":
        metrics.retrieval_metrics(embeddings, labels, KS)
    else:
        metrics.kmeans(sphere.directions(embeddings), SIZES["cpu"][1])
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Resident memory of this process in GiB, VmRSS now or VmHWM at its peak (Linux)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 2**20


def peak_from_here() -> float:
    """Forget this process's peak of resident memory (Linux); what it holds now, GiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def processor() -> str:
    """The CPU's model name, as Linux knows it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def circumstances(device: str, peers: bool) -> dict:
    """The versions and the hardware that the numbers depend on."""
    names = ("numpy", *(("faiss-cpu", "scikit-learn", "pytorch-metric-learning") if peers else ()))
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    name = torch.cuda.get_device_name() if device == "cuda" else processor()
    hardware = dict(device=device, name=name, cores=os.cpu_count(), threads=torch.get_num_threads())
    return dict(versions=versions | {name: version(name) for name in names}, hardware=hardware)


def against_peers(repeats: int) -> list[dict]:
    """Rows for two CPU threads: ours and the peer's medians, interleaved; targets are ratios of the two."""
    import faiss
    from sklearn.cluster import KMeans

    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    embeddings, labels = blobs("cpu", "cpu")
    unit = sphere.directions(embeddings)
    index = faiss.IndexFlatIP(DIM)
    index.add(unit.numpy())
    ours, everything, peers, rows = [], [], [], []
    for _ in range(repeats):
        ours.append(seconds(lambda: metrics.recall_at_k(embeddings, labels, KS), "cpu")[0])
        peers.append(seconds(lambda: index.search(unit.numpy(), 1001), "cpu")[0])
        everything.append(seconds(lambda: metrics.retrieval_metrics(embeddings, labels, KS), "cpu")[0])
    rows.append(versus("R@1..R@1000 / faiss k 1001", ours, peers, memory_above_start("recall")))
    rows.append(versus("the same with MAP@R, R-precision / faiss", everything, peers, memory_above_start("all")))
    clusters, ours, peers, our_inertias, their_inertias = SIZES["cpu"][1], [], [], [], []
    for seed in range(5):
        spent, (_, _, inertia) = seconds(lambda seed=seed: metrics.kmeans(unit, clusters, seed), "cpu")
        ours.append(spent)
        our_inertias.append(inertia)
        spent, model = seconds(lambda seed=seed: KMeans(clusters, n_init=1, random_state=seed).fit(unit.numpy()), "cpu")
        peers.append(spent)
        their_inertias.append(model.inertia_)
    rows.append(versus(f"k-means, k {clusters} / scikit-learn", ours, peers, memory_above_start("kmeans")))
    inertia = statistics.median(our_inertias) / statistics.median(their_inertias)
    rows[-1] |= {"inertia_ratio": inertia, "reached": rows[-1]["reached"] and inertia <= 1.01}
    rows[-1]["target"] += f", inertia x {inertia:.4f} <= 1.01"
    return rows


def versus(name: str, ours: list[float], peers: list[float], memory: float) -> dict:
    """One row of the table: medians, their ratio, and whether it is fast and small enough."""
    mine, theirs = statistics.median(ours), statistics.median(peers)
    row = dict(name=name, ours=mine, peer=theirs, speed=theirs / mine, memory=memory)
    return row | dict(target="speed >= 1, < 1 GiB", reached=mine <= theirs and memory < 1)


def against_pml(repeats: int) -> list[dict]:
    """Rows for two CPU threads at SOP's size: the quickest round of each side, all rounds, and what both found.

    A round's CPU seconds are those of all threads: far below twice its seconds, something else was running too.
    """
    import faiss

    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    embeddings, labels = blobs("sop", "cpu")
    unit, rows = sphere.directions(embeddings), []
    calculator = pml_calculator()
    for name, ours, theirs in (
        (
            "R@1, 10, 100, 1000 / PML with faiss",
            lambda: {f"recall@{k}": value for k, value in metrics.recall_at_k(embeddings, labels, SOP_KS).items()},
            lambda: calculator.get_accuracy(unit, labels, include=("recalls",))["recalls"],
        ),
        (
            "k-means, NMI, F1 / PML with faiss",
            lambda: metrics.clustering_metrics(embeddings, labels),
            lambda: {k.lower(): v for k, v in calculator.get_accuracy(unit, labels, include=("NMI", "f1")).items()},
        ),
    ):
        rounds, memory = [], 0.0
        for _ in range(repeats):
            before, begin = peak_from_here(), time.process_time()
            mine, found = seconds(ours, "cpu")
            memory, middle = max(memory, resident("VmHWM") - before), time.process_time()
            peer, expected = seconds(theirs, "cpu")
            spent = dict(ours_cpu=middle - begin, peer_cpu=time.process_time() - middle)
            rounds.append(dict(ours=mine, peer=peer) | spent)
        quickest = [[min(part[side] for part in rounds)] for side in ("ours", "peer")]
        row = versus(name, *quickest, memory) | dict(rounds=rounds, found=found, peer_found=expected)
        agreeing = all(found[key] >= expected[key] - 1e-4 for key in found)
        values = ", ".join(f"{key} {found[key]:.4f} ({expected[key]:.4f})" for key in found)
        row["target"] += f", no less (theirs): {values}"
        rows.append(row | {"reached": row["reached"] and agreeing})
    return rows


def pml_calculator():
    """pytorch-metric-learning's AccuracyCalculator with the two metrics that it lacks, as it asks for additions."""
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    class Calculator(AccuracyCalculator):
        def calculate_recalls(self, knn_labels: torch.Tensor, query_labels: torch.Tensor, **_: object) -> dict:
            same = knn_labels == query_labels[:, None]
            return {f"recall@{k}": same[:, :k].any(1).double().mean().item() for k in SOP_KS}

        def calculate_f1(self, cluster_labels: torch.Tensor, query_labels: torch.Tensor, **_: object) -> float:
            return metrics.pairwise_f1(cluster_labels, query_labels.long())

        def requires_knn(self) -> list[str]:
            return [*super().requires_knn(), "recalls"]

        def requires_clustering(self) -> list[str]:
            return [*super().requires_clustering(), "f1"]

    return Calculator(include=("recalls", "NMI", "f1"), k=max(SOP_KS), device=torch.device("cpu"))


def against_the_clock(device: str, size: str, repeats: int) -> list[dict]:
    """Rows for one device alone: medians against the seconds asked of a GPU at 60,502 x 512."""
    embeddings, labels = blobs(size, device)
    rows = []
    for name, limit, work in (
        ("R@1..R@1000", 1.0, lambda: metrics.recall_at_k(embeddings, labels, KS)),
        ("R@1..R@1000, MAP@R, R-precision", None, lambda: metrics.retrieval_metrics(embeddings, labels, KS)),
        ("k-means, NMI, F1", 20.0, lambda: metrics.clustering_metrics(embeddings, labels)),
    ):
        work()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
        spent = statistics.median(seconds(work, device)[0] for _ in range(repeats))
        memory = (torch.cuda.max_memory_allocated() - held) / 2**30 if device == "cuda" else None
        asked = limit if device == "cuda" and size == "sop" else None
        target = f"<= {asked:g} s" if asked else ""
        rows.append(dict(name=name, ours=spent, memory=memory, target=target, reached=asked is None or spent <= asked))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", default="cpu", choices=tuple(SIZES))
    parser.add_argument("--repeats", type=int, help="rounds; by default 3, but 1 against pytorch-metric-learning")
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--measure-memory", choices=("recall", "all", "kmeans"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_memory:
        print(measure_memory(options.measure_memory))
        return 0
    peers = options.device == "cpu"
    if options.device == "cuda":
        rows = against_the_clock(options.device, options.size, options.repeats or 3)
    else:
        rows = against_peers(options.repeats or 3) if options.size == "cpu" else against_pml(options.repeats or 1)
    count, classes, _ = SIZES[options.size]
    table = Table(title=f"Metrics, {count:,} x {DIM}, {classes:,} classes, {options.device}")
    for heading in ("metric", "ours, s", "peer, s", "speed", "GiB above start", "target", ""):
        table.add_column(heading)
    for row in rows:
        numbers = [f"{row[key]:.2f}" if row.get(key) is not None else "" for key in ("ours", "peer", "speed", "memory")]
        table.add_row(row["name"], *numbers, row["target"], "reached" if row["reached"] else "[red]MISSED[/red]")
    Console(width=140).print(table)
    if options.json:
        about = dict(device=options.device, size=options.size) | circumstances(options.device, peers)
        about |= {"work": WORK} if rows[0].get("rounds") else {}
        with open(options.json, "w") as file:
            json.dump(about | dict(rows=rows), file, indent=1)
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
