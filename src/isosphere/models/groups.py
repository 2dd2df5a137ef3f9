"""Which parameters an optimizer decays, and at which rate each layer learns."""

from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from typing import Any

from torch import nn

from isosphere.models.pooling import GlobalPool

PARAMETERS = 12  # of a layer, where a network does not name its layers: as timm counts them


def parameter_groups(
    module: nn.Module,
    lr: float,
    weight_decay: float,
    spared: str = "batch_norm",
    layer_decay: float = 1.0,
    resting: Collection[nn.Parameter] = (),
) -> list[dict[str, Any]]:
    """A module's parameters that learn, for an optimizer: those that are decayed first, then those that are not.

    `spared` from weight decay are parameters of "batch_norm", all "vectors" (norms, biases and tokens), or "nothing".
    Each layer before the last has `layer_decay` times the rate of the next. `resting` ones will learn later.
    """
    scales = layer_scales(module, layer_decay) if layer_decay < 1 else {}
    later = {id(parameter) for parameter in resting}
    found: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter, decayed in _each(module, spared):
        if parameter.requires_grad or id(parameter) in later:
            found.setdefault((not decayed, -scales.get(name, 1.0)), []).append(parameter)
    return [
        {"params": parameters, "lr": lr * -scale, "weight_decay": 0.0 if plain else weight_decay}
        for (plain, scale), parameters in sorted(found.items(), key=lambda group: group[0])
    ]


def _each(module: nn.Module, spared: str) -> Iterator[tuple[str, nn.Parameter, bool]]:
    """Every parameter once, as (name, parameter, whether it is decayed)."""
    seen = set()
    tokens: Any = getattr(module, "no_weight_decay", set)  # as timm's networks name them
    named = tokens() if spared == "vectors" else ()
    for path, owner in module.named_modules():
        for own, parameter in owner.named_parameters(recurse=False):
            name = f"{path}.{own}".lstrip(".")
            normalizing = hasattr(owner, "running_mean")  # synchronized batch norms have it, too
            if spared == "vectors":
                spare = parameter.ndim <= 1 or own == "bias" or any(fnmatch(name, pattern) for pattern in named)
            else:
                spare = (normalizing and spared == "batch_norm") or isinstance(owner, GlobalPool)
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter, not spare


def layer_scales(network: nn.Module, decay: float) -> dict[str, float]:
    """The factor of each parameter's rate, by name: 1 in the last layer, less by `decay` with each before it.

    Layers are those that timm's networks name (as in BEiT); of others, each twelve parameters.
    """
    matcher: Any = getattr(network, "group_matcher", None)
    if matcher is None:
        layers = {name: place // PARAMETERS for place, (name, _) in enumerate(network.named_parameters())}
    else:
        from timm.models import group_parameters

        layers = group_parameters(network, matcher(coarse=False), reverse=True)
    last = max(layers.values(), default=0)
    return {name: decay ** (last - layer) for name, layer in layers.items()}
