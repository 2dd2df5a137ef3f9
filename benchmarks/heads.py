"""The training step of a head with a million identities next to its peers: time and peak memory, measured in one run.

    python benchmarks/heads.py [--device cuda] [--classes 1000000] [--batch 256] [--json out.json]

A step is forward, backward and SGD with momentum (fused on a GPU) of ArcFace + SEC on given embeddings; float32
weights; on a GPU products in bfloat16 and softmax in float32 for all. Each contestant is built, measured and freed in
turn, over several rounds; time is the median round, memory the highest peak of torch's allocator above what was there
before. Targets, on a GPU: at most 1.25 times weights + gradients + momentum, and no slower than any peer. The exit code
is 1 if one is missed. On CPU the products are float32, memory is not measured and nothing can be missed.

Peers: `F.linear` and cross-entropy; torch's own linear cross-entropy in chunks of a quarter of the batch, where the
version has it (left to itself it takes one row at a time at these sizes; it has no margin, which is work saved);
Partial FC at rate 1.0 on one rank, with its softmax in place.
"""

import argparse
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from isosphere.losses import classes
from isosphere.losses.margins import ArcFace, CosineClassifier
from isosphere.losses.norms import SEC

MARGIN, SCALE, MEMORY = 0.45, 64.0, 1.25


def halves(device: str) -> torch.autocast:
    """bfloat16 products on a GPU, float32 on CPU."""
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


def with_margin(cosines: Tensor, labels: Tensor) -> Tensor:
    """cos(angle + margin) for the true classes, in place, (N, C)."""
    rows = torch.arange(len(labels), device=labels.device)
    true = cosines[rows, labels]
    sines = (1 - true.square()).clamp(min=1e-12).sqrt()
    moved = true * math.cos(MARGIN) - sines * math.sin(MARGIN)
    return cosines.index_put_((rows, labels), moved)


def linear_and_cross_entropy(embeddings: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    with halves(embeddings.device.type):
        cosines = F.linear(F.normalize(embeddings), F.normalize(weights))
    return F.cross_entropy(SCALE * with_margin(cosines.float(), labels), labels)


def torch_chunked(embeddings: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    dtype = torch.bfloat16 if embeddings.is_cuda else torch.float32
    left, right = (SCALE * F.normalize(embeddings)).to(dtype), F.normalize(weights).to(dtype)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=max(1, len(labels) // 4), chunking_method=None)
    return F.linear_cross_entropy(left, right, labels, options=options)


class SoftmaxInPlace(torch.autograd.Function):
    """Cross-entropy whose probabilities overwrite the logits, and whose gradient overwrites the probabilities."""

    @staticmethod
    def forward(ctx, logits: Tensor, labels: Tensor) -> Tensor:
        logits.sub_(logits.amax(1, keepdim=True)).exp_()
        logits.div_(logits.sum(1, keepdim=True))
        ctx.save_for_backward(logits, labels)
        return -logits.gather(1, labels[:, None]).clamp(min=1e-30).log().mean()

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor, None]:
        shares, labels = ctx.saved_tensors
        shares.scatter_add_(1, labels[:, None], shares.new_full((len(labels), 1), -1.0))
        return shares.mul_(outer / len(labels)), None


def partial_fc(embeddings: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    with halves(embeddings.device.type):
        cosines = F.linear(F.normalize(embeddings), F.normalize(weights))
    logits = with_margin(cosines.float().clamp(-1, 1), labels) * SCALE
    return SoftmaxInPlace.apply(logits, labels)


def contestants() -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor] | None]:
    """Losses (embeddings, labels, weights) -> scalar; None is ours, which owns its weights."""
    peers = {"ours": None, "F.linear + cross-entropy": linear_and_cross_entropy, "Partial FC, rate 1.0": partial_fc}
    return peers | ({"torch, chunked": torch_chunked} if hasattr(F, "linear_cross_entropy") else {})


def build(name: str, options: argparse.Namespace) -> Callable[[], Tensor]:
    """The step of a contestant on the same weights and embeddings as the others."""
    device, loss = options.device, contestants()[name]
    generator = torch.Generator(device).manual_seed(0)
    embeddings = torch.randn(options.batch, options.dim, device=device, generator=generator).requires_grad_()
    labels = torch.randint(options.classes, (options.batch,), device=device, generator=generator)
    products = torch.bfloat16 if device == "cuda" else None
    with torch.device(device):
        head = CosineClassifier(options.dim, options.classes, ArcFace(MARGIN), SCALE, products)
    weights, sec = head.weights, SEC(0.5)
    weights.data.normal_(std=0.01, generator=generator)
    criterion = head if loss is None else partial(loss, weights=weights)
    optimizer = torch.optim.SGD([weights], lr=0.1, momentum=0.9, fused=device == "cuda")

    def step() -> Tensor:
        embeddings.grad = None
        optimizer.zero_grad()
        value = criterion(embeddings, labels)
        (value + sec(embeddings)).backward()
        optimizer.step()
        return value.detach()

    return step


def measure(name: str, options: argparse.Namespace) -> dict[str, float | None]:
    """First loss, milliseconds a step and bytes at the peak of one contestant; None where it does not fit."""
    gpu = options.device == "cuda"
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if gpu else 0
    try:
        step = build(name, options)
        first = step().item()
        for _ in range(options.warm):
            step()
        if gpu:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(options.steps):
            step()
        if gpu:
            torch.cuda.synchronize()
        taken = 1e3 * (time.perf_counter() - begin) / options.steps
    except torch.OutOfMemoryError:
        return {"loss": None, "ms": None, "bytes": None}
    return {"loss": first, "ms": taken, "bytes": torch.cuda.max_memory_allocated() - before if gpu else None}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="timed steps in a round")
    parser.add_argument("--warm", type=int, default=3, help="steps before them")
    parser.add_argument("--block", type=int, default=classes.BLOCK, help="our logits in memory at a time")
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args()
    classes.BLOCK, gpu = options.block, options.device == "cuda"
    state = 3 * 4 * options.classes * options.dim  # weights, gradients and momentum

    found: dict[str, list[dict[str, float | None]]] = {name: [] for name in contestants()}
    for _ in range(options.rounds):
        for name in found:
            found[name].append(measure(name, options))
    rows = {}
    for name, rounds in found.items():
        times, peaks = ([one[key] for one in rounds if one[key] is not None] for key in ("ms", "bytes"))
        rows[name] = {
            "ms": statistics.median(times) if times else None,
            "spread_ms": [min(times), max(times)] if times else None,
            "bytes": max(peaks) if peaks else None,
            "first_loss": rounds[0]["loss"],
        }
    ours = rows["ours"]
    assert ours["ms"] is not None, "ours does not fit into memory"
    for name in ("F.linear + cross-entropy", "Partial FC, rate 1.0"):
        if rows[name]["first_loss"] is not None and abs(rows[name]["first_loss"] / ours["first_loss"] - 1) > 0.01:
            raise AssertionError(f"{name} computes {rows[name]['first_loss']}, ours {ours['first_loss']}")

    console = Console()
    console.width = max(console.width, 110)
    sizes = f"{options.classes:,} classes, batch {options.batch}, dimension {options.dim}"
    title = f"forward + backward + SGD, {sizes}, {options.device}, torch {torch.__version__}"
    table = Table("head", "ms a step", "min to max", "ours is faster", "peak GiB", "of the state", title=title)
    missed = []
    for name, row in rows.items():
        if row["ms"] is None:
            table.add_row(name, "out of memory")
            continue
        ratio = row["ms"] / ours["ms"]
        memory = row["bytes"] / state if row["bytes"] is not None else None
        if gpu and ratio < 1:
            missed.append(f"slower than {name}")
        if name == "ours" and memory is not None and memory > MEMORY:
            missed.append(f"memory {memory:.3f} x the state, target {MEMORY}")
        shown = ["-", "-"] if memory is None else [f"{row['bytes'] / 2**30:.2f}", f"{memory:.3f} x"]
        low, high = row["spread_ms"]
        table.add_row(name, f"{row['ms']:.2f}", f"{low:.2f} to {high:.2f}", f"{ratio:.2f} x", *shown)
    console.print(table)
    console.print(f"[red]missed: {'; '.join(missed)}[/]" if missed else "all targets reached" if gpu else "no targets")
    if options.json:
        hardware = torch.cuda.get_device_name() if gpu else f"{os.cpu_count()} cores, {platform.machine()}"
        record = {
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "hardware": hardware,
            "options": {key: value for key, value in vars(options).items() if key != "json"},
            "state_bytes": state,
            "rows": rows,
            "missed": missed,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
