"""Backbones by name, heads, learning rates of their own, and weight files that are safe to load."""

import os
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from isosphere import build_embedder
from isosphere.errors import BadArgument, DamagedFile, NotFound, UnfitWeights, UnknownName, UnsafeFile
from isosphere.models.backbones import OURS, build_backbone
from isosphere.models.se_resnet_ir import FACE_BACKBONES
from isosphere.models.weights import read_weights
from isosphere.recipes import options, schema
from raised import raised

BACKBONES = ["small_cnn", "timm/resnet18", "resnet10t", "torchvision/mobilenet_v2", "regnet_y_400mf"]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("head", ["bn_fc", "fc", "mlp"])
def test_images_in_raw_embeddings_out(backbone, head):
    model = build_embedder(backbone, head, dim=24)
    for channels in (1, 3):
        images = torch.randint(0, 256, (3, channels, 64, 64), dtype=torch.uint8)
        embeddings = model(images)
        assert embeddings.shape == (3, 24) and embeddings.dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            assert model(images).dtype == torch.float32
    assert (embeddings.norm(dim=1) - 1).abs().max() > 1e-3, "not normalized"


@pytest.mark.parametrize(
    ("low", "high", "dtype", "warned"),
    [(0, 1, torch.float32, 1), (-2, 2, torch.float32, 1), (0, 1, torch.bfloat16, 1), (0, 255, torch.float32, 0),
     (0, 0, torch.float32, 0), (0, 1, torch.uint8, 0)],
)  # fmt: skip
def test_floats_that_are_no_pixels_are_warned_of_once(low, high, dtype, warned, recwarn):
    model = build_embedder("small_cnn", dim=8).eval()
    for _ in range(2):
        model(torch.linspace(low, high, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).to(dtype))
    assert [one.category for one in recwarn] == [UserWarning] * warned


def test_compiled_models_read_no_pixels():
    model = build_embedder("small_cnn", dim=8).eval()
    torch.compile(model, backend="eager", fullgraph=True)(torch.rand(2, 3, 16, 16))
    assert not model.knows_range


@pytest.mark.parametrize("backbone", ["vit_tiny_patch16_224", "timm/mixer_s32_224"])
def test_a_backbone_of_one_size_is_made_for_the_images(backbone):
    images = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8)
    assert build_embedder(backbone, dim=8, size=96)(images).shape == (2, 8)
    with pytest.raises(AssertionError):
        build_embedder(backbone, dim=8)(images)


def test_a_backbone_of_any_size_is_what_it_is_without_one():
    built = []
    for size in (96, None):
        torch.manual_seed(0)
        built.append(build_backbone("timm/resnet10t", size)[0].state_dict())
    assert all(torch.equal(value, built[1][name]) for name, value in built[0].items())


def test_frozen_batch_norm_keeps_its_statistics_and_the_heads_trains():
    model = build_embedder("torchvision/resnet18", dim=8, freeze_bn=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    model(images).sum().backward()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"head.0.running_mean", "head.0.running_var", "head.0.num_batches_tracked"}
    assert not any("bn" in name for name, p in model.backbone.named_parameters() if p.requires_grad)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_load_and_give_torchvisions_features(tmp_path, suffix):
    source = torchvision.models.resnet18(num_classes=7).eval()
    path = str(tmp_path / f"weights{suffix}")
    if suffix == ".safetensors":
        save_file(source.state_dict(), path)
    else:
        torch.save({"state_dict": source.state_dict()}, path)
    model = build_embedder("torchvision/resnet18", weights=path).eval()
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalized = (images / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    source.fc = nn.Identity()
    torch.testing.assert_close(model.backbone(model.preprocessing(images)), source(normalized), rtol=1e-3, atol=1e-4)


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch pwned",))


def test_bad_weight_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"conv1.weight": Malicious()}, "evil.pth")
    with raised(UnsafeFile, path="evil.pth"):
        read_weights("evil.pth")
    assert not Path("pwned").exists()
    Path("torn.pth").write_bytes(b"PK\x03\x04 torn")
    with raised(DamagedFile, path="torn.pth"):
        read_weights("torn.pth")
    Path("torn.safetensors").write_bytes(b"torn")
    with raised(DamagedFile, path="torn.safetensors"):
        read_weights("torn.safetensors")
    with raised(NotFound, path="gone.pth"):
        read_weights("gone.pth")
    torch.save([1, 2], "list.pth")
    with raised(DamagedFile, path="list.pth"):
        read_weights("list.pth")
    state = build_backbone("small_cnn")[0].state_dict()
    torch.save({"other.weight": torch.ones(1)} | state, "more.pth")
    with raised(UnfitWeights, path="more.pth", problem="unknown", keys=["other.weight"]):
        build_embedder("small_cnn", weights="more.pth")
    torch.save(state | {"layers.0.weight": state["layers.0.weight"] * torch.nan}, "nan.pth")
    with raised(UnfitWeights, problem="not finite", keys=["layers.0.weight"]):
        build_embedder("small_cnn", weights="nan.pth")
    state.pop("layers.0.weight")
    torch.save(state, "less.pth")
    with raised(UnfitWeights, problem="missing", keys=["layers.0.weight"]):
        build_embedder("small_cnn", weights="less.pth")


def test_side_branches_are_left_out_of_training():
    embeddings = build_embedder("torchvision/googlenet", dim=8).train()(torch.zeros(2, 3, 96, 96, dtype=torch.uint8))
    assert embeddings.shape == (2, 8)


def test_our_networks_are_named_in_the_help():
    (reason,) = [its for field, _, _, its in options.describe(schema.Model()) if field == "backbone"]
    assert all(name in reason for name in OURS.keys() - FACE_BACKBONES.keys()) and "se_resnet50_ir" in reason


def test_unknown_names():
    with raised(UnknownName, what="backbone", name="resnet5O") as caught:
        build_embedder("resnet5O")
    assert "resnet50" in caught.value.known
    with raised(BadArgument, name="head", value="bnfc"):
        build_embedder("small_cnn", head="bnfc")


@pytest.mark.parametrize("name", ["resnet50_v1", "bn_inception"])
def test_maps_are_what_the_features_are_the_mean_of(name):
    torch.manual_seed(0)
    network = build_backbone(name)[0].eval()
    images = torch.randn(2, 3, 96, 96)
    with torch.no_grad():
        maps = network.maps(images)
        torch.testing.assert_close(maps.mean((2, 3)), network(images))
    assert maps.shape[1] == network.num_features and maps.shape[2] == 3 and maps.min() >= 0
