"""Speed and memory of MegaFace's identification next to the bare matrix products that it cannot do without.

    python benchmarks/identification.py                   10,000 probes among 100,000 distractors, two CPU threads
    python benchmarks/identification.py --device cuda     among 1,000,000, against half a second
    python benchmarks/identification.py --probes 100 --distractors 2000      a trial of the benchmark itself

All in full float32, 512 dimensions. Times are medians of rounds in which the two take turns. Memory is the growth of
the peak: of the resident set of a fresh process, embeddings included (CPU), or of torch's allocator, beyond the
embeddings (CUDA). The exit code is 1 if a target is missed.
"""

import argparse
import json
import statistics
import subprocess
import sys

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from isosphere import sphere
from isosphere.metrics import distractors as megaface
from isosphere.metrics import neighbors
from metrics import circumstances, resident, seconds  # benchmarks/metrics.py

DIM = 512
DISTRACTORS = {"cpu": 100_000, "cuda": 1_000_000}
RANKS = {"rank 1": (1,), "ranks 1 and 10": (1, 10)}


def people(device: str, probes: int, strangers: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two images of each person, their labels, and strangers: (probes, 512), (probes,), (strangers, 512)."""
    generator = torch.Generator(device).manual_seed(0)
    labels = torch.arange(probes, device=device) // 2
    faces_of = torch.randn(-(-probes // 2), DIM, generator=generator, device=device)[labels]
    # Cosines of mates around 0.2, as far up as the best of a million strangers.
    images = faces_of + 2 * torch.randn(probes, DIM, generator=generator, device=device)
    return images, labels, torch.randn(strangers, DIM, generator=generator, device=device)


def counts(strangers: int) -> tuple[int, ...]:
    return (*(10**power for power in range(3, 7) if 10**power < strangers), strangers)


def bare_products(probes: Tensor, distractors: Tensor) -> None:
    """All scores of directions, in blocks of the same size, looked at by nobody."""
    step = neighbors.block_rows(megaface.COLUMNS * probes.element_size(), probes.device)
    buffer = probes.new_empty(step * megaface.COLUMNS)
    with megaface.full_float32():
        for chunk in distractors.split(megaface.COLUMNS):
            for block in probes.split(step):
                torch.mm(block, chunk.T, out=buffer[: len(block) * len(chunk)].view(len(block), -1))


def measure(device: str, repeats: int, size: tuple[int, int]) -> list[dict]:
    """One row for each choice of ranks: ours, the bare products, their ratio, memory and whether that will do."""
    probes, labels, distractors = people(device, *size)
    units, rows = (sphere.directions(probes), sphere.directions(distractors)), []
    work = {
        name: lambda ks=ks: megaface.identification(probes, labels, distractors, counts(size[1]), ks)
        for name, ks in RANKS.items()
    } | {"bare": lambda: bare_products(*units)}
    spent: dict[str, list[float]] = {name: [] for name in work}
    memory, results = {}, {}
    for turn in range(repeats + 1):
        for name, call in work.items():
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                held = torch.cuda.memory_allocated()
            took, results[name] = seconds(call, device)
            if device == "cuda":
                memory[name] = (torch.cuda.max_memory_allocated() - held) / 2**30
            if turn:  # the first one warms up
                spent[name].append(took)
    for name in RANKS:
        ours, bare = statistics.median(spent[name]), statistics.median(spent["bare"])
        used = memory[name] if device == "cuda" else memory_above_start(name, size)
        limits = {"cpu": (used < 4, "< 4 GiB"), "cuda": (ours < 0.5 or name != "rank 1", "rank 1 in < 0.5 s")}
        row = dict(name=name, ours=ours, bare=bare, ratio=ours / bare, memory=used, measured=results[name])
        rows.append(row | dict(target=limits[device][1], reached=limits[device][0]))
    return rows


def memory_above_start(name: str, size: tuple[int, int]) -> float:
    """GiB by which the peak of resident memory rises in a process of its own, embeddings included."""
    probes, strangers = map(str, size)
    command = [sys.executable, __file__, "--measure-memory", name, "--probes", probes, "--distractors", strangers]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure_memory(name: str, size: tuple[int, int]) -> float:
    torch.set_num_threads(2)
    before = resident("VmRSS")
    megaface.identification(*people("cpu", *size), counts(size[1]), RANKS[name])
    return resident("VmHWM") - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=tuple(DISTRACTORS))
    parser.add_argument("--probes", type=int, default=10_000)
    parser.add_argument("--distractors", type=int, help="100,000 on CPU and 1,000,000 on a GPU by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--measure-memory", choices=tuple(RANKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    many = options.distractors or DISTRACTORS[options.device]
    size = options.probes, many
    if options.measure_memory:
        print(measure_memory(options.measure_memory, size))
        return 0
    if options.device == "cpu":
        torch.set_num_threads(2)
    rows = measure(options.device, options.repeats, size)
    table = Table(title=f"{options.probes:,} probes among {many:,} distractors, {DIM}-d, {options.device}")
    for heading in ("identification", "s", "bare products, s", "ratio", "GiB", "target", "", "rank 1"):
        table.add_column(heading)
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("ours", "bare", "ratio", "memory")]
        reached = "reached" if row["reached"] else "[red]MISSED[/red]"
        table.add_row(row["name"], *numbers, row["target"], reached, f"{row['measured'][f'rank1@{many}']:.4f}")
    Console(width=140).print(table)
    if options.json:
        about = dict(device=options.device, probes=options.probes, distractors=many, dim=DIM)
        with open(options.json, "w") as file:
            json.dump(about | circumstances(options.device, peers=False) | dict(rows=rows), file, indent=1)
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
