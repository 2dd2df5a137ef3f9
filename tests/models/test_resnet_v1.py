"""ResNet-50 with the stride first, against torchvision's ResNet-50 with its strides moved."""

import pytest
import torch
import torchvision
from torch import nn
from torchvision.transforms.v2.functional import normalize

from isosphere.models.preprocessing import CAFFE_INCEPTION, CAFFE_RESNET, IMAGENET
from isosphere.models.resnet_v1 import ResNet50V1


@pytest.fixture(scope="module")
def oracle() -> nn.Module:
    """torchvision's resnet50, stride moved from the 3x3 to the first 1x1, eps 1e-3, with lively statistics."""
    torch.manual_seed(0)
    network = torchvision.models.resnet50(weights=None)
    network.fc = nn.Identity()
    for module in network.modules():
        if isinstance(module, torchvision.models.resnet.Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.0)
    return network.eval()


def test_same_features_as_the_oracle_from_its_own_state_dict(oracle: nn.Module) -> None:
    network = ResNet50V1().eval()
    network.load_state_dict(oracle.state_dict(), strict=True)
    images = torch.randn(2, 3, 97, 70)
    with torch.no_grad():
        features, expected = network(images), oracle(images)
    assert features.shape == (2, network.num_features)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


def test_the_usual_form_would_differ(oracle: nn.Module) -> None:
    later = torchvision.models.resnet50(weights=None)
    later.fc = nn.Identity()
    later.load_state_dict(oracle.state_dict())
    images = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        assert (later.eval()(images) - oracle(images)).norm() > 0.05 * oracle(images).norm()


def test_half_precision_convolutions_without_counters_load_strictly(oracle: nn.Module) -> None:
    state = {key: value for key, value in oracle.state_dict().items() if "num_batches" not in key}
    state = {key: value.half() if value.ndim == 4 else value for key, value in state.items()}
    network = ResNet50V1()
    network.load_state_dict(state, strict=True)
    assert network.layer3[0].conv1.weight.dtype == torch.float32
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032 - 2048 * 1000 - 1000


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_preprocessing_equals_numpy_arithmetic(dtype: torch.dtype) -> None:
    images = torch.randint(0, 256, (2, 3, 4, 5)).to(dtype)
    red, green, blue = images.double().numpy().transpose(1, 0, 2, 3)
    caffe = CAFFE_RESNET(images)
    assert torch.allclose(caffe[:, 0].double(), torch.from_numpy(blue - 103.939), atol=1e-4)
    assert torch.allclose(caffe[:, 2].double(), torch.from_numpy(red - 123.68), atol=1e-4)
    assert torch.equal(CAFFE_INCEPTION(images)[:, 1].double(), torch.from_numpy(green - 117))
    oracle = normalize(images.float() / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(IMAGENET(images), oracle, rtol=1e-5, atol=1e-5)
    assert IMAGENET(images).is_contiguous(memory_format=torch.channels_last)
