"""SEC whose strength follows the criterion, so that no eta has to be chosen for a task."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .checks import number
from .constraint import Constraint, last_layer
from .norms import SEC, risen

MOST = 1e4  # of the weight, as in VQGAN: a penalty without a gradient would have no end


class AdaptiveSEC(Constraint):
    """SEC whose gradient by the last layer's weights is a share of the criterion's.

    The penalty's weight is eta * |criterion's gradient| / |penalty's gradient|, each a running mean over steps. VQGAN
    weighs its parts in this way (Esser et al., CVPR 2021, Eq. 7), without the running means.
    """

    sizes: Tensor

    def __init__(self, eta: float = 0.1, rho: float = 0.05, ramp: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.eta, self.rho, self.ramp = number("eta", eta, 0), number("rho", rho, 0, 1), ramp
        self.sec = SEC(eta=1.0, sync=False)
        self.register_buffer("sizes", torch.full((2,), float("nan")))  # of the criterion's gradient, and the penalty's

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        return risen(progress, self.ramp) * self.sec(embeddings)

    def eta_at(self, progress: float) -> float:
        return self.eta * float(risen(progress, self.ramp))

    def through_optimizer(self, penalty: Tensor, model: nn.Module, metric: Tensor) -> Tensor:
        sizes = torch.stack([_size(part, last_layer(model)) for part in (metric, penalty)]).to(self.sizes.dtype)
        updated = torch.where(self.sizes.isnan(), sizes, torch.lerp(self.sizes, sizes, self.rho))
        self.sizes.copy_(torch.where(updated.isfinite(), updated, self.sizes))
        weight = self.eta * self.sizes[0] / self.sizes[1].clamp(min=torch.finfo(self.sizes.dtype).tiny)
        return weight.clamp(max=MOST).nan_to_num() * penalty


def _size(part: Tensor, layer: nn.Module) -> Tensor:
    """The norm of a part's gradient by the layer's weights, its first parameter, over all ranks, as a 0-d tensor."""
    (gradient,) = torch.autograd.grad(part, list(layer.parameters())[:1], retain_graph=True)
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(gradient)  # each rank's gather gives its own part times their number
        gradient = gradient / dist.get_world_size()
    return gradient.norm()
