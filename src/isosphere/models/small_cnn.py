"""A four-layer convolutional network that trains on two CPU cores: the default for small images."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Four 3x3 convolutions with batch norm, (N, 3, H, W) -> (N, features)."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)):
        super().__init__()
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(zip((3, *widths), widths, strict=False)):
            layers += [nn.Conv2d(before, after, 3, 2 if number else 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.num_features = widths[-1]

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)
