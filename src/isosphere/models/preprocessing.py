"""What a backbone's weights expect of their input, as a value that travels with the backbone."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Preprocessing:
    """RGB images of 0..255 to what the weights expect: (channel * scale - mean) / std, in BGR order if so.

    `mean` and `std` are in the order of the output's channels. They are plain numbers, so a step can be captured in a
    CUDA graph. A backbone's state dict holds nothing but its weights.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    bgr: bool = False
    scale: float = 1 / 255

    @property
    def neutral(self) -> tuple[int, int, int]:
        """The RGB pixel of 0..255 that becomes 0."""
        red, green, blue = (round(min(max(mean / self.scale, 0), 255)) for mean in self.mean[:: -1 if self.bgr else 1])
        return red, green, blue

    def __call__(self, images: Tensor) -> Tensor:
        """Normalized float images, channels last in memory, from uint8 or float RGB ones of 0..255, (N, 3, H, W)."""
        planes = images.unbind(1)
        planes = planes[::-1] if self.bgr else planes
        settings = zip(planes, self.mean, self.std, strict=True)
        normalized = [plane * (self.scale / std) - mean / std for plane, mean, std in settings]
        return torch.stack(normalized, dim=-1).permute(0, 3, 1, 2)


CAFFE_RESNET = Preprocessing(mean=(103.939, 116.779, 123.68), bgr=True, scale=1.0)
CAFFE_INCEPTION = Preprocessing(mean=(104.0, 117.0, 123.0), bgr=True, scale=1.0)
UNIT = Preprocessing(mean=(0.0, 0.0, 0.0))
IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
