"""Embeddings of a whole image set, shared out over the ranks, and the metrics on them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor, nn

from isosphere.data.feed import loader
from isosphere.data.images import ImageSet
from isosphere.data.samplers import OrderedBatches
from isosphere.metrics import clustering_metrics, retrieval_metrics
from isosphere.recipes import options, schema
from isosphere.sphere import norms
from isosphere.train import build, distributed, state


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
) -> Tensor:
    """Raw embeddings of all images, float32 (N, D) on the device, in order; `tick` hears of each batch."""
    mine = images.subset(range(distributed.rank(), len(images), distributed.world()))
    batches = OrderedBatches(len(mine), batch)
    training = model.training
    model.eval()
    rows = []
    for part in loader(mine, batches, view, range(batches.per_epoch), workers, pin_memory=device.type == "cuda"):
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            rows.append(model(part.images.to(device, non_blocking=True)).float())
        tick(len(part.images))
    model.train(training)
    return distributed.gather_rows(torch.cat(rows), len(images))


def measure(
    embeddings: Tensor,
    labels: Tensor,
    clustering: bool = True,
    seed: int = 0,
    recalls: tuple[int, ...] = (1, 2, 4, 8),
    is_query: Tensor | None = None,
) -> dict[str, float]:
    """Recall@K, MAP@R, R-precision, with `clustering` NMI and F1, as fractions, and the norms' statistics."""
    if is_query is None:
        found = retrieval_metrics(embeddings, labels, recalls)
    else:
        asks, others = is_query.to(embeddings.device), ~is_query.to(embeddings.device)
        gallery = embeddings[others], labels[~is_query]
        found = retrieval_metrics(embeddings[asks], labels[is_query], recalls, *gallery)
    if clustering:
        found |= clustering_metrics(embeddings, labels, seed)
    return found | {name: float(value) for name, value in norm_statistics(norms(embeddings)).items()}


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


# ---------------------------------------------------------------- trained runs


@dataclass(frozen=True)
class Trained:
    """A model read back from its run folder, with what it needs to see images."""

    recipe: schema.Recipe
    model: nn.Module
    device: torch.device


def load_run(folder: Path, device: str = "auto") -> Trained:
    """The trained model of a run folder."""
    saved = state.load(folder / state.CHECKPOINT)
    recipe = options.from_dict(schema.Recipe, saved["recipe"])
    # The checkpoint holds all weights, so the pretrained file may be gone.
    model = build.build_model(replace(recipe.model, weights=None))
    state.put(model, saved["model"])
    chosen = distributed.pick_device(device)
    return Trained(recipe, model.to(chosen).eval(), chosen)


def measure_run(trained: Trained, root: str | None = None) -> dict[str, float]:
    """The metrics of a trained run on its own test classes, or on all classes of a folder or CSV."""
    if root is None:
        views = build.build_data(trained.recipe.data, trained.device)
    else:
        images = build.open_images(root)
        if len(images.classes) < 2:
            raise ValueError(f"{root} holds one class only: there is nothing to retrieve among")
        views = build.Views(images, images, None, build.build_test_view(trained.recipe.data))
    embeddings = embed_shown(trained, views.test, views.test_view)
    return measure(embeddings, views.test.labels, True, trained.recipe.seed, views.recalls, views.is_query)


def embed_shown(trained: Trained, images: build.Images, view: build.View | None) -> Tensor:
    """Raw embeddings (N, D) of all images, behind a progress bar."""
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as progress:
        bar = progress.add_task("embedding", total=len(images))
        workers, dtype = trained.recipe.loop.workers, half_precision(trained.recipe.loop, trained.device)
        tick = partial(progress.advance, bar)
        return embed(trained.model, images, view, trained.device, workers, autocast=dtype, tick=tick)


def embed_files(trained: Trained, root: str, out: Path) -> list[Path]:
    """Embed a folder's or CSV's images to OUT.npy, OUT.labels.npy and OUT.paths.txt (path and class, a line each)."""
    images = build.open_images(root, flat=True)
    embeddings = embed_shown(trained, images, build.build_test_view(trained.recipe.data))
    return _write(out, images, embeddings)


def _write(out: Path, images: ImageSet, embeddings: Tensor) -> list[Path]:
    labels, paths = out.with_suffix(".labels.npy"), out.with_suffix(".paths.txt")
    np.save(out, embeddings.cpu().numpy())
    np.save(labels, images.labels.numpy())
    rows = zip(images.paths, images.labels.tolist(), strict=True)
    lines = [f"{path}\t{images.classes[label]}\n" for path, label in rows]
    paths.write_text("".join(lines), encoding="utf-8")
    return [out, labels, paths]
