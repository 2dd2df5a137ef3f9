"""Every pooling against torch's own layers, in all kinds of networks; networks that have none are refused."""

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from isosphere import build_embedder
from isosphere.errors import BadArgument, Incompatible
from isosphere.models.backbones import build_backbone
from isosphere.models.pooling import KINDS, GlobalPool, set_pooling
from isosphere.recipes import schema
from raised import raised


def oracle(maps: Tensor, kind: str) -> Tensor:
    """Maps (N, C, H, W) by torch's functions; GeM as its authors wrote it."""
    average, largest = F.adaptive_avg_pool2d(maps, 1), F.adaptive_max_pool2d(maps, 1)
    gem = F.avg_pool2d(maps.clamp(min=1e-6).pow(3), maps.shape[-2:]).pow(1 / 3)
    return {"avg": average, "max": largest, "both": average + largest, "gem": gem}[kind].flatten(1)


def network_of(name: str, kind: str | None):
    torch.manual_seed(0)
    network = build_backbone(name, 64).network.eval()
    if kind is not None:
        set_pooling(network, kind, name)
    return network


IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "token"])
@pytest.mark.parametrize("name", ["small_cnn", "torchvision/resnet18", "test_resnet", "test_efficientnet_evos"])
@torch.no_grad()
def test_maps_are_pooled(name, kind):
    plain = network_of(name, None)
    maps = plain.maps(IMAGES) if hasattr(plain, "maps") else None
    if name.startswith("torchvision"):
        maps = torch.nn.Sequential(*list(plain.children())[:-2])(IMAGES)
    maps = plain.forward_features(IMAGES) if maps is None else maps
    found = network_of(name, kind)(IMAGES)
    torch.testing.assert_close(found, oracle(maps, kind), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["test_convnext", "swin_tiny_patch4_window7_224", "test_nfnet", "mobilenetv3_small_050"]
)
@torch.no_grad()
def test_layers_around_the_pooling_stay(name):
    """The head's norm, its convolution or channels last: the average is the network's own, the others differ."""
    own = network_of(name, None)(IMAGES)
    torch.testing.assert_close(network_of(name, "avg")(IMAGES), own, rtol=1e-4, atol=1e-5)
    for kind in ("max", "both", "gem"):
        found = network_of(name, kind)(IMAGES)
        assert found.shape == own.shape and not torch.allclose(found, own, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["test_vit", "beit_base_patch16_224", "eva02_tiny_patch14_224"])
@torch.no_grad()
def test_tokens_are_pooled_after_the_networks_last_norm(name, kind):
    options = {"depth": 1, "img_size": 56 if "14" in name else 64, "num_classes": 0}
    torch.manual_seed(0)
    network = timm.create_model(name, **options).eval()
    images = IMAGES[..., : options["img_size"], : options["img_size"]]
    norm, tokens = network.fc_norm, network.forward_features(images)  # (N, 1 + L, D)
    patches = tokens[:, 1:].transpose(1, 2)[..., None]
    set_pooling(network, kind, name)
    wanted = norm(tokens[:, 0] if kind == "token" else oracle(patches, kind))
    torch.testing.assert_close(network(images), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, kind, works", [
    ("test_resnet", "token", False), ("resnet50_ir", "gem", False), ("torchvision/densenet121", "avg", False),
    ("torchvision/vgg11", "max", False), ("deit_tiny_distilled_patch16_224", "avg", False),
    ("cait_xxs24_224", "avg", False), ("cait_xxs24_224", "token", True), ("gmixer_12_224", "avg", True),
    ("aimv2_large_patch14_224", "token", False),
])  # fmt: skip
def test_networks_without_such_a_pooling_are_refused(name, kind, works):
    with torch.device("meta"):
        network = build_backbone(name).network
    if works:
        assert set_pooling(network, kind, name) is None
        return
    with raised(Incompatible, fields=("model.pooling", "model.backbone")):
        set_pooling(network, kind, name)


def test_a_recipe_has_every_kind_and_no_other_is_taken():
    assert schema.Model.__dataclass_fields__["pooling"].type == schema.Pooling | None
    assert schema.Pooling.__args__ == KINDS
    with raised(BadArgument, name="pooling", value="mean"):
        build_embedder("small_cnn", pooling="mean")


def test_an_embedder_has_the_width_of_its_pooling_and_learns_the_power():
    model = build_embedder("small_cnn", dim=8, pooling="gem").train()
    images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    assert model.features(images).shape == (4, 128) and "backbone.pool.power" in model.state_dict()
    model(images).square().sum().backward()
    assert model.backbone.pool.power.grad.abs() > 0
    plain = build_embedder("small_cnn", dim=8)
    assert not [name for name in plain.state_dict() if "pool" in name] and plain.features(images).shape == (4, 2048)


def test_gradients_of_gem_are_finite_where_nothing_was_seen():
    maps = torch.zeros(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    GlobalPool("gem").double()(maps).sum().backward()
    assert maps.grad.isfinite().all()
    positive = torch.rand(2, 3, 2, 2, dtype=torch.float64) + 0.1
    torch.autograd.gradcheck(GlobalPool("gem").double(), positive.requires_grad_())
