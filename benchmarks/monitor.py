"""What NormMonitor costs: the same training step with and without it, as a share of the step.

    python benchmarks/monitor.py [--device cuda] [--json out.json]

On CPU a small CNN on 32 px images, on CUDA an eager ResNet-50 in bfloat16 on 227 px; batch 120, multi-similarity + SEC,
Adam, records written to a file. Steps with and without the monitor take turns, the first of a pair changing, each from
an idle device to an idle device; then comes one read of the 100 steps watched, of which each bears a hundredth. Two
shares are shown: how much longer watched steps are, by the medians, and the time that the host spends inside the
monitor's calls. On CPU (one thread's processor time) the second has the target, since the first drowns in noise; a GPU
is busy meanwhile, so there the first has it. The exit code is 1 if the target is missed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from isosphere.losses.norms import SEC
from isosphere.losses.pairs import MultiSimilarityLoss
from isosphere.models.embedder import build_embedder
from isosphere.monitor import NormMonitor

TARGET = 0.02  # of a step
BATCH, PER_CLASS, EVERY, ROUNDS, THREADS = 120, 5, 100, 3, 1
CLOCKS = {"cpu": time.process_time, "cuda": time.perf_counter}
SETTINGS = {"cpu": ("small_cnn", 32, torch.float32), "cuda": ("resnet50_v1", 227, torch.bfloat16)}


def training(device: str, file: Path) -> tuple[Callable[[bool], None], NormMonitor, list[float]]:
    """A step that takes whether to watch it, its monitor, and the seconds spent in it, two to a step."""
    backbone, size, dtype = SETTINGS[device]
    torch.manual_seed(0)
    model = build_embedder(backbone, "bn_fc", 512).to(device)
    images = torch.randint(0, 256, (BATCH, 3, size, size), dtype=torch.uint8, device=device)
    labels = (torch.arange(BATCH) // PER_CLASS).to(device)
    criterion, sec = MultiSimilarityLoss(), SEC(0.5)
    optimizer = torch.optim.Adam(model.parameters(), 1e-5, fused=device == "cuda")
    monitor = NormMonitor(optimizer, file=file, every=EVERY, constrained=True)
    inside: list[float] = []

    def begin(_: Tensor) -> None:
        inside.append(-CLOCKS[device]())

    def end(_: Tensor) -> None:
        inside[-1] += CLOCKS[device]()

    def step(watch: bool) -> None:
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            embeddings = model(images)
        if watch:
            embeddings.register_hook(begin)  # hooks run in the order of registration: the monitor's is in between
            begin(embeddings)
            monitor(embeddings)
            end(embeddings)
            embeddings.register_hook(end)
        loss = criterion(embeddings, labels) + sec(embeddings)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step, monitor, inside


def seconds(work: Callable[..., None], device: str, *arguments: bool) -> float:
    """Duration of a call, with the device idle before and after."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = CLOCKS[device]()
    work(*arguments)
    if device == "cuda":
        torch.cuda.synchronize()
    return CLOCKS[device]() - begin


def measure(device: str) -> dict:
    """Milliseconds of a step both ways, inside the monitor and of a read, and the two shares."""
    times: dict[bool, list[float]] = {True: [], False: []}
    reads = []
    with tempfile.TemporaryDirectory() as folder:
        step, monitor, inside = training(device, Path(folder, "norms.jsonl"))
        for number in range(20):
            step(number % 2 == 0)
        monitor.flush()
        inside.clear()
        for _ in range(ROUNDS):
            for number in range(EVERY):
                for watch in (True, False) if number % 2 else (False, True):
                    times[watch].append(seconds(step, device, watch))
            reads.append(seconds(monitor.flush, device))
        monitor.close()
    calls = [forward + backward for forward, backward in zip(inside[::2], inside[1::2], strict=True)]
    plain, watched, call, read = (statistics.median(part) for part in (times[False], times[True], calls, reads))
    shares = {"share_longer": (watched + read / EVERY) / plain - 1, "share_inside": (call + read / EVERY) / plain}
    return {
        "backbone": SETTINGS[device][0],
        "without_ms": 1e3 * plain,
        "with_ms": 1e3 * watched,
        "inside_ms": 1e3 * call,
        "read_ms": 1e3 * read,
        **shares,
        "steps": ROUNDS * EVERY,
        "target": TARGET,
        "reached": shares["share_inside" if device == "cpu" else "share_longer"] < TARGET,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(SETTINGS), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the result here too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # alarms about random images
    torch.set_num_threads(THREADS)
    found = measure(options.device)
    console = Console(highlight=False)
    console.print(f"{found['backbone']} on {options.device}: {found['without_ms']:.2f} ms a step", end="; ")
    console.print(f"watched {found['with_ms']:.2f} ms, of which in the monitor {found['inside_ms']:.3f} ms")
    console.print(f"a read of {EVERY} steps: {found['read_ms']:.2f} ms")
    verdict = "reached" if found["reached"] else "[red]MISSED[/red]"
    shares = f"longer {found['share_longer']:.2%}, inside {found['share_inside']:.2%}"
    console.print(f"share of a step: {shares}; target < {TARGET:.0%}: {verdict}")
    if options.json:
        hardware = {"device": options.device, "cores": os.cpu_count(), "threads": THREADS}
        hardware["name"] = platform.machine()
        if options.device == "cuda":
            hardware["name"] = torch.cuda.get_device_name()
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        record = {"versions": versions, "hardware": hardware, "rows": [found]}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if found["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
