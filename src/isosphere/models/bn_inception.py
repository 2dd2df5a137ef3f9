"""BN-Inception, the paper's retrieval backbone, named as in the Caffe-derived file `bn_inception-52deb4733.pth`."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .pooling import GlobalPool
from .preprocessing import CAFFE_INCEPTION

# Output channels of each block's convolutions: 1x1, 3x3_reduce, 3x3, double_3x3_reduce, double_3x3_1 and _2, pool_proj.
# A block without 1x1 halves the resolution and passes its pooled input through.
BLOCKS = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}
MAX_POOLED = ("3c", "4e", "5b")  # the others pool by the average


def convolutions() -> Iterator[tuple[str, int, int, int, int]]:
    """Every convolution as (name, input channels, output channels, kernel, stride), in the order of the network."""
    yield "conv1_7x7_s2", 3, 64, 7, 2
    yield "conv2_3x3_reduce", 64, 64, 1, 1
    yield "conv2_3x3", 64, 192, 3, 1
    channels = 192
    for block, (single, reduced, middle, double_reduced, double, pooled) in BLOCKS.items():
        name, stride = f"inception_{block}", 1 if single else 2
        if single:
            yield f"{name}_1x1", channels, single, 1, 1
        yield f"{name}_3x3_reduce", channels, reduced, 1, 1
        yield f"{name}_3x3", reduced, middle, 3, stride
        yield f"{name}_double_3x3_reduce", channels, double_reduced, 1, 1
        yield f"{name}_double_3x3_1", double_reduced, double, 3, 1
        yield f"{name}_double_3x3_2", double, double, 3, stride
        if pooled:
            yield f"{name}_pool_proj", channels, pooled, 1, 1
        channels = single + middle + double + (pooled or channels)


class BNInception(nn.Module):
    """BN-Inception: preprocessed images (N, 3, H, W) -> pooled features (N, 1024), by default averages.

    With `classes` there is a `last_linear`, used by `logits` alone; without, a file's `last_linear` is passed over.
    """

    num_features = 1024
    preprocessing = CAFFE_INCEPTION

    def __init__(self, classes: int = 0) -> None:
        super().__init__()
        for name, channels, out, kernel, stride in convolutions():
            self.add_module(name, nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2))
            self.add_module(f"{name}_bn", nn.BatchNorm2d(out))
        if classes:
            self.last_linear = nn.Linear(self.num_features, classes)
        self.pool = GlobalPool()

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.maps(images))

    def maps(self, images: Tensor) -> Tensor:
        """The last layer before its average, (N, 3, H, W) -> (N, 1024, H / 32, W / 32)."""
        outputs = F.max_pool2d(self.unit("conv1_7x7_s2", images), 3, 2, ceil_mode=True)
        outputs = self.unit("conv2_3x3", self.unit("conv2_3x3_reduce", outputs))
        outputs = F.max_pool2d(outputs, 3, 2, ceil_mode=True)
        for block in BLOCKS:
            outputs = self.block(block, outputs)
        return outputs

    def logits(self, images: Tensor) -> Tensor:
        """Scores of the classes the weights were trained on, (N, 3, H, W) -> (N, classes)."""
        return self.last_linear(self(images))

    def unit(self, name: str, inputs: Tensor) -> Tensor:
        """One convolution with its batch norm and ReLU."""
        return F.relu(getattr(self, f"{name}_bn")(getattr(self, name)(inputs)))

    def block(self, block: str, inputs: Tensor) -> Tensor:
        """The four branches of one inception block (three where it halves the resolution), joined by channel."""
        name, halves = f"inception_{block}", not BLOCKS[block][0]
        middle = self.unit(f"{name}_3x3", self.unit(f"{name}_3x3_reduce", inputs))
        double = self.unit(f"{name}_double_3x3_1", self.unit(f"{name}_double_3x3_reduce", inputs))
        double = self.unit(f"{name}_double_3x3_2", double)
        if halves:
            return torch.cat((middle, double, F.max_pool2d(inputs, 3, 2, ceil_mode=True)), dim=1)
        pool = F.max_pool2d if block in MAX_POOLED else F.avg_pool2d
        pooled = self.unit(f"{name}_pool_proj", pool(inputs, 3, 1, padding=1))
        return torch.cat((self.unit(f"{name}_1x1", inputs), middle, double, pooled), dim=1)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: object) -> None:
        if not hasattr(self, "last_linear"):
            for key in ("weight", "bias"):
                state_dict.pop(f"{prefix}last_linear.{key}", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)
