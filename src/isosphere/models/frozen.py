"""Batch norm that neither learns nor updates its statistics, whatever `train()` says."""

import torch
from torch import Tensor, nn

from isosphere.errors import BadArgument

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class FrozenBatchNorm(nn.Module):
    """x * scale + shift from a batch norm's statistics and parameters, which are buffers of the same names.

    It computes in the buffers' precision and returns the input's. A compiler fuses it with the ReLU that follows.
    timm's batch norms that contain an activation keep it.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, source: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.eps = source.eps
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(source, name).detach().clone())
        self.drop, self.act = getattr(source, "drop", nn.Identity()), getattr(source, "act", nn.Identity())

    def forward(self, inputs: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        shape = (-1, *[1] * (inputs.dim() - 2))
        outputs = torch.addcmul(shift.view(shape), inputs, scale.view(shape)).to(inputs.dtype)
        return self.act(self.drop(outputs))

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: object) -> None:
        # Weights from before batch norm counted its batches, and most converted ones, lack the counter.
        state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def freeze_batch_norm(module: nn.Module) -> nn.Module:
    """The module with every batch norm frozen, in place, with the same state dict."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        if type(module) not in PLAIN and not hasattr(module, "act"):
            raise BadArgument("module", type(module).__name__, "one of the batch norms of torch or timm")
        if module.running_mean is None or module.weight is None:
            raise BadArgument("module", module, "a batch norm with statistics and a weight")
        return FrozenBatchNorm(module)
    for name, child in module.named_children():
        setattr(module, name, freeze_batch_norm(child))
    return module
