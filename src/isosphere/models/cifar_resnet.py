"""ResNet-18 and ResNet-50 for images of 32 x 32: the stem is a 3x3 convolution of stride 1, no max-pool.

The layers are torchvision's, with its names and its initialization. No residual branch starts at zero. The paper's code
has the same network under other names. Features are 1/8 of the image's size before they are averaged. Pixels are
normalized by CIFAR-10's mean and std, or by CIFAR-100's if `build_embedder` is asked for them.
"""

from torch import nn

from .preprocessing import Preprocessing

CIFAR10 = Preprocessing(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
CIFAR100 = Preprocessing(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761))


def resnet18_cifar() -> nn.Module:
    """ResNet-18 with the stem for small images: preprocessed (N, 3, H, W) -> average-pooled features (N, 512)."""
    return _with_small_stem("resnet18")


def resnet50_cifar() -> nn.Module:
    """ResNet-50 with the stem for small images: preprocessed (N, 3, H, W) -> average-pooled features (N, 2048)."""
    return _with_small_stem("resnet50")


def _with_small_stem(name: str) -> nn.Module:
    import torchvision  # heavy: only where one of these is asked for

    network = torchvision.models.get_model(name, weights=None)
    network.num_features, network.preprocessing = network.fc.in_features, CIFAR10
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool, network.fc = nn.Identity(), nn.Identity()
    return network
