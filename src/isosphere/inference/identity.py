"""What makes two trained models the same: their weights, and what images go through before them."""

import hashlib
from typing import Any

import torch
from torch import nn

from isosphere.recipes import schema


def fingerprint(model: nn.Module) -> str:
    """A hash of all weights and buffers with their names, the same on every device."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def described_preprocessing(data: schema.Data) -> dict[str, Any]:
    """What decides how an image reaches the model, of the recipe's data."""
    held = {"size": getattr(data, "size", 112), "shorter": data.shorter}
    if data.fit != "crop":  # older galleries do not say it
        held["fit"] = data.fit
    if data.resize != "bilinear":
        held["interpolation"] = data.resize
    return {"fraction": data.fraction, "align": data.align} if data.framed else held
