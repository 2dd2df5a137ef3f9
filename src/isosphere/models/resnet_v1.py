"""ResNet-50 in its original form: a stage's stride is on the 1x1 of its first block, and batch norm's eps is 1e-3.

The widely used later form has the stride in the 3x3. There, weights of the MSRA, Caffe and Keras models give wrong
features without an error. Names are those of torchvision's `resnet50` without `fc`.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from .pooling import GlobalPool
from .preprocessing import CAFFE_RESNET

EPS = 1e-3
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width of the 3x3, number of blocks
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1 with the stride, 3x3, 1x1, and a shortcut, projected if shapes differ; (N, C, H, W) -> (N, C', H', W')."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width, EPS)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, EPS)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out, EPS)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out, EPS))

    def forward(self, inputs: Tensor) -> Tensor:
        shortcut = inputs if self.downsample is None else self.downsample(inputs)
        outputs = F.relu(self.bn1(self.conv1(inputs)))
        outputs = F.relu(self.bn2(self.conv2(outputs)))
        return F.relu(self.bn3(self.conv3(outputs)) + shortcut)


class ResNet50V1(nn.Module):
    """ResNet-50 with the stride first: preprocessed images (N, 3, H, W) -> pooled features (N, 2048)."""

    num_features = 2048
    preprocessing = CAFFE_RESNET
    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64, EPS)
        channels = 64
        for number, (width, blocks) in enumerate(STAGES, start=1):
            first = Bottleneck(channels, width, stride=1 if number == 1 else 2)
            channels = EXPANSION * width
            rest = (Bottleneck(channels, width, stride=1) for _ in range(blocks - 1))
            self.add_module(f"layer{number}", nn.Sequential(first, *rest))
        self.pool = GlobalPool()

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.maps(images))

    def maps(self, images: Tensor) -> Tensor:
        """The last layer before its average, (N, 3, H, W) -> (N, 2048, H / 32, W / 32)."""
        outputs = F.relu(self.bn1(self.conv1(images)))
        outputs = F.max_pool2d(outputs, 3, 2, padding=1)
        return self.layer4(self.layer3(self.layer2(self.layer1(outputs))))
