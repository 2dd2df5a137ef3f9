"""What a training loop asks of a constraint on the norms, whichever it is."""

import torch
from torch import Tensor, nn

from isosphere import sphere


class Constraint(nn.Module):
    """What a training loop asks of a constraint. By itself it does nothing; a subclass overrides what it needs.

    - `start` acts on the first weights.
    - `inputs` acts on the gradient of the embeddings.
    - `forward` acts on the embeddings: a penalty.
    - `through_optimizer` decides what the optimizer sees next to the criterion.
    - `after_step` acts on the model after a step.
    """

    sync = True

    def start(self, model: nn.Module) -> None:
        """Change the first weights; called once, before training."""

    def inputs(self, embeddings: Tensor) -> Tensor:
        """What the criterion gets in place of the embeddings (N, D)."""
        return embeddings

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        """The penalty, already weighted, (N, D) -> scalar."""
        return sphere.raised(embeddings.detach()).new_zeros(())

    def through_optimizer(self, penalty: Tensor, model: nn.Module, metric: Tensor) -> Tensor:
        """What is added to the criterion's value, `metric`; called before the backward pass."""
        return penalty

    def after_step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Change the model, and what the optimizer holds of it, after the optimizer's step."""

    def eta_at(self, progress: float) -> float:
        """The penalty's weight when this fraction of training lies behind."""
        return 0.0


def last_layer(model: nn.Module) -> nn.Module:
    """The last layer of a model's head, which gives the embeddings."""
    return [*model.get_submodule("head").children()][-1]
