"""Forward and backward of our losses next to their peers: time and peak memory, measured in one run.

    python benchmarks/losses.py [--device cuda] [--loss triplet ...] [--json out.json]

Peer: pytorch-metric-learning with equal settings; for semi-hard, which it does not have, a plain N x N x N
transcription; and what one would write in a few lines of torch where that is good ("plain"). Times are medians of
rounds in which the two take turns. Memory is the growth of the peak: of the resident set, each contestant in a fresh
process (CPU), or of torch's allocator (CUDA). A contestant that does not fit into memory is reported as such. The
exit code is 1 if a target is missed.
"""

import argparse
import ctypes
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytorch_metric_learning
import torch
from pytorch_metric_learning import distances, miners, reducers
from pytorch_metric_learning import losses as pml
from rich.console import Console
from rich.table import Table
from torch import Tensor

from isosphere.losses import contrastive, lists, margins, norms, pairs, rankings, tuplets

DIM, CLASSES, THREADS = 512, 10_000, 2
ROUNDS, SECONDS = 20, 30.0  # rounds of a race, fewer (but 3) where they would take longer than this
BATCHES = {"cpu": (120, 480, 1024), "cuda": (120, 1024, 4096)}


def plain_semihard(embeddings: Tensor, labels: Tensor, margin: float = 0.2) -> Tensor:
    """All (anchor, positive, negative) at once, masked minima and maxima, as the TensorFlow form has it."""
    unit = torch.nn.functional.normalize(embeddings)
    chords = 2 - 2 * unit @ unit.T
    same = labels[:, None] == labels
    farther = ~same[:, None, :] & (chords[:, None, :] > chords[:, :, None])
    smallest = torch.where(farther, chords[:, None, :], torch.inf).min(2).values
    largest = torch.where(same, -torch.inf, chords).max(1, keepdim=True).values
    hinges = (chords - torch.where(farther.any(2), smallest, largest) + margin).relu()
    positive = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return torch.where(positive, hinges, 0).sum() / positive.sum()


def plain_nt_xent(embeddings: Tensor, labels: Tensor) -> Tensor:
    """All cosines at once and torch's cross-entropy; the two views of an image are neighbors."""
    unit = torch.nn.functional.normalize(embeddings)
    logits = (unit @ unit.T / 0.5).masked_fill(torch.eye(len(unit), dtype=torch.bool, device=unit.device), -torch.inf)
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(unit), device=unit.device) ^ 1)


def plain_multi_similarity(embeddings: Tensor, labels: Tensor) -> Tensor:
    """All cosines at once, mined and weighed with masks."""
    unit = torch.nn.functional.normalize(embeddings)
    cosines, same = unit @ unit.T, labels[:, None] == labels
    positive = same & ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    with torch.no_grad():
        least = cosines.masked_fill(~positive, torch.inf).min(1, keepdim=True).values
        most = cosines.masked_fill(same, -torch.inf).max(1, keepdim=True).values
        positive, negative = positive & (cosines - 0.1 < most), ~same & (cosines + 0.1 > least)
    pulled = torch.log1p((torch.exp(-2 * (cosines - 0.5)) * positive).sum(1)) / 2
    pushed = torch.log1p((torch.exp(40 * (cosines - 0.5)) * negative).sum(1)) / 40
    return (pulled + pushed).mean()


def plain_smooth_ap(embeddings: Tensor, labels: Tensor, temperature: float = 0.01) -> Tensor:
    """All comparisons at once, N x N x N, self left out."""
    unit = torch.nn.functional.normalize(embeddings)
    cosines, same = unit @ unit.T, labels[:, None] == labels
    others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    positive = (same & others).to(unit.dtype)
    above = torch.sigmoid((cosines[:, None, :] - cosines[:, :, None]) / temperature) * others[:, None, :] * others
    ranks, among = 1 + above.sum(2), 1 + (above * positive[:, None, :]).sum(2)
    return (1 - (positive * among / ranks).sum(1) / positive.sum(1)).mean()


def pml_multi_similarity() -> Callable[[Tensor, Tensor], Tensor]:
    loss, miner = pml.MultiSimilarityLoss(2, 40, 0.5), miners.MultiSimilarityMiner(0.1)
    return lambda f, y: loss(f, y, miner(f, y))


@dataclass(frozen=True)
class Case:
    """Two makers of criteria with equal settings, samples a class, and the speed-up to reach at each batch size."""

    ours: Callable[[], Callable[[Tensor, Tensor], Tensor]]
    peer: Callable[[], Callable[[Tensor, Tensor], Tensor]]
    targets: dict[str, dict[int, float]]
    samples: int = 4


NO_SLOWER = {"cpu": {120: 0.95, 480: 0.95, 1024: 0.95}, "cuda": {}}
SQUARED = distances.LpDistance(power=2)
CASES = {
    "triplet": Case(
        lambda: pairs.TripletLoss(1.0),
        lambda: pml.TripletMarginLoss(1.0, distance=SQUARED, reducer=reducers.MeanReducer()),
        {"cpu": {120: 2, 480: 8, 1024: 15}, "cuda": {4096: 50}},
    ),
    "multi-similarity": Case(
        lambda: pairs.MultiSimilarityLoss(2, 40, 0.5, 0.1),
        pml_multi_similarity,
        {"cpu": {120: 2.5, 480: 2.5, 1024: 2.5}, "cuda": {}},
    ),
    "multi-similarity, plain": Case(
        lambda: pairs.MultiSimilarityLoss(2, 40, 0.5, 0.1), lambda: plain_multi_similarity, {"cpu": {}, "cuda": {}}
    ),
    "semi-hard": Case(lambda: pairs.SemiHardTripletLoss(0.2), lambda: plain_semihard, NO_SLOWER),
    "NT-Xent": Case(lambda: contrastive.NTXentLoss(0.5), lambda: pml.NTXentLoss(0.5), NO_SLOWER, samples=2),
    "NT-Xent, plain": Case(
        lambda: contrastive.NTXentLoss(0.5), lambda: plain_nt_xent, {"cpu": {}, "cuda": {}}, samples=2
    ),
    "circle": Case(lists.CircleLoss, lambda: pml.CircleLoss(0.4, 80), {"cpu": {}, "cuda": {}}),
    "lifted structure": Case(
        lists.LiftedStructureLoss, lambda: pml.GeneralizedLiftedStructureLoss(1.0), {"cpu": {}, "cuda": {}}
    ),
    "tuplet margin": Case(
        tuplets.TupletMarginLoss, lambda: pml.TupletMarginLoss(math.degrees(0.1), 64), {"cpu": {}, "cuda": {}}
    ),
    "smooth AP": Case(
        lambda: rankings.SmoothAPLoss(0.01, per_class=4), lambda: plain_smooth_ap, {"cpu": {}, "cuda": {}}
    ),
    "ArcFace": Case(
        lambda: margins.CosineClassifier(DIM, CLASSES, margins.ArcFace(0.45), scale=64),
        lambda: pml.ArcFaceLoss(CLASSES, DIM, margin=math.degrees(0.45), scale=64),
        NO_SLOWER,
    ),
}
LARGE = {  # at 8,192 x 512: under 20 s and 4 GiB on two cores
    "triplet": pairs.TripletLoss,
    "semi-hard": pairs.SemiHardTripletLoss,
    "N-pair": pairs.NPairLoss,
    "N-pair, all negatives": lambda: pairs.NPairLoss(negatives="all"),
    "multi-similarity": pairs.MultiSimilarityLoss,
    "contrastive": pairs.ContrastiveLoss,
    "SupCon": contrastive.SupConLoss,
    "NT-Xent": contrastive.NTXentLoss,
    "circle": lists.CircleLoss,
    "lifted structure": lists.LiftedStructureLoss,
    "ranked list": lists.RankedListLoss,
    "tuplet margin": tuplets.TupletMarginLoss,
    "decoupled contrastive": tuplets.DecoupledContrastiveLoss,
    "smooth AP": rankings.SmoothAPLoss,
    "recall": rankings.RecallSurrogateLoss,
}
LARGE_BATCH, LARGE_SECONDS, LARGE_BYTES = 8192, 20.0, 4 * 2**30
MEMORY_TARGETS = {("triplet", "cuda", 4096): 10.0}
IN_A_GRAPH_MS = 0.5


def data(batch: int, samples: int, device: str) -> tuple[Tensor, Tensor]:
    """Random embeddings (batch, DIM) that want gradients and labels with this many samples a class."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(batch, DIM, generator=generator).to(device).requires_grad_()
    return embeddings, (torch.arange(batch) // samples).to(device)


def make(name: str, side: str, device: str) -> Callable[[Tensor, Tensor], Tensor]:
    criterion = getattr(CASES[name], side)()
    return criterion.to(device) if isinstance(criterion, torch.nn.Module) else criterion


def step(criterion: Callable[[Tensor, Tensor], Tensor], embeddings: Tensor, labels: Tensor) -> None:
    """One forward and backward pass from gradients that are None."""
    embeddings.grad = None
    if isinstance(criterion, torch.nn.Module):
        criterion.zero_grad()
    criterion(embeddings, labels).backward()


def seconds(criterion: Callable[[Tensor, Tensor], Tensor], embeddings: Tensor, labels: Tensor) -> float | None:
    """Seconds of one step, or None if it does not fit into memory."""
    wait = torch.cuda.synchronize if embeddings.is_cuda else lambda: None
    wait()
    begin = time.perf_counter()
    try:
        step(criterion, embeddings, labels)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return None
    wait()
    return time.perf_counter() - begin


def race(name: str, batch: int, device: str) -> tuple[float, float | None, int]:
    """Median seconds of ours and of the peer (None: out of memory), and the rounds in which they took turns."""
    case = CASES[name]
    embeddings, labels = data(batch, case.samples, device)
    sides = {side: make(name, side, device) for side in ("ours", "peer")}
    small = data(24, case.samples, device)
    if name != "ArcFace":  # whose class weights are drawn
        torch.testing.assert_close(sides["ours"](*small), sides["peer"](*small), rtol=1e-3, atol=1e-4)
    first = {side: seconds(criterion, embeddings, labels) for side, criterion in sides.items()}
    if first["ours"] is None:
        raise MemoryError(f"{name} of {batch} does not fit into memory")
    if first["peer"] is None:
        del sides["peer"]
        torch.cuda.empty_cache()
    rounds = max(3, min(ROUNDS, int(SECONDS / sum(value or 0 for value in first.values()))))
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, criterion in sides.items():
            times[side].append(seconds(criterion, embeddings, labels) or math.nan)
    medians = {side: statistics.median(values) for side, values in times.items()}
    return medians["ours"], medians.get("peer"), rounds


def status(field: str) -> int:
    """A field of this process's memory in bytes (VmRSS: now; VmHWM: the peak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def processor() -> str:
    """The CPU's model name, as Linux knows it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def limit_memory() -> None:
    """Make allocations beyond nine tenths of the free memory fail, lest a contestant bring the machine down."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    resource.setrlimit(resource.RLIMIT_DATA, (free * 9 // 10, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def alone(criterion: Callable[[Tensor, Tensor], Tensor], batch: int, samples: int, device: str) -> dict:
    """Seconds of one step and the bytes by which it raises the peak above what was held before; None: does not fit."""
    step(criterion, *data(24, samples, device))
    if isinstance(criterion, torch.nn.Module):
        criterion.zero_grad()
    embeddings, labels = data(batch, samples, device)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        taken, peak = seconds(criterion, embeddings, labels), torch.cuda.max_memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # what the small step freed goes back, or it would hide part of the growth
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident now
        before = status("VmRSS")
        taken, peak = seconds(criterion, embeddings, labels), status("VmHWM")
    return {"seconds": taken, "bytes": None if taken is None else max(1, peak - before)}


def in_a_process(name: str, side: str, batch: int) -> dict:
    """`alone` in a fresh process, on CPU, where the peak is that of a process."""
    command = [sys.executable, __file__, "--alone", name, side, str(batch)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


@dataclass
class Row:
    """One line of the table; times in milliseconds, memory in bytes, None where the peer ran out of memory."""

    loss: str
    batch: int
    ours_ms: float
    peer_ms: float | None
    rounds: int
    target: float | None
    ours_bytes: int
    peer_bytes: int | None
    memory_target: float | None

    @property
    def missed(self) -> bool:
        slow = self.target is not None and self.peer_ms is not None and self.peer_ms / self.ours_ms < self.target
        large = self.memory_target is not None and self.peer_bytes is not None
        return slow or (large and self.peer_bytes / self.ours_bytes < self.memory_target)

    def cells(self) -> list[str]:
        def both(ours: float, peer: float | None, form: str) -> list[str]:
            return [f"{ours:{form}}", "out of memory" if peer is None else f"{peer:{form}}"]

        ratio = "-" if self.peer_ms is None else f"{self.peer_ms / self.ours_ms:.2f}"
        lighter = "-" if self.peer_bytes is None else f"{self.peer_bytes / self.ours_bytes:.1f}"
        peer_mib = None if self.peer_bytes is None else self.peer_bytes / 2**20
        return [
            self.loss,
            str(self.batch),
            *both(self.ours_ms, self.peer_ms, ".2f"),
            f"{ratio} x",
            "" if self.target is None else f"{self.target:g} x",
            str(self.rounds),
            *both(self.ours_bytes / 2**20, peer_mib, ".1f"),
            f"{lighter} x" + ("" if self.memory_target is None else f" (target {self.memory_target:g})"),
            "[red]MISSED[/]" if self.missed else "ok",
        ]


def measure(name: str, batch: int, device: str) -> Row:
    ours, peer, rounds = race(name, batch, device)
    if device == "cuda":
        alone_ = [alone(make(name, side, device), batch, CASES[name].samples, device) for side in ("ours", "peer")]
    else:
        alone_ = [in_a_process(name, side, batch) for side in ("ours", "peer")]
    target = CASES[name].targets[device].get(batch)
    times = (1e3 * ours, None if peer is None else 1e3 * peer)
    memory_target = MEMORY_TARGETS.get((name, device, batch))
    return Row(name, batch, *times, rounds, target, *(one["bytes"] for one in alone_), memory_target)


def in_a_graph(name: str, batch: int = 120) -> float:
    """Milliseconds of criterion + SEC, forward and backward, replayed from a CUDA graph (median of 200)."""
    criterion, sec = make(name, "ours", "cuda"), norms.SEC(eta=1.0, radius="batch").to("cuda")
    embeddings, labels = data(batch, CASES[name].samples, "cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(lambda f, y: criterion(f, y) + sec(f), embeddings, labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    embeddings.grad = None
    with torch.cuda.graph(graph):
        (criterion(embeddings, labels) + sec(embeddings)).backward()
    times = []
    for _ in range(200):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--loss", nargs="+", choices=list(CASES), default=list(CASES), help="only these")
    parser.add_argument("--json", type=Path, help="write the results here too")
    parser.add_argument("--alone", nargs=3, metavar=("LOSS", "SIDE", "BATCH"), help="one contestant's memory")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    if options.device == "cpu":
        limit_memory()
    if options.alone:
        name, side, batch = options.alone
        criterion = LARGE[name]() if side == "large" else make(name, side, options.device)
        print(json.dumps(alone(criterion, int(batch), 2 if name.startswith("NT-Xent") else 4, options.device)))
        return 0

    console = Console()
    console.width = max(console.width, 120)  # a log file is no narrow terminal
    title = f"forward + backward, dimension {DIM}, {options.device}, {THREADS} threads, torch {torch.__version__}"
    heads = "loss|batch|ours ms|peer ms|faster|target|rounds|ours MiB|peer MiB|lighter|"
    table = Table(*heads.split("|"), title=title)
    rows = []
    for name in options.loss:
        for batch in BATCHES[options.device]:
            with console.status(f"{name}, batch {batch}"):
                rows.append(measure(name, batch, options.device))
            table.add_row(*rows[-1].cells())
    console.print(table)
    once = [name for name in options.loss if not name.endswith("plain")]
    graphs = {name: in_a_graph(name) for name in once} if options.device == "cuda" else {}
    for name, milliseconds in graphs.items():
        verdict = "ok" if milliseconds < IN_A_GRAPH_MS else "[red]MISSED[/]"
        console.print(f"{name} + SEC, batch 120, CUDA graph: {milliseconds:.3f} ms (target {IN_A_GRAPH_MS}) {verdict}")
    large = {name: in_a_process(name, "large", LARGE_BATCH) for name in LARGE} if options.device == "cpu" else {}
    failed = [name for name, one in large.items() if one["seconds"] > LARGE_SECONDS or one["bytes"] > LARGE_BYTES]
    for name, one in large.items():
        numbers = f"{one['seconds']:.1f} s (target 20), {one['bytes'] / 2**30:.2f} GiB (target 4)"
        console.print(f"{name}, batch {LARGE_BATCH}: {numbers} {'[red]MISSED[/]' if name in failed else 'ok'}")
    missed = sum(row.missed for row in rows) + sum(value >= IN_A_GRAPH_MS for value in graphs.values()) + len(failed)
    console.print(f"[red]{missed} target(s) missed[/]" if missed else "all targets reached")
    if options.json:
        hardware = torch.cuda.get_device_name() if options.device == "cuda" else processor()
        peer = pytorch_metric_learning.__version__
        versions = {"python": platform.python_version(), "torch": torch.__version__, "pytorch-metric-learning": peer}
        record = {
            "versions": versions,
            "hardware": {"device": options.device, "name": hardware, "cores": os.cpu_count(), "threads": THREADS},
            "rows": [asdict(row) for row in rows],
            "graph_ms": graphs,
            "large": large,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
