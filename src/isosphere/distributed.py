"""N processes that give the loss and the gradients of one: a gather, synchronized batch norm, agreement.

Every rank computes the whole loss on the gathered batch. Its backward pass keeps the rank's own slice, times the world
size. DDP's mean over ranks is then the gradient of the whole batch.
"""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isosphere.errors import BadArgument, Option, UnequalRanks, Unsupported
from isosphere.losses.sharded import is_sharded
from isosphere.losses.transforms import transformed
from isosphere.sphere import raised

T = TypeVar("T")
_ALONE = ContextVar("alone", default=False)  # of one thread: another may be training


@contextmanager
def alone() -> Iterator[None]:
    """In here nothing is shared out, and no other rank is waited for."""
    before = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(before)


def world() -> int:
    """Number of processes; 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() and not _ALONE.get() else 1


def rank() -> int:
    """Number of this process."""
    return dist.get_rank() if world() > 1 else 0


def find_device(name: str | torch.device) -> torch.device:
    """The device of this name, of any kind that torch has. "auto" is a GPU of CUDA if there is one, else the CPU."""
    wanted = str(name)
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
        torch.zeros(1, device=device).item()  # which a device that is not here cannot do, nor one without values
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        expected = "auto, cpu, cuda, cuda:1 or another device of this machine"
        raise BadArgument(Option("device"), wanted, expected) from error
    return torch.device("cpu") if device.type == "cpu" else device


def pick_device(name: str | torch.device) -> torch.device:
    """The device of this process, from now on the current one, after joining the others that torchrun started."""
    device = find_device(name)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group(dist.get_default_backend_for_device(device.type))
        atexit.register(dist.destroy_process_group)
    if device.type not in ("cpu", "mps"):
        number = int(os.environ.get("LOCAL_RANK", 0)) if device.index is None else device.index
        torch.get_device_module(device).set_device(number)
    return torch.device(device.type)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local: Tensor) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(world())]
        dist.all_gather(parts, local.contiguous())
        ctx.rows = len(local)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        begin = rank() * ctx.rows
        return gradient[begin : begin + ctx.rows] * world()


def gather(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The embeddings and labels of all ranks in their order, (n, D), (n,) -> (n * world, D), (n * world,).

    It is differentiable. With DDP, `loss = criterion(*gather(f, y))` on every rank gives the gradients of one process
    on the whole batch. Multi-hot labels (n, C) are gathered, too. With one process it returns its arguments.

    Every rank must bring the same number of rows: `drop_last=True` leaves out a smaller last batch. Every rank must
    compute the same loss of all of them. Other numbers of rows are refused on CPU. On GPUs a check would wait for the
    device in every step, so they are not noticed.
    """
    if world() == 1:
        return embeddings, labels
    if transformed(embeddings, labels):
        raise Unsupported("gather", "transforms", "gather first, and transform what is computed of it")
    if embeddings.device.type == "cpu":
        _check_ranks(embeddings, labels)
    parts = [torch.empty_like(labels) for _ in range(world())]
    dist.all_gather(parts, labels.contiguous())
    return _Gather.apply(embeddings), torch.cat(parts)


_TYPES = [kind for _, kind in sorted(vars(torch).items()) if isinstance(kind, torch.dtype)]
"""In the same order on every rank."""


def _check_ranks(embeddings: Tensor, labels: Tensor) -> None:
    """The same error on all ranks if one has other rows, at which gloo would end the process."""
    about = [(len(part), part.shape[1:].numel(), part.ndim, _TYPES.index(part.dtype)) for part in (embeddings, labels)]
    own = torch.tensor(about, device="cpu")
    parts = [torch.empty_like(own) for _ in range(world())]
    dist.all_gather(parts, own)
    found = torch.stack(parts)  # (ranks, 2, 4)
    rows, named = found[:, :, 0].T.tolist()
    if bool((found[:, :, 1:] != found[:1, :, 1:]).any()):
        raise UnequalRanks(rows, named, tuple(map(_kind, found.tolist())))
    if len({*rows}) > 1 or len({*named}) > 1:
        raise UnequalRanks(rows, named)


def _kind(about: list[list[int]]) -> str:
    """What a rank brings, in words."""
    (_, width, _, kind), (_, _, dims, label) = about
    names = [str(_TYPES[number]).removeprefix("torch.") for number in (kind, label)]
    return f"{names[0]} ({width} wide) with {names[1]} labels of {dims} dimensions"


class _SumOverRanks(torch.autograd.Function):
    """The sum over all ranks, whose gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class SyncedBatchNorm(nn.Module):
    """Batch norm over the batch of all ranks, on CPU too, where nn.SyncBatchNorm refuses; same state_dict keys.

    timm's batch norms that contain an activation keep it.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    act: nn.Module
    drop: nn.Module

    def __init__(self, plain: nn.modules.batchnorm._BatchNorm):
        super().__init__()
        if plain.weight is None or plain.running_mean is None or plain.momentum is None:
            raise BadArgument("batch norm", str(plain), "one with weights, statistics and a momentum")
        self.eps, self.momentum, self.training = plain.eps, plain.momentum, plain.training
        self.weight, self.bias = plain.weight, plain.bias
        self.drop, self.act = getattr(plain, "drop", nn.Identity()), getattr(plain, "act", nn.Identity())
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(plain, name))

    def forward(self, given: Tensor) -> Tensor:
        values, shape = raised(given), (1, -1) + (1,) * (given.ndim - 2)  # statistics of halves are of float32
        if not self.training:
            mean, variance = self.running_mean, self.running_var
        else:
            others = [d for d in range(values.ndim) if d != 1]
            count = values.numel() // values.shape[1] * world()
            mean = _SumOverRanks.apply(values.sum(others)) / count
            variance = _SumOverRanks.apply((values - mean.view(shape)).square().sum(others)) / count
            with torch.no_grad():
                self.num_batches_tracked += 1
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        found = values * scale.view(shape) + (self.bias - mean * scale).view(shape)
        return self.act(self.drop(found.to(given.dtype)))


def synchronize_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every batch norm that trains by one whose statistics are those of the whole batch."""
    if world() == 1:
        return module
    for name, child in module.named_children():
        plain = type(child) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        if plain and child.weight is not None and child.weight.is_cuda:
            setattr(module, name, nn.SyncBatchNorm.convert_sync_batchnorm(child))
        elif isinstance(child, nn.modules.batchnorm._BatchNorm):
            setattr(module, name, SyncedBatchNorm(child))
        else:
            synchronize_batch_norm(child)
    return module


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Keep replicated class weights equal to the last bit: every rank has the whole gradient, up to rounding.

    Sharded ones are left alone: theirs is a gradient of other rows on every rank.
    """
    for parameter in parameters if world() > 1 else []:
        if parameter.grad is not None and not is_sharded(parameter):
            dist.all_reduce(parameter.grad)
            parameter.grad /= world()


@torch.no_grad()
def clip_gradients(parameters: list[nn.Parameter], limit: float) -> Tensor:
    """Shrink all gradients by one factor so that their common norm, which is returned, is at most `limit`.

    As torch's clip_grad_norm_, where sharded parameters count with the rows of all ranks and gradients may be sparse.
    """
    having = [parameter for parameter in parameters if parameter.grad is not None]
    if not having:
        return torch.zeros(())
    for parameter in having:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
    gradients = [parameter.grad for parameter in having if parameter.grad is not None]
    values = [gradient.values() if gradient.is_sparse else gradient for gradient in gradients]
    squares = [torch.linalg.vector_norm(value).square() for value in values]
    total = sum(square for square, p in zip(squares, having, strict=True) if not is_sharded(p))
    held = sum(square for square, p in zip(squares, having, strict=True) if is_sharded(p))
    if world() > 1 and isinstance(held, Tensor):
        dist.all_reduce(held)
    norm = (total + held).sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1)
    for value in values:
        value.mul_(factor)
    return norm


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """Join the ranks' shards of a table into (total, ...) on every rank. Rank r holds rows r, r + world, ..."""
    if world() == 1:
        return rows
    most = -(-total // world())
    padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
    parts = [torch.empty_like(padded) for _ in range(world())]
    dist.all_gather(parts, padded)
    return torch.stack(parts, dim=1).flatten(0, 1)[:total]


def agreed(flag: bool, device: torch.device) -> bool:
    """Whether any rank raised the flag: all ranks get the same answer, so that none is left waiting."""
    if world() == 1:
        return flag
    raised = torch.tensor(float(flag), device=device)
    dist.all_reduce(raised, dist.ReduceOp.MAX)
    return bool(raised)


def on_first(call: Callable[[], T]) -> T:
    """What `call` gives on the first rank, on all of them. Its error, too, so that none is left waiting."""
    if world() == 1:
        return call()
    found: list[Any] = [None, None]
    if rank() == 0:
        try:
            found[0] = call()
        except Exception as error:
            found[1] = error
    dist.broadcast_object_list(found)
    if found[1] is not None:
        raise found[1]
    return found[0]
