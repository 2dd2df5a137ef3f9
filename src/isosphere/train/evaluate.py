"""Embeddings of a whole image set, shared out over the ranks, and the exam on them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from isosphere import distributed
from isosphere.data.feed import loader
from isosphere.data.images import ImageSet, cores
from isosphere.metrics.faces import mirror_averaged
from isosphere.monitor import recorded
from isosphere.recipes import schema
from isosphere.samplers import OrderedBatches
from isosphere.sphere import norms
from isosphere.train.exams import Exam


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
    world, own = distributed.world(), range(distributed.rank(), len(images), distributed.world())
    # Alone, a rank takes all: a subset would copy the pixels. One without any sees the first, to know a row's width.
    mine = images if world == 1 else images.subset(own or range(1))
    batches = OrderedBatches(len(mine), batch)
    training = model.training
    model.eval()
    rows = []
    for part in loader(mine, batches, view, range(batches.per_epoch), workers, pin_memory=device.type == "cuda"):
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            rows.append(forward(part.images.to(device, non_blocking=True)).float())
        tick(len(part.images))
    model.train(training)
    return distributed.gather_rows(torch.cat(rows)[: len(own)], len(images))


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
    found = exam.measure(looks, final, seed) | {name: float(value) for name, value in statistics.items()}
    return recorded(found), embeddings


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
    return min(loop.workers, cores())
