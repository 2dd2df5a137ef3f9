"""One thread embeds and searches for all requests. What waits meanwhile is its next batch."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isosphere.gallery import Gallery
from isosphere.sphere import directions

from .answers import busy
from .limits import Limits

DECODERS = 2  # images that are decoded at once: each takes some 10 bytes a pixel meanwhile


@dataclass
class Job:
    """What one request wants: k neighbors of an image, an embedding or a row, or with k = 0 the embedding alone."""

    pixels: Tensor | None = None  # as the model sees them, uint8 (3, S, S)
    embedding: Tensor | None = None  # (1, F), given or made of the pixels
    row: int = -1
    k: int = 0
    labels: tuple[str, ...] = ()
    rows: list[int] = field(default_factory=list)  # what was found, best first
    scores: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each part of the work, for all of its batch
    together: int = 0  # images that went through the model with this one
    came: float = field(default_factory=time.perf_counter)


class Worker:
    """The queue before the model. Its thread begins with the first job, and ends with `close`."""

    def __init__(self, gallery: Gallery, limits: Limits) -> None:
        self.gallery, self.limits, self.waiting = gallery, limits, 0
        self._jobs: list[tuple[Job, asyncio.Future[Job]]] = []
        self._task: asyncio.Task[None] | None = None
        self._model = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decoder")

    def close(self) -> None:
        """End the threads after what they do now."""
        self._model.shutdown()
        self._decoders.shutdown()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue, from decoding to the answer; refused if all are taken."""
        if self.waiting >= self.limits.queue:
            raise busy(f"{self.waiting} requests are waiting: come again")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def decoded(self, work: Callable[..., Any], *given: Any) -> Any:
        """What this gives, computed while the model works."""
        return await asyncio.get_running_loop().run_in_executor(self._decoders, work, *given)

    async def done(self, job: Job) -> Job:
        """The job, with what came of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job] = loop.create_future()
        self._jobs.append((job, future))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        """Work through all jobs, batch by batch."""
        while self._jobs:
            batch, self._jobs = self._jobs[: self.limits.batch], self._jobs[self.limits.batch :]
            batch = [(job, future) for job, future in batch if not future.cancelled()]
            try:
                jobs = [job for job, _ in batch]
                await asyncio.get_running_loop().run_in_executor(self._model, self.work, jobs)
                failure = None
            except Exception as error:  # each of its requests answers with it
                failure = error
            for job, future in batch:
                if not future.done():
                    future.set_result(job) if failure is None else future.set_exception(failure)

    @torch.no_grad()
    def work(self, jobs: Sequence[Job]) -> None:
        """Embed images and search, for all of these jobs at once."""
        begin = time.perf_counter()
        if images := [job for job in jobs if job.pixels is not None]:
            pixels = torch.stack([job.pixels for job in images if job.pixels is not None])
            found = self.gallery.model.embed_seen(pixels).cpu()
            for job, embedding in zip(images, found.split(1), strict=True):
                job.embedding, job.together = embedding, len(images)
        middle = time.perf_counter()
        groups: dict[tuple[str, ...], list[Job]] = {}
        for job in jobs:
            if job.k:
                groups.setdefault(job.labels, []).append(job)
        for labels, group in groups.items():
            self._search(labels, group)
        end = time.perf_counter()
        for job in jobs:
            job.seconds |= {"queue": begin - job.came, "model": middle - begin, "search": end - middle}

    def _search(self, labels: tuple[str, ...], jobs: Sequence[Job]) -> None:
        """Neighbors for jobs with the same filter; each takes as many as it wants."""
        queries = torch.cat([self._query(job) for job in jobs])
        queries = queries if self.gallery.manifest.model is None else queries.to(self.gallery.model.device)
        found = self.gallery.nearest(queries, max(job.k for job in jobs) + 1, labels or None)
        for job, scores, rows in zip(jobs, found.scores.tolist(), found.indices.tolist(), strict=True):
            others = [place for place, row in enumerate(rows) if row != job.row][: job.k]  # a row is not its neighbor
            job.scores, job.rows = [scores[place] for place in others], [rows[place] for place in others]

    def _query(self, job: Job) -> Tensor:
        """The direction (1, D) in the gallery that a job searches with."""
        if job.embedding is not None:
            return self.gallery.queries(job.embedding)
        return directions(self.gallery.vectors[job.row : job.row + 1].float()).cpu()
