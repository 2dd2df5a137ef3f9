"""`NormMonitor`: keeps the figures of many steps on the device, reads them at once and checks for alarms."""

import atexit
import math
import statistics
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isosphere import sphere
from isosphere.errors import BadArgument, Unsupported
from isosphere.losses.checks import check_embeddings, warn
from isosphere.monitor.alarms import Episodes, Record, proxy_power
from isosphere.monitor.figures import FIGURES, PADDING, norm_figures, pull, recorded, turn_figures, turned
from isosphere.monitor.lines import Lines

_OPEN: weakref.WeakSet = weakref.WeakSet()  # monitors whose last rows are read when the process ends


class NormMonitor:
    """Norms, the gradient's radial share and the learning rate of directions, step by step, with alarms in words.

    - `optimizer`: its first group's learning rate is the alpha of the proxy. It is a proxy, as real optimizers move
      weights, not embeddings. `probe` measures what directions do.
    - `file`: JSON lines are appended here, {"step", "kind", figures}. The kind is "train", "test" (no gradient is
      needed), "probe" or "warning". "start" stands between the lines of another monitor and of this one. It is opened
      at once. Where it fails later, a warning says so once, and the loop goes on.
    - `tensorboard`: a SummaryWriter. It gets the mean of each read, as a scalar costs it more than the monitor takes.
    - `callback`: called with each record, a dict as in the file.
    - `every`: steps between reads. A read waits for the device.
    - `power`: the proxy is alpha / |f|^power. It is 2 where a step is proportional to the gradient, and 1 where it is
      divided by the gradient's size. It is known for SGD and Adam. Other optimizers have no proxy.
    - `constrained`: whether the loss holds norms on purpose, as SEC does. Then a radial gradient is no alarm.

    Alarms are warnings, records and `monitor.alarms`, each once an episode. Only the first rank of torch.distributed
    watches, and only its own embeddings. There is no communication. To watch all, give it gathered ones. With gradient
    accumulation each part is a row; `step` numbers them. Do not call it in a compiled or captured region. There, take
    `norm_record`, and outside give what it returned to `add`. Of several backward passes the last one counts. A monitor
    keeps neither model nor optimizer alive. The last rows are read when it is closed or deleted.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        file: str | Path | None = None,
        tensorboard: Any = None,
        callback: Callable[[Record], None] | None = None,
        every: int = 100,
        power: int | None = None,
        constrained: bool = False,
    ):
        if every < 1:
            raise BadArgument("every", every, "a number of steps of at least 1")
        if power not in (None, 1, 2):
            raise BadArgument("power", power, "2 (SGD), 1 (Adam) or None (the optimizer's)")
        self._lines = None if file is None else Lines(file, opened=_first_rank())
        self.file = None if self._lines is None else self._lines.file
        self._optimizer, self.every = _weak(optimizer), every
        self.power = proxy_power(optimizer) if power is None else power
        self.step, self.callback = 0, callback
        self.alarms: list[Record] = []
        self.summaries: list[Callable[[Record], None]] = [] if tensorboard is None else [_to_tensorboard(tensorboard)]
        self._ring = torch.empty(0, 3, 0)  # (every, 3, N): the records of `norm_record`, on the device
        self._rates = torch.empty(0)  # (every,): their learning rates
        self._waiting: list[tuple[int, str]] = []  # step and kind of its rows that nobody has read yet
        self._read = 0  # rows read before
        self._episodes = Episodes(self.power, constrained)
        self._probe: tuple[int, Tensor] | None = None
        _OPEN.add(self)

    def __del__(self) -> None:
        if hasattr(self, "_probe"):  # its settings were right
            self.flush()

    @property
    def optimizer(self) -> Any:
        """The optimizer, or None where it is gone."""
        return self._optimizer()

    def __call__(self, embeddings: Tensor, step: int | None = None) -> None:
        """Watch raw embeddings (N, D), and their gradient in the backward pass to come."""
        if not _first_rank() or not len(_checked(embeddings)):
            return
        if embeddings.is_cuda and torch.cuda.is_current_stream_capturing():
            raise Unsupported("NormMonitor", "captured steps", "capture norm_record, and give it to monitor.add")
        lengths, learning = sphere.norms(embeddings.detach()), embeddings.requires_grad
        row = self._row(lengths, step, "train" if learning else "test")
        row[0] = lengths
        if learning:
            values, number = embeddings.detach(), self._read + len(self._waiting) - 1

            @torch.no_grad()
            def seen(gradients: Tensor) -> None:
                if number >= self._read:  # once it is read, its place belongs to another
                    row[1], row[2] = pull(values, gradients)

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
        rate = None if self.optimizer is None else self.optimizer.param_groups[0].get("lr")
        self._rates[slot].fill_(math.nan if rate is None else rate)  # an assignment would wait for the device
        return self._ring[slot, :, : len(lengths)]

    def probe(self, embeddings: Tensor, step: int) -> Tensor | None:
        """How far each of a fixed set's embeddings (N, D) turned since the last call, in radians (N,). At first None.

        The record's `turn_slope` is that of log angle by log norm at the last call. The proxy would have -power.
        """
        if not _first_rank():
            return None
        after, before = sphere.raised(_checked(embeddings).detach()).clone(), self._probe
        if before is not None and before[1].shape != after.shape:
            raise BadArgument("embeddings", tuple(after.shape), f"of the probe set before: {tuple(before[1].shape)}")
        self._probe = (step, after)
        if before is None:
            return None
        self.flush()
        angles = turned(before[1], after)
        figures = turn_figures(sphere.norms(before[1]), angles)
        record: Record = {"step": step, "kind": "probe", "since": before[0], **recorded(figures)}
        shown = [float(f"{angle:.4g}") if math.isfinite(angle) else None for angle in angles.tolist()]
        self._report([record | {"angles": shown}], [record])
        return angles

    def flush(self) -> None:
        """Read the rows that wait, in one transfer, report them and check for alarms."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._read += len(waiting)
        rows = norm_figures(self._ring[: len(waiting)], self._rates[: len(waiting)], self.power).tolist()
        self._ring[:, 0], self._ring[:, 1:] = PADDING, torch.nan
        records: list[Record] = [
            {"step": step, "kind": kind, **recorded(dict(zip(FIGURES, values, strict=True)))}
            for (step, kind), values in zip(waiting, rows, strict=True)
        ]
        means = [_means(part) for kind in ("train", "test") if (part := [r for r in records if r["kind"] == kind])]
        self._report(records, means)
        if means[0]["kind"] == "train":
            if self._episodes.first_mean is None:  # the first step's own: until the first read norms may have exploded
                means_of_train = (r.get("norm_mean") for r in records if r["kind"] == "train")
                self._episodes.first_mean = next((mean for mean in means_of_train if mean is not None), None)
            self._watch(means[0])

    def close(self) -> None:
        """Read what is left."""
        self.flush()
        _OPEN.discard(self)

    def _report(self, records: list[Record], summaries: list[Record]) -> None:
        if self._lines is not None:
            self._lines.append(records)
        if self.callback is not None:
            for record in records:
                self.callback(record)
        for write in self.summaries:
            for record in summaries:
                write(record)

    def _watch(self, figures: Record) -> None:
        for name, words in self._episodes.fresh(figures).items():
            record = {"step": figures["step"], "kind": "warning", "warning": name, "text": words}
            self.alarms.append(record)
            self._report([record], [record])
            warn(f"step {figures['step']}: {words}")


# ---------------------------------------------------------------- records


def _means(records: list[Record]) -> Record:
    """The mean of each figure over the records of one kind that have it, at the last one's step."""
    names = {name: None for record in records for name in record if name not in ("step", "kind")}
    means = {name: statistics.fmean(record[name] for record in records if name in record) for name in names}
    return {"step": records[-1]["step"], "kind": records[-1]["kind"], **means}


def numbers(record: Record) -> dict[str, float]:
    """What a curve can be drawn of, under the names that the journal's curves have."""
    plain = {name: value for name, value in record.items() if isinstance(value, (int, float)) and name != "step"}
    return {f"{record['kind']}/{name}": value for name, value in plain.items()}


def _to_tensorboard(writer: Any) -> Callable[[Record], None]:
    def write(record: Record) -> None:
        for name, value in numbers(record).items():
            writer.add_scalar(name, value, record["step"])
        log_alarm(writer, record)

    return write


def log_alarm(writer: Any, record: Record) -> None:
    """A warning as text, where the writer takes text."""
    if record["kind"] == "warning" and hasattr(writer, "add_text"):
        writer.add_text(f"warning/{record['warning']}", record["text"], record["step"])


def _checked(embeddings: Tensor) -> Tensor:
    check_embeddings(embeddings)
    return embeddings


@atexit.register
def _close_all() -> None:
    for monitor in list(_OPEN):
        monitor.close()


def _weak(optimizer: Any) -> Callable[[], Any]:
    """A weak reference, or a strong one to what has none."""
    try:
        return weakref.ref(optimizer)
    except TypeError:
        return lambda: optimizer


def _first_rank() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_rank())
