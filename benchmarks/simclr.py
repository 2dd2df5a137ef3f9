"""A training step of SimCLR: ours, the same on one fixed batch, torchvision v2 on the device, and lightly's example.

    python benchmarks/simclr.py                     a small network in float32 on CPU: only shows that it runs
    python benchmarks/simclr.py --device cuda       ResNet-50 with the CIFAR stem, batch 256 (512 views)

All train the same backbone on the same noise, as large as CIFAR-10, in turn, in one run. Ours is the loop's own step
of `simclr-cifar10-sec`, compiled, with sampling and views. The fixed batch, in the same CUDA graph, is the ceiling:
what the step would cost if views were free. torchvision's v2 works on images that are on the device, with NT-Xent of
ours and without SEC; given a batch it draws one crop, one flip and one jitter for all images, which is less than SimCLR
asks for, so it is also called image by image. lightly's example has its own transform, head and loss, images as
torchvision's CIFAR-10 gives them, two forward passes and 8 workers, in float32 as torch has it (convolutions in TF32);
then the same with bfloat16 and 16 workers.

Workers start anew at every turn and steps are timed after the first ones, so none is timed on batches that were made
during somebody else's turn. Images are counted once, not by views. The exit code is 1 if a target is missed, or was not
measured because a package is missing; on CPU there is none, and all is float32.
"""

import argparse
import contextlib
import itertools
import json
import os
import pickle
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from isosphere.data import cifar
from isosphere.losses.contrastive import NTXentLoss
from isosphere.models.backbones import build_backbone
from isosphere.models.cifar_resnet import CIFAR10
from isosphere.models.embedder import build_head
from isosphere.paper import find
from isosphere.train.loop import Run, prepare, train_step, training_feed

LIMIT, SHARE, HALVES, DEFAULT = 30.0, 0.85, 1.3, 3.0  # ms; of the ceiling's speed; times bfloat16 and float32 peers


class Size(NamedTuple):
    """What is measured on a device."""

    backbone: str
    batch: int
    images: int
    steps: int  # timed in a turn
    few: int  # the same, image by image
    workers: tuple[int, int]  # of lightly: by default, and with bfloat16


SIZES = {
    "cpu": Size("small_cnn", 8, 200, 4, 1, (2, 3)),
    "cuda": Size("resnet50_cifar", 256, 50_000, 96, 3, (8, 16)),
}


class Contestant(NamedTuple):
    """Where a turn's batches come from, what a step does with one, and the target as a ratio of speeds, if any."""

    batches: Callable[[], Iterable[Any]]
    step: Callable[[Any], object]
    warm: int  # steps before the timed ones
    steps: int
    target: float | None = None


# ---------------------------------------------------------------- ours


def write_cifar(root: Path, pixels: np.ndarray) -> None:
    """Noise (N, 32, 32, 3) as CIFAR-10's python files, a fifth of it as the test images."""
    source, count = cifar.SOURCES["cifar10"], len(pixels)
    cifar.COUNTS = {"train": count, "test": count // 5}
    folder, rows = root / source.folder, pixels.transpose(0, 3, 1, 2).reshape(count, -1)
    folder.mkdir()
    file, key = source.meta
    (folder / file).write_bytes(pickle.dumps({key: [str(label) for label in range(source.classes)]}))
    for number, name in enumerate((*source.files["train"], *source.files["test"])):
        part = rows[number % 5 :: 5]
        labels = (np.arange(len(part)) % source.classes).tolist()
        held = {"batch_label": name, "data": part, source.labels: labels}
        (folder / name).write_bytes(pickle.dumps(held, protocol=4))


def our_run(root: Path, size: Size, device: str) -> Run:
    """The loop's own run of the recipe on these files."""
    changes = {
        "data.root": str(root), "model.backbone": size.backbone, "batches.size": str(size.batch),
        "loop.compile": str(device == "cuda").lower(),
        "optimizer.lr": "0.001",  # nothing is to be learned from noise
    }  # fmt: skip
    return prepare(find("simclr-cifar10-sec", changes), torch.device(device))


def ours(run: Run, size: Size) -> dict[str, Contestant]:
    """The loop's step on its own feed, and on one batch of it that is on the device."""

    def step(batch: Any) -> None:
        train_step(run, batch.images, batch.labels)
        run.step += 1

    first = next(training_feed(run))
    fixed = [part.to(run.device) for part in (first.images, first.labels)]
    return {
        "ours": Contestant(lambda: training_feed(run), step, 10, size.steps),
        "the same, fixed batch": Contestant(
            lambda: itertools.repeat(fixed), lambda batch: train_step(run, *batch), 10, size.steps
        ),
    }


# ---------------------------------------------------------------- torchvision v2 on the device


def on_device(pixels: Tensor, size: Size) -> dict[str, Contestant]:
    """Views of uint8 images (N, 3, 32, 32) by v2, in bfloat16 on a GPU: a batch at once, compiled, image by image."""
    view = v2.Compose([
        v2.RandomResizedCrop(32, scale=(0.2, 1.0), antialias=True), v2.RandomHorizontalFlip(),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8), v2.RandomGrayscale(0.2),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(CIFAR10.mean, CIFAR10.std),
    ])  # fmt: skip
    device = pixels.device

    def batches(look: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        while True:
            images = pixels[torch.randint(len(pixels), (size.batch,), device=device)]
            yield torch.cat([look(images), look(images)])

    def contestant(look: Callable[[Tensor], Tensor], compiled: bool, warm: int, steps: int) -> Contestant:
        backbone, features, *_ = build_backbone(size.backbone)
        model = nn.Sequential(backbone, build_head("mlp", features, 128)).to(device)
        if device.type == "cuda":
            model.to(memory_format=torch.channels_last)
        network, criterion = model, NTXentLoss()
        if compiled:  # on CPU only traced: compiling would take longer than all the rest
            network = torch.compile(model, backend="inductor" if device.type == "cuda" else "eager")
        optimizer = torch.optim.SGD(model.parameters(), 0.001, 0.9, weight_decay=1e-4, fused=device.type == "cuda")
        labels = torch.arange(size.batch, device=device).repeat(2)

        def step(images: Tensor) -> None:
            with halves(device.type):
                embeddings = network(images)
            descend(criterion(embeddings, labels), optimizer)

        return Contestant(lambda: batches(look), step, warm, steps, HALVES)

    return {
        "v2, one draw a batch": contestant(view, False, 10, size.steps // 2),
        "v2, one draw a batch, compiled": contestant(view, True, 10, size.steps // 2),
        "v2, image by image": contestant(lambda images: torch.stack([*map(view, images)]), False, 1, size.few),
    }


# ---------------------------------------------------------------- lightly's example


class Pictures(Dataset):
    """As torchvision's CIFAR-10: an array (N, 32, 32, 3) in memory, an image of PIL for each item, and its label."""

    def __init__(self, pixels: np.ndarray, transform: Callable[[Image.Image], Any]) -> None:
        self.pixels, self.transform = pixels, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.pixels[index])), index % 10


def lightlys(pixels: np.ndarray, size: Size, device: str) -> dict[str, Contestant]:
    """lightly's SimCLR with our backbone: as its example has it, and with bfloat16 and more workers."""
    from lightly.loss import NTXentLoss as TheirLoss
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms import SimCLRTransform

    images = Pictures(pixels, SimCLRTransform(input_size=32, gaussian_blur=0.0))

    def contestant(workers: int, half: bool, target: float) -> Contestant:
        backbone, features, *_ = build_backbone(size.backbone)
        model = nn.Sequential(backbone, SimCLRProjectionHead(features, features, 128)).to(device)
        criterion, optimizer = TheirLoss(), torch.optim.SGD(model.parameters(), lr=0.001)
        loader = DataLoader(images, size.batch, shuffle=True, drop_last=True, num_workers=workers)

        def step(batch: Any) -> None:
            one, other = (views.to(device) for views in batch[0])
            with halves(device) if half else contextlib.nullcontext():
                loss = criterion(model(one), model(other))
            descend(loss, optimizer)

        return Contestant(lambda: loader, step, 2 * workers, size.steps // 2, target)

    (few, many), dtype = size.workers, "bfloat16" if device == "cuda" else "float32"
    return {
        f"lightly, float32, {few} workers": contestant(few, False, DEFAULT),
        f"lightly, {dtype}, {many} workers": contestant(many, True, HALVES),
    }


# ---------------------------------------------------------------- the race


def halves(device: str) -> torch.autocast:
    """bfloat16 on a GPU, float32 on CPU."""
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def turn(contestant: Contestant, device: str) -> float:
    """Mean milliseconds of the timed steps, with the device idle before and after."""
    wait, batches = torch.cuda.synchronize if device == "cuda" else lambda: None, iter(contestant.batches())
    for batch in itertools.islice(batches, contestant.warm):
        contestant.step(batch)
    wait()
    begin, done = time.perf_counter(), 0
    for batch in itertools.islice(batches, contestant.steps):
        contestant.step(batch)
        done += 1
    wait()
    assert done == contestant.steps, f"only {done} of {contestant.steps} batches"
    return 1000 * (time.perf_counter() - begin) / done


def race(device: str, rounds: int, say: Callable[[str], None]) -> tuple[list[dict], dict[str, str]]:
    """All contestants in turn; a row of medians for each, and which are missing and why."""
    size, missing = SIZES[device], {}
    pixels = np.random.default_rng(0).integers(0, 256, (size.images, 32, 32, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        write_cifar(Path(folder), pixels)
        run = our_run(Path(folder), size, device)
    resident = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(device)
    contestants = ours(run, size) | on_device(resident, size)
    try:
        contestants |= lightlys(pixels, size, device)
    except ImportError as error:
        missing["lightly"] = str(error)
        say(f"[red]lightly is missing ({error}): its two rows are not measured; pip install 'isosphere\\[bench]'[/red]")
    for name, contestant in contestants.items():
        begin = time.perf_counter()
        turn(contestant._replace(warm=1, steps=1), device)
        say(f"{name}: first steps in {time.perf_counter() - begin:.1f} s")
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            times[name].append(turn(contestant, device))
    rows, fastest = [], statistics.median(times["ours"])
    for name, found in times.items():
        ms, ratio = statistics.median(found), statistics.median(found) / fastest
        row = dict(name=name, ms=ms, spread_ms=[min(found), max(found)], images_per_second=1000 * size.batch / ms)
        rows.append(row | dict(ours_is_faster=ratio) | verdict(name, ms, ratio, contestants[name].target, device))
    if int(run.bad_step) >= 0:
        say(f"[red]our loss was not finite from step {int(run.bad_step)} on[/red]")
    return rows, missing


def verdict(name: str, ms: float, ratio: float, target: float | None, device: str) -> dict:
    """A row's target in words, and whether it was reached; on CPU there is none."""
    if device == "cpu":
        return dict(target="", reached=True)
    if target is not None:
        return dict(target=f">= {target:g} x", reached=ratio >= target)
    if name == "ours":
        return dict(target=f"< {LIMIT:g} ms", reached=ms < LIMIT)
    return dict(target=f">= {SHARE:.0%}", reached=ratio >= SHARE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=tuple(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device")
    warnings.simplefilter("ignore")  # of other packages about one another
    console, size = Console(width=140), SIZES[options.device]
    rows, missing = race(options.device, options.rounds, console.print)
    name = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    table = Table(title=f"A step of SimCLR, {size.backbone}, {size.batch} images, two views of each, {name}")
    for heading in ("", "ms", "min to max", "images/s", "ours is faster", "target", ""):
        table.add_column(heading)
    for row in rows:
        low, high = row["spread_ms"]
        found = [f"{row['ms']:.2f}", f"{low:.2f} to {high:.2f}", f"{row['images_per_second']:,.0f}"]
        verdict = "" if not row["target"] else "reached" if row["reached"] else "[red]MISSED[/red]"
        table.add_row(row["name"], *found, f"{row['ours_is_faster']:.2f} x", row["target"], verdict)
    console.print(table)
    if options.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        versions["torchvision"] = torchvision.__version__
        if "lightly" not in missing:
            versions["lightly"] = sys.modules["lightly"].__version__
        hardware = dict(device=options.device, name=name, cores=os.cpu_count(), threads=torch.get_num_threads())
        size = size._asdict() | dict(rounds=options.rounds)
        about = dict(versions=versions, hardware=hardware, size=size, rows=rows, missing=missing)
        Path(options.json).write_text(json.dumps(about, indent=1) + "\n")
    unmeasured = options.device == "cuda" and missing
    return 0 if all(row["reached"] for row in rows) and not unmeasured else 1


if __name__ == "__main__":
    sys.exit(main())
