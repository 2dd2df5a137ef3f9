"""Parts of a run that are not ours, as a user's module has them, and a run of nothing else."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import isosphere

SMALL = {"loop": {"steps": 12, "eval_every": 6, "save_every": 4, "log_every": 1, "workers": 0}, "device": "cpu",
         "batches": {"size": 12, "per_class": 3}, "optimizer": {"lr": 1e-2}}  # fmt: skip


class Points(Dataset):
    """Float images of 8 classes, jittered anew each time by three libraries' random numbers."""

    def __init__(self, classes: int = 8, size: int = 5) -> None:
        self.centers = torch.randn(classes, 1, size, 5, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 6 * len(self.centers)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.randn(1, 5, 5) + np.random.rand() + random.random()
        label = index % len(self.centers)
        return self.centers[label] + 0.1 * noise, label


class Pictures(Dataset):
    """Pixels, with a function that makes of them what a dataset gives."""

    def __init__(self, form: Any = lambda pixels: pixels, labels: Any = int) -> None:
        self.form, self.label = form, labels

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        draw = np.random.default_rng(index % 8)
        pixels = draw.integers(0, 255, (3, 3, 3), dtype=np.uint8).repeat(6, 0).repeat(6, 1)  # (18, 18, 3)
        return self.form(pixels), self.label(index % 8)


class Net(nn.Module):
    """Gives (N, 6)."""

    def __init__(self, inputs: int = 25) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 6))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class PixelNet(Net):
    """The same of pixels (N, 3, 16, 16)."""

    def __init__(self) -> None:
        super().__init__(3 * 16 * 16)


class Head(nn.Module):
    """A criterion with weights of its own."""

    def __init__(self, dim: int, classes: int, scale: float = 8.0) -> None:
        super().__init__()
        self.weights, self.scale = nn.Parameter(torch.randn(classes, dim)), scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosines = nn.functional.normalize(embeddings) @ nn.functional.normalize(self.weights).T
        return nn.functional.cross_entropy(self.scale * cosines, labels)


def my_loss(embeddings: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """A criterion."""
    return isosphere.functional.triplet(embeddings, labels, margin)


def spread(embeddings: Tensor, weight: float = 0.1) -> Tensor:
    """A constraint."""
    return weight * isosphere.sphere.norms(embeddings).log().var()


class Spread(nn.Module):
    """The same as a module."""

    def forward(self, embeddings: Tensor) -> Tensor:
        return spread(embeddings)


def mean_cosine(embeddings: Tensor, labels: Tensor) -> dict[str, float]:
    """A metric."""
    return {"mean_cosine": float((isosphere.sphere.directions(embeddings).mean(0) ** 2).sum())}


def killed(step: int, values: dict[str, float]) -> None:
    """A callback that ends the process as `kill -9` does."""
    if step == 7:
        os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, **changes: Any) -> "isosphere.front.TrainedRun":
    """A run in which every part is the user's own."""
    torch.manual_seed(1)
    multi = isosphere.MultiSimilarityLoss()
    parts = {"data": Points(), "model": Net(), "loss": lambda f, y: multi(f, y) + 0 * f.sum(), "constraint": spread,
             "evaluate": mean_cosine}  # fmt: skip
    return isosphere.fit("photos", **parts | SMALL | {"folder": folder} | changes)


def fit(**parts: object) -> "isosphere.front.TrainedRun":
    """A short run on points."""
    torch.manual_seed(0)
    given = {"data": Points(), "model": Net()} | SMALL | {"loop": SMALL["loop"] | {"steps": 2}} | parts
    return isosphere.fit("photos", **given)
