"""The ResNets for small images, against torchvision's of the same depth."""

import math

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from isosphere import build_embedder
from isosphere.errors import BadArgument
from isosphere.models.cifar_resnet import resnet18_cifar, resnet50_cifar
from raised import raised

CASES = [(resnet18_cifar, "resnet18", 512), (resnet50_cifar, "resnet50", 2048)]


def lively(network: nn.Module) -> nn.Module:
    """The network in evaluation mode with statistics that are not 0 and 1."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return network.eval()


@pytest.mark.parametrize(("build", "name", "features"), CASES)
def test_torchvisions_layers_after_another_stem(build, name, features):
    network, oracle = lively(build()), torchvision.models.get_model(name, weights=None).eval()
    state = network.state_dict()
    assert set(state) == {key for key in oracle.state_dict() if not key.startswith("fc.")}
    oracle.load_state_dict({**state, "conv1.weight": oracle.conv1.weight}, strict=False)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = oracle.bn1(F.conv2d(images, state["conv1.weight"], stride=1, padding=1)).relu()
        assert expected.shape == (2, 64, 32, 32)
        for layer in (oracle.layer1, oracle.layer2, oracle.layer3, oracle.layer4):
            expected = layer(expected)
        assert expected.shape == (2, features, 4, 4)
        torch.testing.assert_close(network(images), expected.mean((2, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("build", "name", "features"), CASES)
def test_parameters_are_torchvisions_less_classifier_and_stem(build, name, features):
    network = build()
    published = {"resnet18": 11_689_512, "resnet50": 25_557_032}[name]
    stem, classifier = 64 * 3 * (7 * 7 - 3 * 3), 1000 * features + 1000
    assert sum(parameter.numel() for parameter in network.parameters()) == published - stem - classifier
    assert network.num_features == features


def test_initialization_has_no_dead_branch_and_scales_with_the_fan_out():
    network = resnet18_cifar()
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms and all((module.weight == 1).all() and (module.bias == 0).all() for module in norms)
    assert abs(network.conv1.weight.std() / math.sqrt(2 / (64 * 3 * 3)) - 1) < 0.1


CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR100 = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


@pytest.mark.parametrize("asked, statistics", [(None, CIFAR10), ("cifar10", CIFAR10), ("cifar100", CIFAR100)])
def test_the_embedder_has_cifars_statistics_and_simclrs_head(asked, statistics):
    model = build_embedder("resnet18_cifar", head="mlp", dim=128, preprocessing=asked).eval()
    first, _, last = model.head
    assert (first.in_features, first.out_features, last.in_features, last.out_features) == (512, 512, 512, 128)
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    normalize = torchvision.transforms.Normalize(*statistics)
    with torch.no_grad():
        expected = last(F.relu(first(model.backbone(normalize(images / 255)))))
        torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-5)
    with raised(BadArgument, name="preprocessing", value="cifar20"):
        build_embedder("small_cnn", preprocessing="cifar20")
