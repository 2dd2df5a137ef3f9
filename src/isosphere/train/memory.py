"""A GPU that runs out of memory: its step is undone, its memory freed, and the run saved."""

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from isosphere import distributed
from isosphere.errors import Diverged, NotSaved, Option, OutOfMemory
from isosphere.inference import half_precision
from isosphere.train.journal import Journal

if TYPE_CHECKING:
    from isosphere.train.step import Run


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a full GPU is behind an error. One that is met while a graph is captured comes as another error."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


class Undo:
    """Takes back a step that stopped before it changed a weight: buffers and random numbers, which come first.

    Weights and moments tell by their versions whether they were changed. A captured step takes itself back.
    """

    def __init__(self, run: "Run") -> None:
        modules = [part for part in (run.model, run.criterion, run.constraint, run.average) if part is not None]
        self.run, self.modules = run, modules
        self.kept: list[Tensor] = []
        self.keep()

    def keep(self) -> None:
        """Remember the state before a step."""
        self.buffers = [buffer for module in self.modules for buffer in module.buffers()]
        self.kept = [buffer.clone() for buffer in self.buffers]
        self.versions = self._versions()
        self.random = torch.get_rng_state()
        self.random_cuda = torch.cuda.get_rng_state(self.run.device) if self.run.device.type == "cuda" else None

    def put_back(self) -> bool:
        """Take the step back; False where a weight or a moment was changed already."""
        if self.versions != self._versions():
            return False
        with torch.no_grad():
            for buffer, before in zip(self.buffers, self.kept, strict=True):
                buffer.copy_(before)
        torch.set_rng_state(self.random)
        if self.random_cuda is not None:
            torch.cuda.set_rng_state(self.random_cuda, self.run.device)
        return True

    def _versions(self) -> list[int]:
        weights = [weight for module in self.modules for weight in module.parameters()]
        moments = [its for state in self.run.optimizer.state.values() for its in state.values()]
        return [its._version for its in (*weights, *moments) if isinstance(its, Tensor)]


@contextmanager
def enough_memory(run: "Run", journal: Journal, undo: Undo | None = None) -> Iterator[None]:
    """In here a full GPU ends the run as `OutOfMemory`, after it is saved; a step is taken back by its `undo`."""
    try:
        if undo is not None:
            undo.keep()
        yield
        return
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        peak = torch.cuda.max_memory_allocated() if run.device.type == "cuda" else 0
        held: BaseException | None = error
        while held is not None:  # its frames hold what the step computed
            traceback.clear_frames(held.__traceback__)
            held = held.__context__
    _end(run, journal, peak, whole=undo is None or undo.put_back())


def _end(run: "Run", journal: Journal, peak: int, whole: bool) -> NoReturn:
    from isosphere.train.saving import save

    run.optimizer.zero_grad(set_to_none=True)
    if run.captured is not None:
        run.captured.forget()
    gc.collect()
    if run.device.type == "cuda":
        torch.cuda.empty_cache()
    if whole and 0 < run.step != run.saved and distributed.world() == 1:
        with suppress(NotSaved, Diverged):
            save(run, journal, {})
    recipe = run.recipe
    remedies = [Option("batches.size", max(1, recipe.batches.size // 2))]
    remedies += [] if half_precision(recipe.loop, run.device) else [Option("loop.precision", "bfloat16")]
    counts = run.step, run.loop.steps, run.saved, recipe.batches.size
    raise OutOfMemory(*counts, recipe.data.size, peak, journal.folder, tuple(remedies))
