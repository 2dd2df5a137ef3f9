"""Seconds of the linear probe, for one learning rate and for five at once, and of the weighted k-NN.

    python benchmarks/probe.py                     2,000 x 256, 10 epochs on CPU: only shows that it runs
    python benchmarks/probe.py --device cuda       50,000 x 2048, 100 epochs, tested on 10,000: under a minute each

Beside the probe stands the loop that one would write, nn.Linear with torch.optim.SGD on the same features on the same
device, without any test: a few of its epochs are measured and scaled to all, and to five runs for five learning rates.
The exit code is 1 if a target is missed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from isosphere.metrics import knn_accuracy, linear_probe

SIZES = {"cpu": (2_000, 400, 256, 10), "cuda": (50_000, 10_000, 2048, 100)}  # training and test rows, width, epochs
CLASSES, BATCH, RATES, LIMIT = 10, 256, (0.5, 1.0, 2.0, 5.0, 10.0), 60.0
LOOP_EPOCHS = 3


def features(device: str) -> list[torch.Tensor]:
    """Random classes with noise, not negative, as pooled features are: training and test features and labels."""
    train, test, width, _ = SIZES[device]
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(train + test) % CLASSES
    centers = 0.1 * torch.randn(CLASSES, width, generator=generator)
    rows = (centers[labels] + torch.randn(train + test, width, generator=generator)).relu_()
    parts = rows[:train], labels[:train], rows[train:], labels[train:]
    return [part.to(device) for part in parts]


def plain_loop(rows: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """The probe with autograd and an optimizer, one learning rate."""
    model = torch.nn.Linear(rows.shape[1], CLASSES, device=rows.device)
    optimizer = torch.optim.SGD(model.parameters(), 5.0, momentum=0.9)
    for _ in range(epochs):
        for chosen in torch.randperm(len(rows), device=rows.device).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(rows[chosen]), labels[chosen]).backward()
            optimizer.step()


def seconds(work: Callable[[], object], device: str) -> float:
    """How long one call takes, with the device idle before and after."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def race(device: str, repeats: int) -> list[dict]:
    """All in turn, `repeats` times; a row of medians for each."""
    data, epochs = features(device), SIZES[device][3]
    knn_accuracy(*data)
    contestants = {
        "probe, 1 learning rate": lambda: linear_probe(*data, epochs=epochs),
        f"probe, {len(RATES)} learning rates at once": lambda: linear_probe(*data, RATES, epochs=epochs),
        "k-NN, k 200": lambda: knn_accuracy(*data),
    }
    linear_probe(*data, epochs=2)
    plain_loop(data[0], data[1], 1)
    times, loops = {name: [] for name in contestants}, []
    for _ in range(repeats):
        for name, work in contestants.items():
            times[name].append(seconds(work, device))
        loops.append(seconds(lambda: plain_loop(data[0], data[1], LOOP_EPOCHS), device) * epochs / LOOP_EPOCHS)
    rows, loop = [], statistics.median(loops)
    for name, found in times.items():
        spent, trained = statistics.median(found), len(RATES) if "at once" in name else 1
        row = dict(name=name, seconds=spent, plain_loop=None if "k-NN" in name else loop * trained)
        timed = device == "cuda" and "k-NN" not in name
        rows.append(row | dict(target=f"< {LIMIT:g} s" if timed else "", reached=not timed or spent < LIMIT))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=tuple(SIZES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    rows = race(options.device, options.repeats)
    train, test, width, epochs = SIZES[options.device]
    title = f"Frozen features, {train:,} x {width}, {CLASSES} classes, {epochs} epochs, tested on {test:,}"
    table = Table(title=f"{title}, {options.device}")
    for heading in ("", "ours, s", "plain loop, s", "faster", "target", ""):
        table.add_column(heading)
    for row in rows:
        loop = row["plain_loop"]
        peer = [f"{loop:.2f}", f"{loop / row['seconds']:.1f} x"] if loop else ["", ""]
        verdict = "reached" if row["reached"] else "[red]MISSED[/red]"
        table.add_row(row["name"], f"{row['seconds']:.3f}", *peer, row["target"], verdict)
    Console(width=120).print(table)
    if options.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        name = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
        hardware = dict(device=options.device, name=name, cores=os.cpu_count(), threads=torch.get_num_threads())
        size = dict(train=train, test=test, width=width, epochs=epochs, classes=CLASSES, batch=BATCH)
        about = dict(versions=versions, hardware=hardware, size=size, rows=rows)
        Path(options.json).write_text(json.dumps(about, indent=1))
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
