"""Training that stopped."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .base import Option, RunError


@dataclass(eq=False)
class Diverged(RunError):
    """Training diverged; `remedies` are what the run could try and does not."""

    text: ClassVar[str] = "training diverged at step {step}: {reason} ({values}); try {remedies}"
    step: int
    reason: str
    values: dict[str, float]
    remedies: tuple[Option, ...]


@dataclass(eq=False)
class Halted(RunError):
    """Training could not go on; the checkpoint is of step `saved`, which is 0 where there is none."""

    step: int
    steps: int
    saved: int
    reason: Any  # an error
    folder: Any
    resume: Option = Option("resume")

    @property
    def text(self) -> str:
        """With what can be done about it."""
        kept = "saved" if self.saved == self.step else "the last checkpoint is of step {saved}"
        begin = "stopped at step {step} of {steps}, " + (kept if self.saved else "without a checkpoint")
        return begin + ": {reason}; mend it, then go on with {resume} {folder}"


@dataclass(eq=False)
class OutOfMemory(RunError):
    """A GPU too small for a batch of images of `size` pixels a side; `peak` is in bytes, `saved` as in `Halted`."""

    step: int
    steps: int
    saved: int
    batch: int
    size: int | str
    peak: int
    folder: Any
    remedies: tuple[Option, ...]
    resume: Option = Option("resume")

    @property
    def text(self) -> str:
        """With the way on, where there is a checkpoint."""
        on = "free the GPU and go on with {resume} {folder} from step {saved}, or " if self.saved else ""
        return (
            "the GPU is out of memory after step {step} of {steps}: {batch} images of {size} pixels a side took "
            f"{self.peak / 2**30:.1f} GiB; {on}begin anew with {{remedies}}"
        )


@dataclass(eq=False)
class Interrupted(RunError):
    """Training was asked to stop by a signal, and saved."""

    text: ClassVar[str] = "stopped and saved at step {step} of {steps}; to go on, resume {folder}"
    step: int
    steps: int
    folder: Any
    signal: int

    @property
    def code(self) -> int:
        """What a shell returns after this signal."""
        return 128 + self.signal


@dataclass(eq=False)
class Stopped(RunError):
    """One of many runs was asked to stop by a signal, or not to begin. What is finished or saved is kept."""

    text: ClassVar[str] = "stopped at {folder}: finished and saved work is kept; run the same command to go on"
    folder: Any
    signal: int

    @property
    def code(self) -> int:
        """What a shell returns after this signal."""
        return 128 + self.signal
