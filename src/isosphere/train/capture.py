"""The whole step as one CUDA graph: the host only copies a batch in and starts it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from isosphere.data.transforms import Staged, View

Update = Callable[[Any, Tensor, Tensor, Tensor], dict[str, Tensor]]


class CompiledView:
    """A view whose hundreds of small kernels are compiled into a few, of images in memory or of a cache."""

    def __init__(self, view: View):
        self.draws, self.seen = view.draws, torch.compile(view.__call__)
        if isinstance(view, Staged):
            self.size, self.stored, self.boxes = view.size, view.stored, view.boxes
            self.rest, self.finish = torch.compile(view.rest), torch.compile(view.finish)

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        return self.seen(images, numbers)


class CapturedStep:
    """Replays `update(run, images, labels, progress)`, captured once for fixed shapes. Results live till the next call.

    The run is given at each call. If it were kept here, it would make a cycle and outlive its training.

    `modules` and `optimizer` are what the update changes. The steps that warm it up are undone in place. Random numbers
    begin again, so dropout is the same in a run that was resumed.
    """

    def __init__(self, update: Update, modules: list[torch.nn.Module], optimizer: torch.optim.Optimizer):
        self.update, self.modules, self.optimizer = update, modules, optimizer
        self.graph: torch.cuda.CUDAGraph | None = None
        self.found: dict[str, Tensor] = {}

    def __call__(self, run: Any, images: Tensor, labels: Tensor, progress: float) -> dict[str, Tensor]:
        if self.graph is None:
            self.graph = self._capture(run, images, labels)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self.progress.fill_(progress)
        self.graph.replay()
        return self.found

    def forget(self) -> None:
        """Give back the graph and its memory; the next call captures again."""
        self.graph, self.found = None, {}
        for name in ("images", "labels", "progress"):
            self.__dict__.pop(name, None)

    def _capture(self, run: Any, images: Tensor, labels: Tensor) -> torch.cuda.CUDAGraph:
        self.images, self.labels = images.cuda().clone(), labels.cuda().clone()
        self.progress = torch.zeros((), device="cuda")
        before = [{name: value.clone() for name, value in module.state_dict().items()} for module in self.modules]
        moments = {p: {k: v.clone() for k, v in values.items()} for p, values in self.optimizer.state.items()}
        random = torch.cuda.get_rng_state()
        side = _side_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.update(run, self.images, self.labels, self.progress)
        finally:  # also where memory ran out
            torch.cuda.current_stream().wait_stream(side)
            for module, values in zip(self.modules, before, strict=True):
                module.load_state_dict(values)
            for parameter, values in self.optimizer.state.items():
                for name, value in values.items():
                    value.copy_(moments[parameter][name]) if parameter in moments else value.zero_()
            torch.cuda.set_rng_state(random)
            self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as a loader's that pins memory, may use the device meanwhile.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            self.found = self.update(run, self.images, self.labels, self.progress)
        return graph


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One for all captures: cuBLAS keeps a workspace of 32 MiB a thread for every stream it has seen."""
    return torch.cuda.Stream(device)
