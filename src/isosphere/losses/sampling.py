"""A share of the classes at each step (Partial FC): which are drawn, and an optimizer that moves only these.

The softmax runs over the batch's own classes and a random part of the others. The gradient is sparse: it names the rows
that were drawn.
"""

import math

import torch
from torch import Tensor, nn

from isosphere.errors import BadArgument


def draw(places: Tensor, first: int, classes: int, rate: float, seed: int, step: Tensor) -> Tensor:
    """Indices, ascending, of the classes drawn here: the true ones, and others up to a share `rate`.

    `places` (N,) are the true classes' indices, out of [0, classes) where another rank has them. The number of indices
    depends on N alone. It is the share, or N where the share is too small for N true classes. Which are drawn is hashed
    from (seed, step, first + index). So the same classes are drawn on any number of ranks.
    """
    index = torch.arange(classes, device=places.device)
    luck = _mixed(_mixed(step * 2**20 + seed) + first + index) >> 1
    spare = torch.cat([luck, luck.new_zeros(1)])  # the last one stands for classes of other ranks
    here = torch.where((places >= 0) & (places < classes), places, classes)
    luck = spare.index_fill(0, here, torch.iinfo(torch.int64).max)[:classes]
    count = max(math.ceil(rate * classes), min(len(places), classes))
    return luck.topk(count, sorted=False).indices.sort().values


def _mixed(values: Tensor) -> Tensor:
    """Scramble int64 values by wrapping products and shifts, as splitmix64 ends; masks make the shifts logical."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)):
        values = (values ^ ((values >> shift) & (2 ** (64 - shift) - 1))) * factor
    return values ^ ((values >> 31) & (2**33 - 1))


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = weights.shape
        return weights.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(index[None], gradient, ctx.size, check_invariants=False), None


def rows(weights: Tensor, index: Tensor) -> Tensor:
    """The rows (n, D) of weights (C, D) at distinct indices (n,); their gradient is sparse."""
    return _Rows.apply(weights, index)


class RowSGD(torch.optim.SGD):
    """SGD that touches only the rows of a sparse gradient. The others neither move, nor decay, nor forget.

    A row's momentum and weight decay count the steps in which it was drawn. At a rate of 0.1 a class decays a tenth as
    fast. Its momentum waits unchanged until it is drawn again. Dense gradients are left to torch, fused or not. The
    state is that of torch.optim.SGD. Sparse gradients may have been summed over several backward passes. Joining their
    rows reads a number from the device, so such a step cannot be captured in a CUDA graph.
    """

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=fused)

    @torch.no_grad()
    def step(self, closure=None):
        if closure is not None:
            raise BadArgument("closure", closure, "None: compute the gradients first")
        everything = [(group, parameter) for group in self.param_groups for parameter in group["params"]]
        sparse = [(g, p, p.grad) for g, p in everything if p.grad is not None and p.grad.is_sparse]
        for _, parameter, _ in sparse:
            parameter.grad = None
        super().step()
        for group, parameter, gradient in sparse:
            parameter.grad = gradient
            self._move_rows(group, parameter, gradient.coalesce())

    def _move_rows(self, group: dict, parameter: nn.Parameter, gradient: Tensor) -> None:
        index, change = gradient.indices()[0], gradient.values()
        values = parameter.index_select(0, index)
        if group["weight_decay"]:
            change = change + group["weight_decay"] * values
        if group["momentum"]:
            state = self.state[parameter]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            change = state["momentum_buffer"].index_select(0, index).mul_(group["momentum"]).add_(change)
            state["momentum_buffer"].index_copy_(0, index, change)
        parameter.index_copy_(0, index, values - group["lr"] * change)
