"""The monitor as a PyTorch Lightning callback."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from isosphere.errors import MissingExtra
from isosphere.monitor.watch import NormMonitor, Record, log_alarm, numbers


def lightning_callback(module: str, **settings: Any) -> Any:
    """A PyTorch Lightning callback with a NormMonitor on the output of the named submodule while it trains.

    `settings` are NormMonitor's; the trainer's loggers get what TensorBoard would, alarms where they take text. Steps
    are the optimizer's. The submodule may be compiled itself, but not lie inside a compiled one, where hooks are not
    run.
    """
    names = ("lightning.pytorch", "pytorch_lightning")
    there = [name for name in names if name in sys.modules] or [name for name in names if find_spec(name.split(".")[0])]
    if not there:
        raise MissingExtra("lightning_callback", "lightning", "lightning")

    class NormMonitorCallback(import_module(there[0]).Callback):  # type: ignore[misc] # a Trainer wants the class of its own package
        monitor: NormMonitor | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            watched = pl_module.get_submodule(module)  # before there is a monitor: a wrong name leaves nothing to end
            self.monitor = monitor = NormMonitor(trainer.optimizers[0], **settings)

            def write(record: Record) -> None:
                for logger in trainer.loggers:
                    if numbers(record):
                        logger.log_metrics(numbers(record), record["step"])
                    log_alarm(getattr(logger, "experiment", None), record)

            monitor.summaries.append(write)

            def see(_module: Any, _inputs: Any, output: Tensor) -> None:
                if trainer.training:
                    monitor(output, trainer.global_step + 1)

            self.handle = watched.register_forward_hook(see)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.handle.remove()
            if self.monitor is not None:
                self.monitor.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if self.monitor is not None:
                self.on_train_end(trainer, pl_module)

    return NormMonitorCallback()
