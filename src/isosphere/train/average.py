"""A running average of the weights, which is measured and used in place of the last ones."""

import copy
from typing import TypeVar

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

Model = TypeVar("Model", bound=nn.Module)
FIRST = 10.0  # steps after which the average begins to be long


def averaged(model: Model) -> Model:
    """A copy of the model for its average, which never trains."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def kept(decay: float, step: int) -> float:
    """The part of the average that stays when the weights after `step` steps join it.

    It rises to `decay`, as in TensorFlow's moving average. So a short run is not an average of its first weights.
    """
    return min(decay, (1 + step) / (FIRST + step))


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Let the weights after so many steps join the average; statistics of batch norm join, counters are copied.

    torch's AveragedModel has one decay for all steps, or asks a GPU which step it is.
    """
    every = ([*module.parameters(), *module.buffers()] for module in (average, model))
    pairs = [*zip(*every, strict=True)]
    floats = [pair for pair in pairs if pair[0].is_floating_point()]
    means, values = ([pair[place] for pair in floats] for place in (0, 1))
    get_ema_multi_avg_fn(kept(decay, step))(means, values, step)
    for mean, value in pairs:
        if not mean.is_floating_point():
            mean.copy_(value)
