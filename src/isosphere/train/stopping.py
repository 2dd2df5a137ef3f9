"""How a run ends before its time: divergence told in words, and signals that wait for the end of a step."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

from torch import Tensor


class NonFiniteLoss(RuntimeError):
    """Training diverged; the message tells the step, the norms and what to try."""


class Interrupted(RuntimeError):
    """Training was asked to stop, and saved; `signal` is the signal's number."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.signal = number


def stop_diverged(step: int, reason: str, found: dict[str, Tensor]) -> NoReturn:
    """Raise NonFiniteLoss with the step, the reason, the statistics and what to try."""
    told = "".join(f", {name} {float(value):.4g}" for name, value in found.items())
    raise NonFiniteLoss(
        f"training diverged at step {step}: {reason}{told}; the last checkpoint is untouched. "
        "Try a smaller learning rate (--optimiser.lr), gradient clipping (--loop.clip 1.0), or --loop.precision float32"
    )


@contextlib.contextmanager
def signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM while training; the second one acts at once."""
    caught: list[int] = []

    def remember(number: int, frame: object) -> None:
        if caught:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        caught.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield caught  # Python lets only the main thread handle signals
        return
    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
