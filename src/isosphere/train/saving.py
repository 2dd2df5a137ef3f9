"""Saving a run, on schedule and before an error between two steps ends it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from torch import Tensor

from isosphere import distributed, runs, terminal
from isosphere.errors import Diverged, Halted, Interrupted, IsosphereError, NotSaved, OutOfMemory
from isosphere.train import state
from isosphere.train.journal import Journal
from isosphere.train.memory import enough_memory
from isosphere.train.stopping import stop_diverged

if TYPE_CHECKING:
    from isosphere.train.step import Run

AS_THEY_ARE = (Diverged, Interrupted, NotSaved, OutOfMemory)
"""Errors after which there is nothing to save, or no way to."""
EXPECTED = (IsosphereError, OSError, MemoryError)
"""Errors that are one line. Others are bugs, and keep their traceback."""


@contextmanager
def saved_first(run: "Run", journal: Journal) -> Iterator[None]:
    """Read, measure and write in here; where that fails, the run is saved at its last whole step.

    One rank of several cannot save, since the others wait for its next step.
    """
    try:
        with enough_memory(run, journal):
            yield
    except AS_THEY_ARE:
        raise
    except Exception as error:
        if run.step == 0:
            raise
        if run.saved != run.step and distributed.world() == 1:
            with suppress(*AS_THEY_ARE):  # the error that came first is told
                save(run, journal, {})
        if isinstance(error, EXPECTED):
            raise Halted(run.step, run.loop.steps, run.saved, error, journal.folder) from error
        if run.saved == run.step:
            terminal.say(f"isosphere: saved at step {run.step}; mend this error, then resume {journal.folder}")
        raise


def save(run: "Run", journal: Journal, found: dict[str, Tensor]) -> None:
    """Write the checkpoint. What is not finite is refused, with the values that were `found`."""
    stop_if_not_finite(run, found)
    # A finite loss can still have sent the weights to infinity; such weights must not replace good ones.
    everything = [*run.model.named_parameters(), *run.criterion.named_parameters()]
    broken = [name for name, value in everything if not bool(value.isfinite().all())]
    if distributed.agreed(bool(broken), run.device):  # the ranks hold different class weights
        stop_diverged(run, run.step, f"{(broken or ['a weight of another rank'])[0]} is not finite", found)
    saved = state.capture(run)  # by all ranks: each brings its class weights
    if journal.active:
        state.save(journal.folder / runs.CHECKPOINT, saved)
    run.saved = run.step


def stop_if_not_finite(run: "Run", found: dict[str, Tensor]) -> None:
    """Stop where a loss was not finite; this waits for a GPU."""
    step, row = int(run.bad_step), int(run.bad_row)
    if step < 0:
        return
    reason = "the loss is not finite"
    if row >= 0:
        reason += f", nor is row {row} of its embeddings"
        indices = run.batches.indices(step - 1)
        if distributed.world() == 1 and row < len(indices):  # with several ranks the row may be another's
            index, paths = int(indices[row]), run.task.images.paths
            reason += f", image {index}" + (f" ({paths[index]})" if paths else "")
    stop_diverged(run, step, reason, found)
