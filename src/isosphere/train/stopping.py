"""How a run ends before its time: divergence, and signals that wait for the end of a step. Remedies for warnings."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from torch import Tensor

from isosphere.errors import Diverged, Option
from isosphere.inference import half_precision
from isosphere.metrics import registry
from isosphere.metrics.registry import NORM_MEAN
from isosphere.recipes import schema
from isosphere.recipes.constraints import strength

if TYPE_CHECKING:
    from isosphere.train.step import Run


def stop_diverged(run: "Run", step: int, reason: str, found: dict[str, Tensor]) -> NoReturn:
    """Raise Diverged with the values that show it, and with what the run could try and does not."""
    recipe, eta = run.recipe, run.constraint.eta_at((step - 1) / run.loop.steps)
    values = {name: float(found[name]) for name in ("loss", NORM_MEAN) if name in found}
    field = strength(recipe.constraint)  # 0 for a constraint of the user's own
    remedies = [_less(Option("constraint.eta", field))] if eta and field else []
    remedies += [_less(Option("optimizer.lr", recipe.optimizer.lr))]
    remedies += [Option("loop.clip", 1.0)] if recipe.loop.clip is None else []
    remedies += [Option("loop.precision", "float32")] if half_precision(recipe.loop, run.device) else []
    raise Diverged(step, reason, values | ({"eta": eta} if eta else {}), tuple(remedies))


def _less(option: Option) -> Option:
    """A tenth of the value, in few digits."""
    return option._replace(value=float(f"{option.value / 10:.3g}"))


def advice(run: "Run", step: int) -> dict[str, str]:
    """What this run can try against each warning about norms, in its fields; nothing while eta still rises.

    Norms alone do not say whether SEC helps, so no warning advises it.
    """
    eta, last = run.constraint.eta_at((step - 1) / run.loop.steps), run.constraint.eta_at(1.0)
    weaken = ["weaken weight decay (--optimizer.weight_decay)"] if run.recipe.optimizer.weight_decay else []
    weaken += ["weaken the constraint (--constraint.eta)"] if eta else []
    lower = "lower the learning rate (--optimizer.lr)"
    warm = [] if run.recipe.schedule.warmup else ["warm up (--schedule.warmup 0.1)"]
    found = {"exploding": _either([*warm, lower]), "collapsing": _either([*weaken, lower])}
    if eta == last:
        found["spreading"] = "only a comparison on held-out classes shows whether a constraint helps"
    return found


def worse(recipe: schema.Recipe, metric: str, after: Mapping[str, float], before: Mapping[str, float]) -> str:
    """That a run ends below its backbone's own features, and what it can try; nothing where it does not."""
    if metric not in after.keys() & before.keys() or after[metric] >= before[metric]:
        return ""
    name = registry.metric(metric)
    pca = recipe.model.head in ("bn_fc", "fc") and recipe.model.head_start != "pca"
    remedies = ["start the head as PCA (--model.head_start pca)"] * pca
    remedies += ["lower the learning rate (--optimizer.lr)"]
    remedies += [] if recipe.validation.held_out else ["keep the best checkpoint (--validation.held_out 0.2)"]
    said = f"{name.heading} {name.shown(after[metric])} is below the untrained backbone's {name.shown(before[metric])}"
    return f"{said}: {_either(remedies)}"


def _either(remedies: list[str]) -> str:
    """Some words of which one is to be chosen."""
    return ", ".join(remedies[:-1]) + ", or " * (len(remedies) > 1) + remedies[-1]


@contextlib.contextmanager
def signals() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP while training; the second one acts at once.

    A SIGHUP that is ignored, as under nohup, stays so.
    """
    caught: list[int] = []

    def remember(number: int, frame: object) -> None:
        if caught:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        caught.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield caught  # Python lets only the main thread handle signals
        return
    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        before[hangup] = signal.signal(hangup, remember)
    if hasattr(signal, "SIGCHLD"):  # torch's handler for loaders would raise in the middle of a step
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
