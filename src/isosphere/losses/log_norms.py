"""Even norms without a pull on their scale: the variance of the logarithms of norms.

SEC's radius is detached, so norms that spread pull their common scale down. Here a common factor of all embeddings
changes nothing: the derivative by it is zero.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from isosphere import sphere

from .checks import check_embeddings, check_loss, number
from .constraint import Constraint
from .norms import risen


def log_norm_penalty(embeddings: Tensor, mean: Tensor | None = None) -> Tensor:
    """mean((log |f| - mean log |f|)^2), (N, D) -> scalar. A zero vector has no logarithm and is left out.

    `mean` is that of the logarithms over all ranks, where these share a batch.
    """
    check_embeddings(embeddings)
    logs, counted = _logs(embeddings)
    count = counted.sum().clamp(min=1)
    mean = logs.sum() / count if mean is None else mean  # detached or not, the gradient is the same
    value = torch.where(counted, logs - mean, 0.0).square().sum() / count
    check_loss(value, embeddings=embeddings)
    return value


def _logs(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of the norms (N,), 0 for a zero vector, and which rows have one (N,)."""
    lengths = sphere.norms(embeddings)
    counted = lengths != 0  # not a comparison that hides NaN
    return torch.where(counted, torch.where(counted, lengths, 1.0).log(), 0.0), counted


class LogNorms(Constraint):
    """`log_norm_penalty`, already weighted: `loss = criterion(f, y) + log_norms(f)`.

    With `sync` the mean is over all ranks where torch.distributed is initialized, as in SEC.
    """

    def __init__(self, eta: float = 1.0, ramp: tuple[float, float] | None = None, sync: bool = True) -> None:
        super().__init__()
        self.eta, self.ramp, self.sync = number("eta", eta, 0), ramp, sync

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        mean, weight = self._shared_mean(embeddings)
        return self.eta * risen(progress, self.ramp) * weight * log_norm_penalty(embeddings, mean)

    def eta_at(self, progress: float) -> float:
        return self.eta * float(risen(progress, self.ramp))

    @torch.no_grad()
    def _shared_mean(self, embeddings: Tensor) -> tuple[Tensor | None, Tensor | float]:
        """The mean logarithm over all ranks, and what makes DDP's mean of their penalties that of all rows."""
        shared = self.sync and self.training and dist.is_available() and dist.is_initialized()
        if not shared or dist.get_world_size() == 1:
            return None, 1.0
        logs, counted = _logs(embeddings.detach())
        own = torch.stack([logs.sum(), counted.sum().to(logs.dtype)])
        total = own.clone()
        dist.all_reduce(total)
        count = total[1].clamp(min=1)
        return total[0] / count, own[1] * dist.get_world_size() / count
