"""Whole sets of images as embeddings: batch by batch, shared by the ranks, in half precision where the recipe asks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from isosphere import distributed, terminal
from isosphere.data.feed import loader
from isosphere.data.images import Images
from isosphere.data.readable import readable_images
from isosphere.data.transforms import View
from isosphere.data.workers import cores
from isosphere.errors import UnreadableImage
from isosphere.metrics.faces import averaged, mirror_averaged
from isosphere.models.embedder import Embedder
from isosphere.recipes import schema
from isosphere.samplers import OrderedBatches

Forward = Callable[[Tensor], Tensor]  # images (N, C, H, W) -> rows (N, D)


@torch.no_grad()
def embed(
    model: nn.Module,
    images: Images,
    view: View | None,
    device: torch.device,
    workers: int = 0,
    batch: int = 256,
    autocast: torch.dtype | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    forward: Forward | None = None,
) -> Tensor:
    """Raw embeddings of all images, float32 (N, D) on the device, in order; the ranks share the work.

    `forward` is another function of the model than itself, such as its features. `progress(done, total)` is called
    after each batch. The model is in evaluation mode meanwhile, and as it was afterwards, also after an error.
    """
    forward = model if forward is None else forward
    world, own = distributed.world(), range(distributed.rank(), len(images), distributed.world())
    # Alone, a rank takes all: a subset would copy the pixels. One without any sees the first, to know a row's width.
    mine = images if world == 1 else images.subset(own or range(1))
    batches = OrderedBatches(len(mine), batch)
    rows, done = [], 0
    with evaluating(model):
        for part in loader(mine, batches, view, range(batches.per_epoch), workers, pin_memory=device.type == "cuda"):
            with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
                rows.append(forward(part.images.to(device, non_blocking=True)).float())
            done += len(part.images)
            progress(done, len(mine))
    return distributed.gather_rows(torch.cat(rows)[: len(own)], len(images))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards every module is in the mode that it had."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode


@contextmanager
def progress_bar(title: str, total: int, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, called as `show(done, total)`; it goes when all is done."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(file=terminal.stderr())
    columns, hidden = (*Progress.get_default_columns(), MofNCompleteColumn()), not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@dataclass(frozen=True)
class ImageEmbedder:
    """A model with what it takes to embed whole sets of images, in one of four ways."""

    model: Embedder
    device: torch.device
    workers: int = 0
    autocast: torch.dtype | None = None
    shown: bool = False  # a progress bar
    lists_unreadable: bool = False  # all files that cannot be read are listed, not only the first
    flip: bool = False  # rows are averaged with those of the mirror images

    def __call__(self, images: Images, view: View | None, forward: Forward | None = None) -> Tensor:
        """Raw embeddings (N, D), or what `forward` gives, which is taken as it is."""
        forward = self._seen(self.model) if forward is None else forward
        try:
            with progress_bar("embedding", len(images), self.shown) as show:
                return embed(
                    self.model, images, view, self.device, self.workers,
                    autocast=self.autocast, progress=show, forward=forward,
                )  # fmt: skip
        except UnreadableImage:
            if self.lists_unreadable:
                readable_images(images)
            raise

    def mirrored(self, images: Images, view: View | None) -> Tensor:
        """Embeddings averaged over an image and its mirror image (N, D)."""
        return self(images, view, partial(mirror_averaged, self.model))

    def features(self, images: Images, view: View | None) -> Tensor:
        """What the backbone gives to the head (N, F)."""
        return self(images, view, self._seen(self.model.features))

    def both(self, images: Images, view: View | None) -> Tensor:
        """Features, then embeddings, by one pass (N, F + D)."""
        if not self.flip:
            return self(images, view, self.model.both)
        return self(images, view, self._both_averaged)

    def _both_averaged(self, images: Tensor) -> Tensor:
        one, other = (self.model.both(seen).float() for seen in (images, images.flip(-1)))
        width = one.shape[1] - self.model.dim
        return torch.cat([averaged(one[:, :width], other[:, :width]), averaged(one[:, width:], other[:, width:])], 1)

    def _seen(self, forward: Forward) -> Forward:
        """A function of the model as this embedder sees images: with their mirror images if so."""
        return partial(mirror_averaged, forward) if self.flip else forward


def half_precision(loop: schema.Loop, device: torch.device) -> torch.dtype | None:
    """bfloat16 where the recipe asks for it and the device has it, else None."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if loop.precision == "bfloat16" or (loop.precision == "auto" and able) else None


def workers(loop: schema.Loop) -> int:
    """Processes that decode images, as many as the recipe asks for, but no more than there are cores for them."""
    return min(loop.workers, cores())
