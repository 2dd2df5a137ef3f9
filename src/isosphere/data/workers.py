"""Worker processes that decode images."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from isosphere.errors import Option, WorkerDied


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_workers(dataset: Dataset, places: Sequence[int], workers: int | None, title: str) -> Iterator[Any]:
    """`dataset[place]` for each place in order, behind a progress bar. By default each core has a process.

    It draws nothing from the global random stream. A data set should return an error. A worker would raise it as
    another one.
    """
    from rich.progress import track

    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=places,
        num_workers=max(0, min(cores() if workers is None else workers, len(places) - 1)),  # a single item needs none
        generator=torch.Generator(),  # else the loader would draw its base seed from the global stream
    )
    yield from track(received(loader), title, len(places), transient=True)


def received(loader: DataLoader) -> Iterator[Any]:
    """What a loader gives, in order. A worker that was killed is `WorkerDied`, and comes where an item is awaited.

    torch's own handler would raise at any moment, in the middle of a training step too.
    """
    number = getattr(signal, "SIGCHLD", None)  # Windows has none
    handler = signal.getsignal(number) if number else None
    items = iter(loader)
    if number and handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except Exception as error:
            ended = [worker.exitcode for worker in getattr(items, "_workers", ()) if worker.exitcode]
            if not ended and not str(error).startswith("DataLoader worker"):
                raise
            cause = f"was killed by {signal.Signals(-ended[0]).name}" if ended and ended[0] < 0 else "has ended"
            raise WorkerDied(cause, Option("loop.workers", loader.num_workers // 2)) from error
        yield item
