"""A network of the user's own as an `Embedder`, with a head of ours only if asked."""

from typing import Any

import torch
from torch import Tensor, nn

from isosphere.errors import BadArgument, Incompatible, Option
from isosphere.models.embedder import PREPROCESSINGS, Embedder
from isosphere.models.frozen import freeze_batch_norm
from isosphere.models.preprocessing import IMAGENET, Preprocessing


class OwnEmbedder(Embedder):
    """Any module that gives (N, width): uint8 images are normalized before it, floats reach it as they are."""

    def __init__(self, network: nn.Module, width: int, preprocessing: Preprocessing, head: str, dim: int) -> None:
        super().__init__(network, width, preprocessing, head, width if head == "none" else dim)
        self.width = width

    def features(self, images: Tensor) -> Tensor:
        if not images.is_floating_point():
            images = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
            images = self.preprocessing(images.to(self.precision))
        return self.backbone(images.to(self.precision))

    def from_floats(self, pixels: Tensor) -> Tensor:
        return self.preprocessing(pixels)  # as floats reach the network as they are

    @property
    def precision(self) -> torch.dtype:
        found = (value.dtype for value in self.parameters() if value.is_floating_point())
        return next(found, torch.get_default_dtype())


def build_own_embedder(
    module: nn.Module, head: str, dim: int, freeze_bn: bool, preprocessing: str | None, width: int, images: Tensor
) -> OwnEmbedder:
    """The module behind the preprocessing of its weights, and a head if asked.

    It gives vectors of this width. If that is 0, `images` (N, C, H, W) show what it gives.
    """
    if not isinstance(module, nn.Module):
        raise BadArgument("model", type(module).__name__, "a torch.nn.Module, or a function that makes one")
    network = freeze_batch_norm(module) if freeze_bn else module
    settings = PREPROCESSINGS.get(preprocessing or "") or _settings(module)
    width = width or _width(OwnEmbedder(network, 0, settings, "none", 0), images)
    built = OwnEmbedder(network, width, settings, head, dim)
    if not any(parameter.requires_grad for parameter in built.parameters()):
        raise BadArgument("model", type(module).__name__, "a module with weights to train, or with a head of ours")
    return built


@torch.no_grad()
def _width(plain: OwnEmbedder, images: Tensor) -> int:
    """The length of what a network gives for images; it is left in the mode that it was in."""
    modes = {module: module.training for module in plain.modules()}
    try:
        found = plain.eval().features(images)
    except (RuntimeError, AssertionError, ValueError) as error:
        name, shape, reason = type(plain.backbone).__name__, tuple(images.shape), " ".join(str(error).split())
        raise Incompatible(
            ("model", "data"), f"{name} cannot take images {shape}: {reason}", (Option("data.size"), Option("model"))
        ) from error
    for module, mode in modes.items():
        module.training = mode
    if not isinstance(found, Tensor) or found.ndim != 2:
        given = f"{tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise BadArgument("model", given, "a module that gives embeddings of shape (N, D)")
    return found.shape[1]


def _settings(module: Any) -> Preprocessing:
    """The mean and std that timm's networks name, else ImageNet's."""
    settings = getattr(module, "pretrained_cfg", None) or {}
    if "mean" not in settings or "std" not in settings:
        return IMAGENET
    return Preprocessing(mean=tuple(settings["mean"]), std=tuple(settings["std"]))
