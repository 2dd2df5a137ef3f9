"""Batches of pixels, step by step, decoded and augmented by worker processes or gathered from memory.

One item is one whole step, and a pure function of (seed, step). Neither the number of workers nor a restart changes a
pixel. Ranks together give the pixels of one process.
"""

import signal
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from isosphere.errors import InputError
from isosphere.samplers import ClassBatches, OrderedBatches, ShuffledBatches

from .images import Images, read_batch
from .transforms import View, uniforms
from .workers import received


class Batch(NamedTuple):
    """Images uint8 (B, C, S, S), labels long (B,), and indices in the set, long (B,)."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class Steps(Dataset):
    """`steps[step]` is that step's batch, or the InputError that stopped it. A view of None changes nothing."""

    def __init__(
        self,
        image_set: Images,
        batches: ClassBatches | ShuffledBatches | OrderedBatches,
        view: View | None,
        seed: int,
    ) -> None:
        self.image_set, self.batches, self.view, self.seed = image_set, batches, view, seed

    def __getitem__(self, step: int) -> Batch | InputError:
        indices = self.batches.indices(step)
        labels, device = self.image_set.labels[indices], self.image_set.device
        positions = torch.arange(len(indices), device=device) + self.batches.first
        numbers = uniforms(self.seed, step, positions, self.view.draws if self.view else 0)
        if device is not None:
            # Sets do not wait for their copies to a GPU, so the host runs ahead while it is still at the step before.
            return Batch(self.image_set.batch(indices, self.view, numbers), labels, indices)
        try:
            # A dataset of the user's own has a way by itself, since its transforms may be random.
            read = getattr(self.image_set, "read", partial(read_batch, self.image_set))
            return Batch(read(indices, self.view, numbers), labels, indices)
        except InputError as error:  # returned, because a worker would raise it as another error
            return error


def loader(
    image_set: Images,
    batches: ClassBatches | ShuffledBatches | OrderedBatches,
    view: View | None,
    steps: range,
    workers: int = 0,
    seed: int = 0,
    pin_memory: bool = False,
) -> Iterator[Batch]:
    """The batches of these steps in order, from workers two steps ahead. Unmapped pixels in memory need no workers."""
    if not image_set.on_disk:
        workers, pin_memory = 0, False
    source = DataLoader(
        Steps(image_set, batches, view, seed),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=pin_memory,
        worker_init_fn=_leave_interrupts,
        generator=torch.Generator(),  # else every loader would draw its base seed from the global stream
    )
    for batch in received(source):
        if isinstance(batch, InputError):
            raise batch
        yield batch


def _leave_interrupts(worker: int) -> None:
    """Ctrl-C and a terminal's end are for the main process, which finishes its step and saves."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
