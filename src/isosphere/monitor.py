"""`NormMonitor`: what norms do to directions, seen in any PyTorch loop, in two lines, without waiting for the device.

    monitor = NormMonitor(optimiser, file="norms.jsonl")
    monitor(embeddings)  # the raw ones, between forward and backward pass

A step only keeps norms and two numbers of each gradient, on the device; every so many steps the figures of all of them
are computed at once and read in one transfer. One that could not be had is left out: the gradient's share where there
was no backward pass, the slope of a probe whose norms are all alike.
"""

import atexit
import json
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isosphere import sphere

Record = dict[str, Any]
FIGURES = (
    "norm_mean", "norm_variance", "norm_cv", "norm_min", "norm_max",
    "not_finite",  # how many embeddings have no finite norm; the other figures are of those that have
    "lr_proxy_mean", "lr_proxy_cv",  # alpha / |f|^power, the learning rate of a direction if embeddings moved freely
    "radial_share",  # of the squared gradient by the embeddings, over the batch; tangential_share is the rest
)  # fmt: skip

GROWTH = 10.0
"""Factor on the first steps' mean norm that counts as exploding or collapsing: directions then turn 10 times (Adam) or
100 times (SGD) slower or faster than the learning rate was chosen for. Our healthy runs stay within a factor of 5."""
WIDE = 0.3
"""Coefficient of variation from which norms spread: an embedding one deviation below the mean turns 1.9 times (Adam) or
3.4 times (SGD) as far as one above it. Our runs without a constraint lie at 0.2 to 0.45, those with SEC under 0.2."""
RADIAL = 0.01
"""Radial share from which a loss pulls at norms: a tenth of the gradient's length. An angular loss has none, by
Proposition 1; rounding to bfloat16 makes it 1e-6."""
UNIT = 1e-3
"""Distance from 1 within which norms are those of a normalised output, with room for bfloat16; training does not get
there by itself."""
CALM = 10
"""Reads without an alarm's cause after which its episode is over: a figure that hovers about its limit warns once."""
PADDING = -1.0  # in place of a norm, in the rows of batches smaller than others


@torch.no_grad()
def norm_record(embeddings: Tensor, gradients: Tensor | None = None) -> Tensor:
    """What figures are made of, (N, D), and perhaps the gradients (N, D) -> (3, N); pure: a CUDA graph may hold it."""
    lengths = sphere.norms(embeddings)
    if gradients is None:
        unseen = torch.full_like(lengths, torch.nan)
        return torch.stack([lengths, unseen, unseen])
    return torch.stack([lengths, *_pull(embeddings, gradients)])


def _pull(embeddings: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Products of embeddings and gradients, and the gradients' norms, (N, D) twice -> (N,) twice."""
    gradients = sphere.raised(gradients)
    return (embeddings * gradients).sum(-1), sphere.norms(gradients)


@torch.no_grad()
def norm_figures(records: Tensor, lr: Tensor | float = 1.0, power: int = 1) -> Tensor:
    """The FIGURES of R records, (R, 3, N) and their learning rates (R,) -> (R, 9), without reading a value.

    `power` is 2 for SGD with and without momentum (Propositions 3 and 4), 1 for Adam (Proposition 5).
    """
    lengths, along, sizes = records.unbind(1)  # (R, N) each
    finite, there = (lengths >= 0) & (lengths < torch.inf), lengths != PADDING
    mean, spread = _moments(lengths, finite)
    rate, rate_spread = _moments(lengths**-power, finite & (lengths > 0))  # a zero vector has no direction to turn
    low, high = (torch.where(finite, lengths, edge) for edge in (torch.inf, -torch.inf))
    radial = torch.where(lengths > 0, along / lengths, 0)
    share = radial.square().sum(1) / torch.where(there, sizes, 0).square().sum(1)
    lost = (there & ~finite).sum(1).to(mean.dtype)
    found = mean, spread.square(), spread / mean, low.amin(1), high.amax(1), lost, lr * rate, rate_spread / rate, share
    return torch.stack(found, 1)


def _moments(values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the values that count, (R, N) twice -> (R,) twice; NaN where none does."""
    count = counted.sum(1)
    mean = torch.where(counted, values, 0).sum(1) / count
    variance = torch.where(counted, values - mean.unsqueeze(1), 0).square().sum(1) / count
    return mean, variance.sqrt()


@torch.no_grad()
def turned(before: Tensor, after: Tensor) -> Tensor:
    """Angle in radians between two moments of each embedding, (N, D) twice -> (N,); NaN where one has no direction."""
    old, new = sphere.directions(before), sphere.directions(after)
    angles = 2 * torch.atan2(sphere.norms(old - new), sphere.norms(old + new))  # exact also where arccos is blind
    return torch.where((sphere.norms(before) > 0) & (sphere.norms(after) > 0), angles, torch.nan)


def turn_figures(lengths: Tensor, angles: Tensor) -> dict[str, float]:
    """Mean and variance of angles (N,), and the least-squares slope of log angle by log norm (N,) with its error."""
    lengths, angles = lengths.double().cpu(), angles.double().cpu()
    known = angles[angles.isfinite()]
    able = (angles > 0) & (lengths > 0) & lengths.isfinite()
    x, y = lengths[able].log(), angles[able].log()
    x, y = x - x.mean(), y - y.mean()
    slope = (x * y).sum() / x.square().sum()
    error = ((y - slope * x).square().sum() / (len(x) - 2) / x.square().sum()).sqrt() if len(x) > 2 else math.nan
    found = known.mean(), known.var(correction=0), slope, error
    names = ("turn_mean", "turn_variance", "turn_slope", "turn_slope_error")
    return {name: float(value) for name, value in zip(names, found, strict=True)}


class NormMonitor:
    """Norms, the gradient's radial share and the learning rate of directions, step by step, with alarms in words.

    optimiser    whose first group's learning rate is the alpha of the proxy. Real optimisers move weights, not
                 embeddings: a proxy. What directions do is measured by `probe`.
    file         JSON lines are appended here: {"step", "kind", figures}, kind "train", "test" (no gradient wanted),
                 "probe" or "alarm".
    tensorboard  a SummaryWriter; it gets the mean of each read, since a scalar costs it more than the monitor takes.
    callback     called with each record, a dict as in the file.
    every        steps between reads; a read waits for the device.
    power        the proxy is alpha / |f|^power: 2 where a step is proportional to the gradient, 1 where it is divided
                 by the gradient's size; known for SGD and Adam.
    constrained  whether the loss holds norms on purpose, as SEC does; then a radial gradient is no alarm.

    Alarms are warnings, records and `monitor.alarms`, each once an episode. Only the first rank of torch.distributed
    watches, its own embeddings: no communication, nothing to hang; give it gathered ones to watch all. With gradient
    accumulation each part is a row; `step` numbers them. Not to be called in a compiled or captured region: there,
    take `norm_record`, and outside give what it returned to `add`. Of several backward passes the last one counts.
    """

    def __init__(
        self,
        optimiser: torch.optim.Optimizer,
        *,
        file: str | Path | None = None,
        tensorboard: Any = None,
        callback: Callable[[Record], None] | None = None,
        every: int = 100,
        power: int | None = None,
        constrained: bool = False,
    ):
        if every < 1:
            raise ValueError(f"every is a number of steps of at least 1, not {every}")
        self.file = None if file is None else Path(file).absolute()  # where it is now: loops change folders
        if self.file is not None and not self.file.parent.is_dir():
            raise FileNotFoundError(f"no folder {self.file.parent} to write {self.file.name} into")
        self.optimiser, self.every, self.constrained = optimiser, every, constrained
        self.power = proxy_power(optimiser) if power is None else power
        self.step, self.alarms, self.callback = 0, [], callback
        self.summaries: list[Callable[[Record], None]] = [] if tensorboard is None else [_to_tensorboard(tensorboard)]
        self._ring = torch.empty(0, 3, 0)  # (every, 3, N): the records of `norm_record`, on the device
        self._rates = torch.empty(0)  # (every,): their learning rates
        self._waiting: list[tuple[int, str]] = []  # step and kind of its rows that nobody has read yet
        self._read = 0  # rows read before
        self._first_mean: float | None = None
        self._episodes: dict[str, int] = {}  # alarm -> reads since its cause was last seen
        self._probe: tuple[int, Tensor] | None = None
        atexit.register(self.close)  # the last rows, where nobody calls close

    def __call__(self, embeddings: Tensor, step: int | None = None) -> None:
        """Watch raw embeddings (N, D), and their gradient in the backward pass to come."""
        if not _first_rank() or not len(_checked(embeddings)):
            return
        if embeddings.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("NormMonitor cannot count replays: capture norm_record, and give it to monitor.add")
        lengths, learning = sphere.norms(embeddings.detach()), embeddings.requires_grad
        row = self._row(lengths, step, "train" if learning else "test")
        row[0] = lengths
        if learning:
            values, number = embeddings.detach(), self._read + len(self._waiting) - 1

            @torch.no_grad()
            def seen(gradients: Tensor) -> None:
                if number >= self._read:  # once it is read, its place belongs to another
                    row[1], row[2] = _pull(values, gradients)

            embeddings.register_hook(seen)

    def add(self, record: Tensor, step: int | None = None) -> None:
        """Keep what `norm_record` gave in a captured or compiled training step, (3, N), copied without waiting."""
        if _first_rank():
            self._row(record[0], step, "train").copy_(record)

    def _row(self, lengths: Tensor, step: int | None, kind: str) -> Tensor:
        """A place (3, N) for the record of the next step."""
        room = len(self._ring), self._ring.device, self._ring.dtype
        if room != (self.every, lengths.device, lengths.dtype) or self._ring.shape[2] < len(lengths):
            self.flush()
            with torch.inference_mode(False):  # or a monitor that starts with an evaluation could not go on training
                self._ring = lengths.new_full((self.every, 3, len(lengths)), torch.nan)
                self._rates = lengths.new_empty(self.every)
                self._ring[:, 0] = PADDING
        if len(self._waiting) == self.every:
            self.flush()
        slot = len(self._waiting)
        self.step = self.step + (kind == "train") if step is None else step
        self._waiting.append((self.step, kind))
        self._rates[slot] = self.optimiser.param_groups[0]["lr"]
        return self._ring[slot, :, : len(lengths)]

    def probe(self, embeddings: Tensor, step: int) -> Tensor | None:
        """How far each of a fixed set's embeddings (N, D) turned since the last call, in radians (N,); at first None.

        The record's `turn_slope` is that of log angle by log norm at the last call: the proxy would have -power.
        """
        if not _first_rank():
            return None
        after, before = sphere.raised(_checked(embeddings).detach()).clone(), self._probe
        if before is not None and before[1].shape != after.shape:
            raise ValueError(f"a probe set stays the same: {tuple(before[1].shape)} before, {tuple(after.shape)} now")
        self._probe = (step, after)
        if before is None:
            return None
        self.flush()
        angles = turned(before[1], after)
        figures = turn_figures(sphere.norms(before[1]), angles)
        record = {"step": step, "kind": "probe", "since": before[0], **_finite(figures)}
        shown = [float(f"{angle:.4g}") if math.isfinite(angle) else None for angle in angles.tolist()]
        self._tell([record | {"angles": shown}], [record])
        return angles

    def flush(self) -> None:
        """Read the rows that wait, in one transfer, tell them and look for alarms."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._read += len(waiting)
        rows = norm_figures(self._ring[: len(waiting)], self._rates[: len(waiting)], self.power).tolist()
        self._ring[:, 0], self._ring[:, 1:] = PADDING, torch.nan
        records = [_record(*told, values) for told, values in zip(waiting, rows, strict=True)]
        means = [_means(part) for kind in ("train", "test") if (part := [r for r in records if r["kind"] == kind])]
        self._tell(records, means)
        if means[0]["kind"] == "train":
            self._watch(means[0])

    def close(self) -> None:
        """Tell what is left, and forget this monitor, which otherwise lives until the process ends."""
        self.flush()
        atexit.unregister(self.close)

    def _tell(self, records: list[Record], summaries: list[Record]) -> None:
        if self.file is not None:
            with open(self.file, "a", encoding="utf-8") as lines:
                lines.writelines(json.dumps(record) + "\n" for record in records)
        for record in records if self.callback is not None else ():
            self.callback(record)
        for tell in self.summaries:
            for record in summaries:
                tell(record)

    def _watch(self, figures: Record) -> None:
        if self._first_mean is None:
            self._first_mean = figures.get("norm_mean")
        causes = dict(alarms(figures, self._first_mean, self.power, self.constrained))
        fresh = [name for name in causes if name not in self._episodes]
        calm = {name: reads + 1 for name, reads in self._episodes.items() if reads < CALM}
        self._episodes = calm | dict.fromkeys(causes, 0)
        for name in fresh:
            record = {"step": figures["step"], "kind": "alarm", "alarm": name, "text": causes[name]}
            self.alarms.append(record)
            self._tell([record], [record])
            warnings.warn(f"step {figures['step']}: {causes[name]}", stacklevel=5)


def alarms(figures: Record, first_mean: float | None, power: int, constrained: bool) -> Iterator[tuple[str, str]]:
    """Name and words of each alarm for which figures give cause, given the mean norm of the first steps."""
    if figures["not_finite"]:
        yield "not_finite", (
            f"{figures['not_finite']:.3g} embeddings a step are not finite: lower the learning rate, clip gradients, "
            "or keep the last layer out of half precision; the other figures leave them out"
        )
    if "norm_mean" not in figures:
        return
    mean, spread = figures["norm_mean"], figures.get("norm_cv", 0.0)
    if abs(mean - 1) < UNIT and spread < UNIT:
        yield "normalised", (
            "all norms are 1: the model normalises its output, so neither this monitor nor SEC has anything to act on; "
            "give them the embeddings before that"
        )
        return
    if mean >= GROWTH * first_mean > 0:
        yield "exploding", (
            f"norms explode: their mean {mean:.3g} is {mean / first_mean:.3g} times the first steps', so directions "
            f"turn {(mean / first_mean) ** power:.3g} times slower; lower the learning rate, or hold the mean too with "
            'SEC(radius="initial")'
        )
    if mean <= first_mean / GROWTH:
        yield "collapsing", (
            f"norms collapse: their mean {mean:.3g} was {first_mean:.3g} in the first steps, so directions turn ever "
            "more wildly; weaken weight decay or L2-reg, lower the learning rate, or hold the mean with "
            'SEC(radius="initial")'
        )
    if spread >= WIDE:
        ratio = ((1 + spread) / max(1 - spread, 0.01)) ** power
        yield "spreading", (
            f"norms spread: their coefficient of variation is {spread:.2f}, so an embedding one deviation below the "
            f"mean turns about {ratio:.2g} times as far as one above it; try SEC, or a larger eta"
        )
    if figures.get("radial_share", 0.0) >= RADIAL and not constrained:
        yield "radial", (
            f"{figures['radial_share']:.0%} of the squared gradient pulls at norms, of an angular loss it is nothing: "
            "normalise inside the loss, or say constrained=True if norms are held on purpose"
        )


def proxy_power(optimiser: torch.optim.Optimizer) -> int:
    """The power of |f| in the proxy alpha / |f|^power: 2 for SGD (Propositions 3 and 4), 1 for Adam (Proposition 5)."""
    if isinstance(optimiser, torch.optim.SGD):
        return 2
    if isinstance(optimiser, (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam)):
        return 1
    raise ValueError(
        f"the paper has a proxy for SGD and Adam, not for {type(optimiser).__name__}: give power=2 if its step is "
        "proportional to the gradient, power=1 if it is divided by the gradient's size"
    )


# ---------------------------------------------------------------- records


def _record(step: int, kind: str, values: list[float]) -> Record:
    figures = _finite(dict(zip(FIGURES, values, strict=True)))
    figures["not_finite"] = int(figures["not_finite"])
    if "radial_share" in figures:
        figures["tangential_share"] = 1 - figures["radial_share"]
    return {"step": step, "kind": kind, **figures}


def _means(records: list[Record]) -> Record:
    """The mean of each figure over the records of one kind that have it, at the step of the last."""
    names = {name: None for record in records for name in record if name not in ("step", "kind")}
    means = {name: statistics.fmean(record[name] for record in records if name in record) for name in names}
    return {"step": records[-1]["step"], "kind": records[-1]["kind"], **means}


def _finite(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _numbers(record: Record) -> dict[str, float]:
    """What a curve can be drawn of, under the names that the journal's curves have."""
    plain = {name: value for name, value in record.items() if isinstance(value, (int, float)) and name != "step"}
    return {f"{record['kind']}/{name}": value for name, value in plain.items()}


def _to_tensorboard(writer: Any) -> Callable[[Record], None]:
    def tell(record: Record) -> None:
        for name, value in _numbers(record).items():
            writer.add_scalar(name, value, record["step"])
        if record["kind"] == "alarm":
            writer.add_text(f"alarm/{record['alarm']}", record["text"], record["step"])

    return tell


def _checked(embeddings: Tensor) -> Tensor:
    if not isinstance(embeddings, Tensor) or embeddings.ndim != 2:
        shape = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise ValueError(f"NormMonitor watches embeddings of shape (N, D), not {shape}")
    return embeddings


def _first_rank() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_rank())


# ---------------------------------------------------------------- Lightning


def lightning_callback(module: str, **settings: Any) -> Any:
    """A PyTorch Lightning callback with a NormMonitor on the output of the named submodule while it trains.

    `settings` are NormMonitor's; the trainer's loggers get what TensorBoard would. Steps are the optimiser's. The
    submodule may be compiled itself, but not lie inside a compiled one, where hooks are not run.
    """
    names = ("lightning.pytorch", "pytorch_lightning")
    there = [name for name in names if name in sys.modules] or [name for name in names if find_spec(name.split(".")[0])]
    if not there:
        raise ImportError("lightning_callback needs PyTorch Lightning: pip install 'isosphere[lightning]'")

    class NormMonitorCallback(import_module(there[0]).Callback):  # a Trainer wants the class of its own package
        monitor: NormMonitor | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.monitor = monitor = NormMonitor(trainer.optimizers[0], **settings)
            for logger in trainer.loggers:
                monitor.summaries.append(lambda record, to=logger: to.log_metrics(_numbers(record), record["step"]))

            def see(_module: Any, _inputs: Any, output: Tensor) -> None:
                if trainer.training:
                    monitor(output, trainer.global_step + 1)

            self.handle = pl_module.get_submodule(module).register_forward_hook(see)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.handle.remove()
            self.monitor.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if self.monitor is not None:
                self.on_train_end(trainer, pl_module)

    return NormMonitorCallback()
