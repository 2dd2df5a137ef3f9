"""Worker processes that decode images."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


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
    yield from track(loader, title, len(places), transient=True)
