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
