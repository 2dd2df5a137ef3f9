"""How maps of features become a vector: average, max, their sum, generalized mean (GeM), or a class token."""

from typing import Any

import torch
from torch import Tensor, nn

from isosphere.errors import BadArgument, Incompatible, Option

KINDS = ("avg", "max", "both", "gem", "token")
LEAST = 1e-6  # GeM takes a power, so features are at least this
POWER = 3.0  # GeM's first, as its authors'


def pooled(features: Tensor, dims: tuple[int, ...], kind: str, power: Tensor | None = None) -> Tensor:
    """Features pooled over these dimensions, which stay with size 1.

    `both` is the sum of average and max, as in Proxy-Anchor's code. `gem` is the root of the mean of the power. Their
    backward passes repeat in bits on a GPU; those of adaptive pooling do not.
    """
    if kind == "gem" and power is not None:
        raised = features.to(torch.promote_types(features.dtype, torch.float32)).clamp(min=LEAST).pow(power)
        return raised.mean(dims, keepdim=True).pow(1 / power).to(features.dtype)
    if kind == "max":
        return features.amax(dims, keepdim=True)
    mean = features.mean(dims, keepdim=True)
    return mean + features.amax(dims, keepdim=True) if kind == "both" else mean


class GlobalPool(nn.Module):
    """`pooled` as a layer; GeM's power is learned. By default maps (N, C, H, W) -> (N, C)."""

    def __init__(self, kind: str = "avg", dims: tuple[int, ...] = (2, 3), flat: bool = True) -> None:
        super().__init__()
        self.kind, self.dims, self.flat = kind, dims, flat
        self.power = nn.Parameter(torch.tensor([POWER])) if kind == "gem" else None

    def forward(self, features: Tensor) -> Tensor:
        found = pooled(features, self.dims, self.kind, self.power)
        return found.squeeze(self.dims) if self.flat else found


class TokenPool(nn.Module):
    """Tokens (N, L, D) -> (N, D), then the network's own last norm. The `first` tokens are no patches."""

    def __init__(self, kind: str, first: int, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm = first, norm
        self.pool = None if kind == "token" else GlobalPool(kind, dims=(1,))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.norm(tokens[:, 0] if self.pool is None else self.pool(tokens[:, self.first :]))


def set_pooling(network: nn.Module, kind: str, name: str) -> None:
    """Give a backbone another pooling, in place. One without such a thing is refused by its `name`."""
    if kind not in KINDS:
        raise BadArgument("pooling", kind, f"{', '.join(KINDS)} or None")
    place = None if kind == "token" else _place(network)
    transformer: Any = network if _gives_tokens(network) else None
    if place is not None:
        owner, field = place
        before = owner.get_submodule(field)
        dims = getattr(before, "dim", (2, 3))  # timm's fast layers say where they pool, and whether that flattens
        setattr(owner, field, GlobalPool(kind, tuple(dims), bool(getattr(before, "flatten", hasattr(network, "maps")))))
    elif transformer is not None and (kind != "token" or getattr(network, "cls_token", None) is not None):
        transformer.reset_classifier(0, global_pool="")
        transformer.fc_norm = TokenPool(kind, transformer.num_prefix_tokens, transformer.fc_norm)
    elif getattr(network, "global_pool", None) != kind:  # in some transformers it is a word: then nothing is to be done
        what = "class token" if kind == "token" else "pooling that can be changed"
        remedies = (Option("model.backbone"), Option("model.pooling", "none"))
        raise Incompatible(("model.pooling", "model.backbone"), f"{name} has no {what}", remedies)


def _place(network: nn.Module) -> tuple[nn.Module, str] | None:
    """Where the layer is that pools maps, as (owner, field). None if there is none, or not just one."""
    from timm.layers import SelectAdaptivePool2d

    layers = dict(network.named_children())
    if hasattr(network, "maps"):  # one of ours
        return network, "pool"
    plain = layers.get("avgpool")  # torchvision's; VGG's gives a grid
    if isinstance(plain, nn.AdaptiveAvgPool2d) and plain.output_size in (1, (1, 1)):
        return network, "avgpool"
    found = [module for module in network.modules() if isinstance(module, SelectAdaptivePool2d)]
    return (found[0], "pool") if len(found) == 1 and found[0].pool_type in ("avg", "max", "avgmax", "fast") else None


def _gives_tokens(network: nn.Module) -> bool:
    """Whether it is one of timm's transformers that pool their tokens, then apply `fc_norm`. Distilled ones do not."""
    needed = ("reset_classifier", "num_prefix_tokens", "fc_norm")
    return all(hasattr(network, name) for name in needed) and not hasattr(network, "head_dist")
