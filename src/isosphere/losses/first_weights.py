"""Rivals of a constraint on norms that act on the weights: where these start, and how far they may go."""

import torch
from torch import Tensor, nn

from isosphere.errors import BadArgument

from .checks import number
from .constraint import Constraint, last_layer


class CutInitialization(Constraint):
    """The last layer starts with its weights divided by `factor`, so all embeddings begin shorter.

    From Draganov et al. (ICML 2025, arXiv 2502.09252), who cut all weights of a network that starts from scratch. Batch
    norm undoes a cut of the layers before it.
    """

    def __init__(self, factor: float = 3.0) -> None:
        super().__init__()
        self.factor = number("factor", factor, 0)
        if not self.factor:
            raise BadArgument("factor", factor, "above 0")

    @torch.no_grad()
    def start(self, model: nn.Module) -> None:
        for parameter in last_layer(model).parameters():
            parameter.div_(self.factor)


class L2SP(Constraint):
    """The backbone's weights pulled to where they started: eta / 2 * |w - w_0|^2 (Li et al., ICML 2018).

    It regularizes without a word about norms of embeddings.
    """

    place: Tensor

    def __init__(self, eta: float = 0.01) -> None:
        super().__init__()
        self.eta = number("eta", eta, 0)
        self.register_buffer("place", torch.zeros(()), persistent=False)  # the device of what a checkpoint brings

    def start(self, model: nn.Module) -> None:
        for name, parameter in _pulled(model).items():
            self.register_buffer(name, parameter.detach().clone())

    def through_optimizer(self, penalty: Tensor, model: nn.Module, metric: Tensor) -> Tensor:
        gaps = [p - self.get_buffer(name) for name, p in _pulled(model).items()]
        return self.eta / 2 * torch.stack([gap.square().sum() for gap in gaps]).sum()

    def _load_from_state_dict(self, state_dict, prefix, *rest) -> None:
        for key, value in state_dict.items():  # a run that goes on has not started here
            if key.startswith(prefix) and key[len(prefix) :] not in self._buffers:
                self.register_buffer(key[len(prefix) :], torch.empty_like(value, device=self.place.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _pulled(model: nn.Module) -> dict[str, nn.Parameter]:
    """The backbone's trained weights, by a name that a buffer can have."""
    named = model.get_submodule("backbone").named_parameters()
    return {name.replace(".", "/"): parameter for name, parameter in named if parameter.requires_grad}
