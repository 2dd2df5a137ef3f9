"""Where a run's numbers go besides its folder: to loggers, each called as `logger(step, {"train/loss": 0.5})`.

One that has a method `warning(step, name, words)` gets the warnings, too.
"""

from collections.abc import Callable
from pathlib import Path

Logger = Callable[[int, dict[str, float]], object]


class TensorBoard:
    """Event files in a folder; those of steps after `resumed_at` are taken back, since they come again."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder, purge_step=resumed_at)

    def __call__(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def warning(self, step: int, name: str, words: str) -> None:
        """A warning as text."""
        self.writer.add_text(f"warning/{name}", words, step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()
