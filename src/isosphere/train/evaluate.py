"""Embeddings of a whole image set, shared out over the ranks, and the exam on them; trained runs read back."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor, nn

from isosphere.data.feed import loader
from isosphere.data.images import ImageSet, decode, readable_images
from isosphere.data.samplers import OrderedBatches
from isosphere.metrics.faces import mirror_averaged
from isosphere.recipes import options, schema
from isosphere.sphere import norms
from isosphere.train import build, distributed, state
from isosphere.train.exams import Exam, Frozen, Images, Retrieval, View
from isosphere.train.frames import Source, framed, parse_place, square
from isosphere.train.journal import ANY_NAME
from isosphere.train.overlap import kind_of, tested
from isosphere.train.views import build_exam, build_test_view, open_images


@torch.no_grad()
def embed(
    model: nn.Module,
    images: ImageSet,
    view: Callable[[Tensor, Tensor], Tensor] | None,
    device: torch.device,
    workers: int = 0,
    batch: int = 256,
    autocast: torch.dtype | None = None,
    tick: Callable[[int], None] = lambda done: None,
    how: str = "embeddings",
) -> Tensor:
    """Raw embeddings of all images, float32 (N, D) on the device, in order; `tick` hears of each batch.

    `how` may also be "mirrored", averaged over an image and its mirror image, "features", the backbone's, or "both",
    features and beside them embeddings.
    """
    named = {"embeddings": model, "mirrored": partial(mirror_averaged, model)}
    forward = named[how] if how in named else getattr(model, how)
    world = distributed.world()  # alone, a rank takes all: a subset would copy the pixels
    mine = images if world == 1 else images.subset(range(distributed.rank(), len(images), world))
    batches = OrderedBatches(len(mine), batch)
    training = model.training
    model.eval()
    rows = []
    for part in loader(mine, batches, view, range(batches.per_epoch), workers, pin_memory=device.type == "cuda"):
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            rows.append(forward(part.images.to(device, non_blocking=True)).float())
        tick(len(part.images))
    model.train(training)
    return distributed.gather_rows(torch.cat(rows), len(images))


def take(
    exam: Exam, embedder: Callable[..., Tensor], final: bool, seed: int
) -> tuple[dict[str, float], Tensor]:
    """The exam's metrics on the first rank, as fractions, with the norms' statistics; and the embeddings, on all."""
    looks = exam.look(embedder, final)
    embeddings = looks["embeddings"]
    lengths = norms(embeddings)
    if distributed.rank() or not all(bool(norms(its).isfinite().all()) for its in looks.values()):
        return {}, embeddings
    statistics = norm_statistics(lengths)
    return exam.measure(looks, final, seed) | {name: float(value) for name, value in statistics.items()}, embeddings


def norm_statistics(lengths: Tensor) -> dict[str, Tensor]:
    """Mean, variance, coefficient of variation, minimum and maximum of norms (N,), as 0-d tensors."""
    variance, mean = torch.var_mean(lengths, correction=0)
    return {
        "norm_mean": mean,
        "norm_variance": variance,
        "norm_cv": variance.sqrt() / mean,
        "norm_min": lengths.min(),
        "norm_max": lengths.max(),
    }


def half_precision(loop: schema.Loop, device: torch.device) -> torch.dtype | None:
    """bfloat16 where the recipe asks for it and the device has it, else None."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if loop.precision == "bfloat16" or (loop.precision == "auto" and able) else None


def workers(loop: schema.Loop) -> int:
    """Processes that decode images, as many as the recipe asks for, but no more than there are cores for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(loop.workers, cores)


# ---------------------------------------------------------------- trained runs


@dataclass(frozen=True)
class Trained:
    """A model read back from its run folder, with what it needs to see images, and the classes it was trained on."""

    recipe: schema.Recipe
    model: nn.Module
    device: torch.device
    classes: list[str]
    images: int | None  # how many it was trained on; an older checkpoint does not tell


def load_run(folder: Path, device: str = "auto") -> Trained:
    """The trained model of a run folder; paths in its recipe are seen from a folder above it, else from here."""
    saved = state.load(folder / state.CHECKPOINT)
    recipe = options.from_dict(schema.Recipe, saved["recipe"])
    recipe = replace(recipe, data=_found_again(recipe.data, folder))
    # The checkpoint holds all weights, so the pretrained file may be gone.
    model = build.build_model(replace(recipe.model, weights=None), recipe.data.size)
    state.put(model, saved["model"])
    chosen = distributed.pick_device(device)
    return Trained(recipe, model.to(chosen).eval(), chosen, saved["classes"], saved.get("images"))


def _found_again(data: schema.Data, folder: Path) -> schema.Data:
    """The data with relative paths as seen from the nearest folder above the run that has them: there it was trained.

    The folder that we are in comes last, as it may hold other images under the same name.
    """

    def found(place: str, field: str) -> str:
        path, _ = parse_place(place, field)
        bases = folder.resolve().parents if path else ()
        return next((f"{base / path}{place[len(path) :]}" for base in bases if (base / path).exists()), place)

    places = {name: getattr(data, name) for name in state.PLACES if hasattr(data, name)}
    one = {name: found(place, name) for name, place in places.items() if isinstance(place, str)}
    many = {name: tuple(found(place, name) for place in its) for name, its in places.items() if name not in one}
    return replace(data, **one, **many)


def measure_run(trained: Trained, root: str | None = None) -> dict[str, Any]:
    """A trained run in its own exam, or in retrieval among all classes of a folder or CSV.

    Returns the metrics as `last`, and as `tested` what the images are to the run.
    """
    embedder = partial(embed_shown, trained)
    if root is None:
        exam = _own_exam(trained)
        told = tested(exam, trained.classes, trained.images, kind_of(trained.recipe.data))
    else:
        images, view, how = _other_images(trained, root, classes=2)
        exam, embedder = Retrieval(images, view), partial(embedder, how=how)
        told = f"all {len(images.classes)} classes of {root}"
        shared = len(set(images.classes).intersection(trained.classes))
        told += f"; {shared} have the name of one trained on" if shared else ""
    return {"last": take(exam, embedder, True, trained.recipe.seed)[0], "tested": told}


def probe_run(trained: Trained, lrs: tuple[float, ...]) -> dict[float, dict[str, float]]:
    """The linear probe of a run's frozen features at several learning rates, trained at once."""
    exam = _own_exam(trained)
    if not isinstance(exam, Frozen):
        raise ValueError("--probe needs a run without labels on images that have some, which this is not")
    return exam.probe(exam.look(partial(embed_shown, trained), True), trained.recipe.seed, lrs)


def _own_exam(trained: Trained) -> Exam:
    """The exam of a run's own data, wherever they are now."""
    data = trained.recipe.data
    try:
        return build_exam(data, trained.device)
    except FileNotFoundError as error:
        field = "pairs_root" if isinstance(data, schema.Faces) else "root"
        told = f"{error} (seen from {Path.cwd()} and from above the run)"
        raise FileNotFoundError(f"{told}; say where it is now with --data.{field}") from error


def embed_shown(trained: Trained, images: Images, view: View | None, how: str = "embeddings") -> Tensor:
    """Raw embeddings (N, D) of all images, behind a progress bar."""
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as progress:
        bar = progress.add_task("embedding", total=len(images))
        loop, tick = trained.recipe.loop, partial(progress.advance, bar)
        dtype = half_precision(loop, trained.device)
        return embed(trained.model, images, view, trained.device, workers(loop), autocast=dtype, tick=tick, how=how)


def embed_files(trained: Trained, root: str, out: Path) -> list[Path]:
    """Embed a folder's or CSV's images to OUT.npy, OUT.labels.npy and OUT.paths.txt (path and class, a line each)."""
    images, view, how = _other_images(trained, root)
    return _write(out, images, embed_shown(trained, images, view, how))


def _other_images(trained: Trained, root: str, classes: int = 1) -> tuple[ImageSet, View | None, str]:
    """Images of at least so many classes, with the view and the `how` by which the run's own are embedded.

    Faces are framed as those trained on, by landmarks or as a central square, whose share may be told: `folder:0.52`.
    """
    data, share = trained.recipe.data, None
    if isinstance(data, schema.Faces):
        root, share = parse_place(root, "root")
    images = open_images(root, flat=classes == 1)
    if len(images.classes) < classes:
        raise ValueError(f"{root} holds one class only: there is nothing to retrieve among")
    if not isinstance(data, schema.Faces):
        if getattr(data, "skip_unreadable", False):
            images = readable_images(images, skip_unreadable=True)
        return images, build_test_view(data), "embeddings"
    source = Source(images, Path(root), share or square(data.fraction), people=classes)
    return framed(source, data.align, trained.device, data.skip_unreadable), None, "mirrored"


@torch.no_grad()
def feature_maps(runs: list[Path], files: list[Path]) -> dict[str, list[np.ndarray]]:
    """What the last layer with places gives for these images, (K, C, H, W), and what it saw of them, for each run."""
    if not files:
        raise ValueError("feature maps need images to look at: --images a.jpg b.jpg")
    found, seen, pixels = [], [], [decode(file) for file in files]
    for trained in map(load_run, runs):
        backbone, view = trained.model.backbone, build_test_view(trained.recipe.data)
        maps = getattr(backbone, "maps", None) or getattr(backbone, "forward_features", None)  # the latter is timm's
        if maps is None:
            raise ValueError(f"{trained.recipe.model.backbone} does not show its last layer; ours and timm's do")
        images = torch.stack([view(image) for image in pixels]).to(trained.device)
        found.append(maps(trained.model.preprocessing(images)).float().cpu().numpy())
        seen.append(images.permute(0, 2, 3, 1).cpu().numpy())
    return {"maps": found, "images": seen}


def _write(out: Path, images: ImageSet, embeddings: Tensor) -> list[Path]:
    labels, paths = out.with_suffix(".labels.npy"), out.with_suffix(".paths.txt")
    np.save(out, embeddings.cpu().numpy())
    np.save(labels, images.labels.numpy())
    rows = zip(images.paths, images.labels.tolist(), strict=True)
    lines = [f"{path}\t{images.classes[label]}\n" for path, label in rows]
    paths.write_text("".join(lines), **ANY_NAME)
    return [out, labels, paths]
