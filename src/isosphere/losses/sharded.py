"""Class weights shared out over ranks. Each rank holds its classes, and all have the loss.

Every rank brings the embeddings and labels of all ranks, as `isosphere.gather` gives them. It computes the whole loss.
A checkpoint fits any number of ranks.

The gradient by the embeddings is summed over ranks in the backward pass, so every rank has the whole of it. That is
what `gather` expects: its own slice times the number of ranks, then DDP's mean. The gradient by a rank's class weights
is whole as it is and must not be averaged over ranks. A norm of all gradients must count every rank's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument, Unsupported

from . import sampling
from .checks import check, check_positive, number
from .classes import class_softmax
from .margins import NormFace, check_margin, class_weights, keep_float32
from .transforms import transformed


class ShardedClassifier(nn.Module):
    """`CosineClassifier` with a share of the class weights on each rank; with one process it has all.

    `rate` is the share of the other classes that the softmax of a training step sees. They are drawn anew at each step
    from (seed, step). The batch's own are always there, and evaluation sees all. Below 1 the gradient is sparse: train
    with `sampling.RowSGD`. The first weights are those of `CosineClassifier` under the same seed, whatever the number
    of ranks.
    """

    draws: Tensor

    def __init__(
        self,
        dim: int,
        classes: int,
        margin: Callable[[Tensor], Tensor] = NormFace(),  # noqa: B008, it is frozen
        scale: float = 64.0,
        rate: float = 1.0,
        products: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive(scale=scale)
        check_margin(margin)
        check_positive(rate=rate)
        number("rate", rate, 0, 1)
        if classes < _world():
            raise BadArgument("classes", classes, f"at least one for each of {_world()} ranks, or use CosineClassifier")
        part = share(classes)
        self.weights = class_weights(dim, classes, part)
        _mark(self.weights, part.start, classes)
        self.first, self.classes = part.start, classes
        self.margin, self.scale, self.rate, self.products, self.seed = margin, scale, rate, products, seed
        if rate < 1:
            self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check(embeddings, labels, torch.empty(self.classes, self.weights.shape[1], device="meta"))
        weights, places = self.weights, labels.long() - self.first
        if self.rate < 1 and self.training and torch.is_grad_enabled():
            if transformed(embeddings, labels, weights):
                raise Unsupported("a head that draws classes", "transforms", "evaluate it with head.eval(), or rate=1")
            with torch.no_grad():
                self.draws += 1
                index = sampling.draw(places, self.first, len(weights), self.rate, self.seed, self.draws)
                held = (places >= 0) & (places < len(weights))
                places = torch.where(held, torch.searchsorted(index, places), -1)
            weights = sampling.rows(weights, index)
        queries, weights = sphere.promoted(embeddings, weights)
        return class_softmax(
            queries, weights, places, self.margin, self.scale, products=self.products, first=0,
            sources={"embeddings": embeddings, "weights": self.weights},
        )  # fmt: skip

    _apply = keep_float32

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _mark(self.weights, self.first, self.classes)  # which neither a deep copy nor a pickle keeps

    def extra_repr(self) -> str:
        held = f"dim={self.weights.shape[1]}, classes={len(self.weights)} of {self.classes} from {self.first}"
        return f"{held}, margin={self.margin}, scale={self.scale}, rate={self.rate}"


def share(total: int, rank: int | None = None) -> slice:
    """The rows of `total` that a rank holds, or this one: contiguous, in sizes that differ by one at most."""
    rank, world = _rank() if rank is None else rank, _world()
    return slice(total * rank // world, total * (rank + 1) // world)


def is_sharded(parameter: nn.Parameter) -> bool:
    """Whether this rank holds only some rows of it."""
    return _shard(parameter) is not None


def _shard(parameter: nn.Parameter) -> tuple[int, int] | None:
    """The first row that this rank holds, and how many all ranks hold. None if it is not sharded."""
    return getattr(parameter, "shard", None)


def _mark(parameter: nn.Parameter, first: int, total: int) -> None:
    parameter.shard = (first, total)  # type: ignore[attr-defined]  # a mark of ours, which `_shard` reads


# ---------------------------------------------------------------- checkpoints that fit any number of ranks


def whole_state(module: nn.Module) -> dict[str, Any]:
    """The state_dict with all rows of sharded parameters, on rank 0 in CPU memory. Every rank must call it."""
    state, parameters = module.state_dict(), dict(module.named_parameters())
    return {name: _joined(value, parameters.get(name)) for name, value in state.items()}


def own_state(module: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """What this rank loads of a `whole_state`: `module.load_state_dict(own_state(module, state))`."""
    parameters = dict(module.named_parameters())
    return {name: _sliced(value, parameters.get(name)) for name, value in state.items()}


def whole_optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state_dict with all rows of its sharded state, on rank 0. Every rank must call it."""
    return _each_moment(optimizer, optimizer.state_dict(), _joined)


def own_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """What this rank loads of a `whole_optimizer_state`."""
    return _each_moment(optimizer, state, _sliced)


def _each_moment(optimizer: torch.optim.Optimizer, state: dict[str, Any], change: Callable) -> dict[str, Any]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kept = {
        number: {name: change(value, parameters[number]) for name, value in moments.items()}
        for number, moments in state["state"].items()
    }
    return state | {"state": kept}


def _joined(values: Any, parameter: nn.Parameter | None) -> Any:
    shard = None if parameter is None else _shard(parameter)
    if parameter is None or shard is None or _world() == 1 or not _like(values, parameter):
        return values
    first, total = shard
    whole = torch.empty(total, *values.shape[1:], dtype=values.dtype) if _rank() == 0 else None
    for rank in range(_world()):  # one share at a time, so that no device needs room for all
        part = share(total, rank)
        rows = values.detach().contiguous()
        if part.start != first:
            rows = rows.new_empty(part.stop - part.start, *rows.shape[1:])
        dist.broadcast(rows, rank)
        if whole is not None:
            whole[part] = rows.cpu()
    return values if whole is None else whole


def _sliced(values: Any, parameter: nn.Parameter | None) -> Any:
    shard = None if parameter is None else _shard(parameter)
    if shard is None or not isinstance(values, Tensor) or values.ndim == 0:
        return values
    _, total = shard
    if len(values) != total:
        raise BadArgument("the checkpoint's classes", len(values), f"as many as the head's, {total}")
    return values[share(total)].clone()  # not a view, which would keep all of it


def _like(values: Any, parameter: nn.Parameter) -> bool:
    return isinstance(values, Tensor) and values.shape == parameter.shape


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if _world() > 1 else 0
