"""A training step of retrieval on a GPU: ours, the same step on one fixed batch, and a plain DataLoader pipeline.

    python benchmarks/step.py [--backbone resnet50_v1 bn_inception] [--json out.json]

All three train the same network (frozen batch norm, bfloat16, batch 120, 227 px, multi-similarity + SEC, Adam) on the
same files in one run, the first two in turn. Ours is the loop's own step, with sampling and crops. The fixed batch,
captured in the same CUDA graph, is the ceiling: what the step would cost if data were free. The pipeline is what one
would write with torchvision and a DataLoader, a worker a core, not compiled. The exit code is 1 if a target is missed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
import torchvision
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from isosphere.losses.norms import SEC
from isosphere.losses.pairs import MultiSimilarityLoss
from isosphere.models.backbones import build_backbone
from isosphere.models.embedder import build_embedder
from isosphere.paper import find
from isosphere.samplers import ClassBatches
from isosphere.train.loop import Run, prepare, train_step, training_feed

TARGETS = {"resnet50_v1": 20.0, "bn_inception": 15.0}  # milliseconds, crops and sampling included
SHARE = 0.85  # of the ceiling's speed
CLASSES, IMAGES, BATCH, PER_CLASS = 200, 20, 120, 5


def photographs(folder: Path) -> None:
    """Class folders of smooth random JPEGs, 341 x 256: about as large as a photograph of that size."""
    generator = torch.Generator().manual_seed(0)
    for number in range(CLASSES):
        place = folder / f"{number + 1:03d}.class"
        place.mkdir(parents=True)
        coarse = torch.rand(IMAGES, 3, 32, 43, generator=generator)
        pixels = torch.nn.functional.interpolate(coarse, (256, 341), mode="bicubic").clamp(0, 1).mul(255).byte()
        for index, image in enumerate(pixels):
            torchvision.io.write_jpeg(image, str(place / f"{index}.jpg"), quality=90)


def our_run(backbone: str, folder: Path, weights: Path) -> Run:
    """The loop's own run of a recipe on these files."""
    changes = {
        "data.root": str(folder / "images"), "data.cache": str(folder / "cache"), "data.allow_missing": "true",
        "model.backbone": backbone, "model.weights": str(weights), "loop.compile": "true", "loop.steps": "1000000",
    }  # fmt: skip
    return prepare(find("cub200-ms-sec", changes), torch.device("cuda"))


def our_steps(run: Run) -> Iterator[None]:
    """Sampling, crops and the captured step, as the loop has them."""
    for batch in training_feed(run):
        train_step(run, batch.images, batch.labels)
        run.step += 1
        yield


def fixed_steps(run: Run) -> Iterator[None]:
    """The captured step alone, over and over on one batch that is there already."""
    batch = next(training_feed(run))
    images, labels = batch.images.cuda(), batch.labels.cuda()
    while True:
        run.captured(run, images, labels, 0.0)
        yield


def pipeline_steps(backbone: str, folder: Path, weights: Path, workers: int) -> Iterator[None]:
    """Decoding in workers, torchvision's crops, an eager step in bfloat16."""
    crop = v2.RandomResizedCrop(227, scale=(0.16, 1.0), antialias=True)
    view = v2.Compose([v2.ToImage(), v2.Resize(256, antialias=True), crop, v2.RandomHorizontalFlip()])
    images = torchvision.datasets.ImageFolder(folder / "images", view)
    batches = ClassBatches(torch.tensor(images.targets), BATCH, PER_CLASS, seed=0)
    order = (batches.indices(step).tolist() for step in range(1_000_000))
    loader = DataLoader(images, batch_sampler=_Listed(order), num_workers=workers, pin_memory=True)
    model = build_embedder(backbone, "bn_fc", 512, str(weights), freeze_bn=True).cuda()
    model.to(memory_format=torch.channels_last)
    criterion, sec = MultiSimilarityLoss(), SEC(0.5)
    optimizer = torch.optim.Adam(model.parameters(), 5e-5, weight_decay=2.5e-3, fused=True)
    for pixels, labels in loader:
        with torch.autocast("cuda", torch.bfloat16):
            embeddings = model(pixels.cuda(non_blocking=True))
        loss = criterion(embeddings, labels.cuda(non_blocking=True)) + sec(embeddings)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield


class _Listed:
    """An iterator of index lists as a batch sampler."""

    def __init__(self, batches: Iterator[list[int]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches


def milliseconds(steps: Iterator[None], count: int) -> float:
    """Mean duration of so many steps, with the device idle before and after."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in islice(steps, count):
        pass
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begin) / count


def race(backbone: str, folder: Path, rounds: int, say: Callable[[str], None]) -> dict:
    """All contestants in turn; a row of medians."""
    weights = folder / f"{backbone}.safetensors"
    save_file(build_backbone(backbone)[0].state_dict(), weights)
    run, workers = our_run(backbone, folder, weights), os.cpu_count() or 1
    contestants = {"ours": our_steps(run), "ceiling": fixed_steps(run)}
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    milliseconds(contestants["ours"], 20)
    first = time.perf_counter() - begin
    say(f"{backbone}: compiled, captured and 20 steps in {first:.1f} s")
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, steps in contestants.items():
            times[name].append(milliseconds(steps, 200))
    memory = torch.cuda.max_memory_allocated() / 2**30
    pipeline = pipeline_steps(backbone, folder, weights, workers)
    milliseconds(pipeline, 3 * workers)  # what its workers had ready before; it comes last, since they never rest
    times["pipeline"] = [milliseconds(pipeline, 40) for _ in range(rounds)]
    row = {name: statistics.median(found) for name, found in times.items()}
    share, limit = row["ceiling"] / row["ours"], TARGETS[backbone]
    return row | dict(
        backbone=backbone, share_of_ceiling=share, times_the_pipeline=row["pipeline"] / row["ours"], workers=workers,
        compile_seconds=first, target=f"< {limit:g} ms, >= {SHARE:.0%}", reached=row["ours"] < limit and share >= SHARE,
        images_per_second=1000 * BATCH / row["ours"], memory_gib=memory,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("needs a CUDA device")
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        photographs(folder / "images")
        rows = [race(backbone, folder, options.rounds, console.print) for backbone in options.backbone]
    table = Table(title=f"A training step, batch {BATCH}, 227 px, milliseconds, {torch.cuda.get_device_name()}")
    for heading in ("backbone", "ours", "ceiling", "share", "pipeline", "faster", "target", ""):
        table.add_column(heading)
    for row in rows:
        found = [f"{row['ours']:.2f}", f"{row['ceiling']:.2f}", f"{row['share_of_ceiling']:.1%}"]
        found += [f"{row['pipeline']:.1f}", f"{row['times_the_pipeline']:.1f} x", row["target"]]
        table.add_row(row["backbone"], *found, "reached" if row["reached"] else "[red]MISSED[/red]")
    console.print(table)
    if options.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        versions["torchvision"] = torchvision.__version__
        hardware = {"gpu": torch.cuda.get_device_name(), "cores": os.cpu_count()}
        Path(options.json).write_text(json.dumps(dict(versions=versions, hardware=hardware, rows=rows), indent=1))
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
