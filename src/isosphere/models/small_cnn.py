"""A four-layer convolutional network that trains on two CPU cores: the default for small images."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

LAYERS = ((32, 2), (64, 2), (64, 1), (128, 2))  # channels and stride
GRID = 4


class SmallCNN(nn.Module):
    """Four 3x3 convolutions with batch norm, (N, 3, H, W) -> (N, 2048): a 4 x 4 grid, since strokes have places.

    With another pooling it gives (N, 128).
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels, stride in LAYERS:
            layers += [nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
            before = channels
        self.layers = nn.Sequential(*layers)
        self.pool: nn.Module = Grid()
        self.channels = before

    def maps(self, images: Tensor) -> Tensor:
        """The last layer, (N, 3, H, W) -> (N, 128, H / 8, W / 8)."""
        return self.layers(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.maps(images))

    @property
    def num_features(self) -> int:
        """Length of what it gives."""
        return self.channels * (GRID**2 if isinstance(self.pool, Grid) else 1)


class Grid(nn.Module):
    """Means of a 4 x 4 grid of cells, (N, C, H, W) -> (N, 16 C)."""

    def forward(self, features: Tensor) -> Tensor:
        for dim in (2, 3):
            features = torch.cat(list(_cells(features, dim)), dim)
        return features.flatten(1)


def _cells(features: Tensor, dim: int) -> Iterator[Tensor]:
    """Means of four stretches: adaptive average pooling, whose own backward pass is not deterministic on a GPU."""
    size = features.shape[dim]
    for cell in range(GRID):
        begin, end = cell * size // GRID, -(-(cell + 1) * size // GRID)
        yield features.narrow(dim, begin, end - begin).mean(dim, keepdim=True)
