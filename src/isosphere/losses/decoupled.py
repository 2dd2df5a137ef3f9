"""SEC outside the optimizer's moments, as AdamW applies weight decay."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .constraint import Constraint, last_layer
from .norms import SEC


class DecoupledSEC(Constraint):
    """SEC's gradient as a plain step of the last layer. Under Adam it takes nothing from the criterion's steps.

    The step is the learning rate times the gradient of eta * penalty, by the last layer's weights and biases.
    """

    def __init__(self, eta: float = 1.0, ramp: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.sec = SEC(eta, ramp=ramp, sync=False)
        self.pulls: list[Tensor] = []

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        return self.sec(embeddings, progress=progress)

    def eta_at(self, progress: float) -> float:
        return self.sec.eta_at(progress)

    def through_optimizer(self, penalty: Tensor, model: nn.Module, metric: Tensor) -> Tensor:
        last = list(last_layer(model).parameters())
        self.pulls = list(torch.autograd.grad(penalty, last, retain_graph=True))
        if dist.is_available() and dist.is_initialized():
            for pull in self.pulls:  # each rank's gather gives its own part times their number
                dist.all_reduce(pull)
                pull.div_(dist.get_world_size())
        return penalty.detach()

    @torch.no_grad()
    def after_step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        for parameter, pull in zip(last_layer(model).parameters(), self.pulls, strict=True):
            parameter.sub_(rates[id(parameter)] * pull)
        self.pulls = []
