"""Which parameters are decayed, and at which rate layers learn: against timm's own groups."""

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import nn

from isosphere import build_embedder
from isosphere.models.backbones import build_backbone
from isosphere.models.groups import layer_scales, parameter_groups


def by_parameter(groups: list[dict]) -> dict[int, tuple[float, float]]:
    found = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert len(found) == sum(len(group["params"]) for group in groups), "each once"
    return found


@pytest.mark.parametrize("spared", ["batch_norm", "nothing"])
def test_learning_rates_and_weight_decay_by_group(spared):
    model = build_embedder("small_cnn", dim=8, pooling="gem")
    of = by_parameter(model.parameter_groups(lr=1.0, backbone_lr=0.5, weight_decay=0.1, spared=spared))
    assert len(of) == len(list(model.parameters()))
    for path, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            lr, decay = of[id(parameter)]
            assert lr == (0.5 if path.startswith("backbone") else 1.0), path
            kinds = (nn.BatchNorm1d, nn.BatchNorm2d) if spared == "batch_norm" else ()
            assert decay == (0.0 if isinstance(module, kinds) or path == "backbone.pool" else 0.1), path


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_convnext"])
def test_vectors_and_tokens_are_spared_as_in_timm(name):
    network = timm.create_model(name, num_classes=0)
    theirs = param_groups_weight_decay(network, 0.1, no_weight_decay_list=getattr(network, "no_weight_decay", set)())
    wanted = by_parameter([group | {"lr": 1.0} for group in theirs])
    assert by_parameter(parameter_groups(network, 1.0, 0.1, "vectors")) == wanted
    assert {decay for _, decay in wanted.values()} == {0.0, 0.1}


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_convnext"])
def test_layers_learn_at_the_rates_of_timm(name):
    network = timm.create_model(name, num_classes=0)
    theirs = param_groups_layer_decay(network, 0.0, layer_decay=0.75)
    wanted = {id(p): group["lr_scale"] * 0.01 for group in theirs for p in group["params"]}
    found = by_parameter(parameter_groups(network, 0.01, 0.0, layer_decay=0.75))
    assert {key: lr for key, (lr, _) in found.items()} == pytest.approx(wanted)
    assert max(wanted.values()) == 0.01 and len(set(wanted.values())) > 3


@pytest.mark.parametrize("name", ["resnet50_v1", "torchvision/resnet18"])
def test_networks_that_name_no_layers_learn_less_the_earlier(name):
    with torch.device("meta"):
        scales = list(layer_scales(build_backbone(name).network, 0.5).values())
    assert scales == sorted(scales) and scales[-1] == 1 and len(set(scales)) == -(-len(scales) // 12)


def test_what_rests_is_in_the_groups_and_a_rate_of_nothing_leaves_the_backbone_out():
    model = build_embedder("small_cnn", dim=8)
    every = by_parameter(model.parameter_groups(1.0, 0.5, 0.1))
    model.rest(True)
    assert by_parameter(model.parameter_groups(1.0, 0.5, 0.1)) == every
    head = {id(parameter) for parameter in model.head.parameters()}
    assert by_parameter(model.parameter_groups(1.0, 0.0, 0.1)).keys() == head


def test_a_backbone_at_rest_has_no_gradients_and_keeps_its_statistics_until_it_learns_again():
    model = build_embedder("torchvision/resnet18", dim=8, freeze_bn=False).train()
    model.backbone.conv1.weight.requires_grad_(False)  # by its owner, for good
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    model.rest(True)
    model.eval()
    model.train()
    assert not model.features(images).requires_grad
    model(images).sum().backward()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"head.0.running_mean", "head.0.running_var", "head.0.num_batches_tracked"}
    model.rest(False)
    model(images).sum().backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {"backbone.conv1.weight"} and model.backbone.bn1.training
