"""ResNet-IR, with squeeze-and-excitation or without: ArcFace's backbones for faces of 112 x 112 pixels.

ArcFace's text writes the unit as BN-Conv-BN-PReLU-Conv-BN. The usual SE-ResNet50-IR has 43,797,696 parameters. That is
a unit without the batch norm in the middle. So it is left out here, unless a name ends in `_bn`. The batch norm at the
end and the head "dropout_fc_bn" make ArcFace's output "E": BN, dropout, FC, BN.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from isosphere.errors import BadArgument

from .preprocessing import Preprocessing

WIDTHS = (64, 128, 256, 512)
BLOCKS = {  # units of each stage; with two convolutions a unit, the stem and the head's layer they make the depth
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    74: (3, 6, 24, 3),
    90: (3, 8, 30, 3),
    100: (3, 13, 30, 3),
}
SIZE, REDUCTION = 112, 16
FACES = Preprocessing(mean=(127.5, 127.5, 127.5), std=(128.0, 128.0, 128.0), scale=1.0)


class Excitation(nn.Module):
    """Squeeze and excitation: each channel times a gate that depends on all channels' means, (N, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels // REDUCTION, 1, bias=False)
        self.excite = nn.Conv2d(channels // REDUCTION, channels, 1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        means = inputs.mean(dim=(2, 3), keepdim=True)  # (N, C, 1, 1)
        return inputs * self.excite(F.relu(self.squeeze(means))).sigmoid()


class UnitIR(nn.Module):
    """The improved residual unit, with the stride on its second convolution.

    (N, C, H, W) -> (N, width, H / stride, W / stride). The shortcut is projected if the channels differ, else
    subsampled.
    """

    def __init__(self, channels: int, width: int, stride: int, se: bool, middle_norm: bool) -> None:
        super().__init__()
        self.stride = stride
        self.residual = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            *([nn.BatchNorm2d(width)] if middle_norm else []),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            *([Excitation(width)] if se else []),
        )
        self.projection = None
        if channels != width:
            self.projection = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.projection is not None:
            return self.residual(inputs) + self.projection(inputs)
        return self.residual(inputs) + inputs[:, :, :: self.stride, :: self.stride]


class ResNetIR(nn.Module):
    """ResNet-IR of a depth in BLOCKS: preprocessed faces (N, 3, 112, 112) -> the flattened 7 x 7 map (N, 25088)."""

    num_features = WIDTHS[-1] * (SIZE // 16) ** 2
    preprocessing = FACES

    def __init__(self, depth: int, se: bool = False, middle_norm: bool = False) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise BadArgument("depth", depth, f"one of {', '.join(map(str, BLOCKS))}")
        channels = WIDTHS[0]
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.PReLU(channels)
        )
        stages = []
        for width, blocks in zip(WIDTHS, BLOCKS[depth], strict=True):
            first = UnitIR(channels, width, 2, se, middle_norm)
            rest = (UnitIR(width, width, 1, se, middle_norm) for _ in range(blocks - 1))
            stages.append(nn.Sequential(first, *rest))
            channels = width
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(channels)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != (SIZE, SIZE):
            raise BadArgument("images", tuple(images.shape[2:]), f"faces of {SIZE} x {SIZE} pixels")
        return self.norm(self.stages(self.stem(images))).flatten(1)  # (N, 512, 7, 7) -> (N, 25088)


FACE_BACKBONES = {
    f"{prefix}resnet{depth}_ir{suffix}": partial(ResNetIR, depth, se=bool(prefix), middle_norm=bool(suffix))
    for prefix in ("", "se_")
    for depth in BLOCKS
    for suffix in ("", "_bn")
}
