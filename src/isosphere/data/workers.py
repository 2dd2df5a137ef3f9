"""Worker processes that decode images."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_start_method
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from isosphere.errors import Option, WorkerDied


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_workers(dataset: Dataset, places: Sequence[int], workers: int | None, title: str) -> Iterator[Any]:
    """`dataset[place]` for each place in order, behind a progress bar. By default each core has a worker.

    It draws nothing from the global random stream. A data set should return an error. A worker would raise it as
    another one. Where processes are not forked they would need a script with a guarded `__main__`, so there workers
    are threads.
    """
    from rich.progress import track

    count = max(0, min(cores() if workers is None else workers, len(places) - 1))  # a single item needs none
    if count and (get_start_method(allow_none=True) or get_all_start_methods()[0]) != "fork":
        found: Iterable[Any] = _in_threads(dataset, places, count)
    else:
        # Without a generator of its own the loader would draw its base seed from the global stream.
        stream = torch.Generator()
        found = received(DataLoader(dataset, None, sampler=places, num_workers=count, generator=stream))
    yield from track(found, title, len(places), transient=True)


def _in_threads(dataset: Dataset, places: Sequence[int], count: int) -> Iterator[Any]:
    """The same in threads, which are a few items ahead."""
    with ThreadPoolExecutor(count) as pool:
        ahead: deque[Future] = deque()
        for place in places:
            ahead.append(pool.submit(dataset.__getitem__, place))
            if len(ahead) > 2 * count:
                yield ahead.popleft().result()
        yield from (item.result() for item in ahead)


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
