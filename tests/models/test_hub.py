"""Weights of timm's hub, by timm's own way: from a folder in the hub's format, from the hub's cache, and offline."""

import json
import shutil
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from isosphere import build_embedder, load, load_run
from isosphere.errors import (
    BadArgument,
    DamagedFile,
    Incompatible,
    NotFound,
    Option,
    OtherRecipe,
    UnknownName,
    Unreachable,
)
from isosphere.export.folder import to_folder
from isosphere.inference import completed, described_preprocessing, evaluation_view
from isosphere.models import hub
from isosphere.models.backbones import build_backbone
from isosphere.models.expected import expects
from isosphere.recipes import options, schema
from isosphere.recipes.identity import alike
from isosphere.train.loop import fit
from raised import raised
from tiny import TINY, tiny_recipe

PLAIN = {key: value for key, value in TINY.items() if not key.startswith("data.")}

SETTINGS = {"input_size": [3, 96, 96], "mean": [0.5, 0.25, 0.125], "std": [0.1, 0.2, 0.3], "interpolation": "bicubic",
            "crop_pct": 0.75}  # fmt: skip
IMAGES = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def write_model(folder: Path, name: str = "test_resnet", **arguments: object) -> torch.nn.Module:
    """A network with random weights and a classifier, as a folder that the hub could hold."""
    torch.manual_seed(1)
    network = timm.create_model(name, num_classes=5, **arguments).eval()
    folder.mkdir(parents=True, exist_ok=True)
    known = {key: network.pretrained_cfg[key] for key in ("first_conv", "classifier") if key in network.pretrained_cfg}
    settings = SETTINGS | {"num_classes": 5} | known
    config = {"architecture": name, "num_classes": 5, "model_args": arguments, "pretrained_cfg": settings}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(network.state_dict(), folder / "model.safetensors")
    return network


@pytest.fixture
def offline(tmp_path, monkeypatch) -> Path:
    """No hub, and an empty cache of it; the folder of this cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def snapshot(cache: Path, repository: str) -> Path:
    """The folder of a repository in the hub's cache."""
    place = cache / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("c0ffee")
    return place / "snapshots" / "c0ffee"


def features(network: torch.nn.Module, mean: object = SETTINGS["mean"], std: object = SETTINGS["std"]) -> torch.Tensor:
    """What timm's network gives for the images, normalized by hand."""
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (mean, std))
    return network.forward_head(network.forward_features((IMAGES / 255 - mean) / std), pre_logits=True)


@torch.no_grad()
def test_a_folder_gives_its_weights_with_their_mean_and_std(tmp_path):
    network = write_model(tmp_path)
    model = build_embedder(f"local-dir:{tmp_path}", dim=8, pretrained=True).eval()
    torch.testing.assert_close(model.features(IMAGES), features(network), rtol=1e-4, atol=1e-5)
    scratch = build_embedder(f"local-dir:{tmp_path}", dim=8).eval()
    assert not torch.allclose(scratch.features(IMAGES), features(network)) and scratch.preprocessing.mean[0] == 0.5


@torch.no_grad()
def test_a_transformer_takes_another_size_as_timm_does(tmp_path):
    write_model(tmp_path, "test_vit", img_size=64)
    network = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=0, img_size=96).eval()
    model = build_embedder(f"local-dir:{tmp_path}", dim=8, pretrained=True, size=96).eval()
    torch.testing.assert_close(model.features(IMAGES), features(network), rtol=1e-4, atol=1e-5)
    assert build_embedder(f"local-dir:{tmp_path}").features(IMAGES[..., :64, :64]).shape == (2, 64)


@pytest.mark.parametrize("prefix", ["hf_hub", "hf-hub"])
@torch.no_grad()
def test_a_cached_repository_needs_no_hub(offline, prefix):
    network = write_model(snapshot(offline, "me/net"))
    model = build_embedder(f"{prefix}:me/net", dim=8, pretrained=True).eval()
    torch.testing.assert_close(model.features(IMAGES), features(network), rtol=1e-4, atol=1e-5)
    with raised(Unreachable, backbone=f"{prefix}:me/other", remedy=Option("model.weights", "FILE")):
        build_embedder(f"{prefix}:me/other", dim=8, pretrained=True)


@torch.no_grad()
def test_cached_weights_of_a_plain_name_need_no_hub(offline):
    cfg = timm.get_pretrained_cfg("test_resnet")
    network = write_model(snapshot(offline, cfg.hf_hub_id))
    saved = {name: value for name, value in network.state_dict().items() if not name.startswith("fc.")}
    classes = {"fc.weight": torch.zeros(cfg.num_classes, 96), "fc.bias": torch.zeros(cfg.num_classes)}
    save_file(saved | classes, next(offline.rglob("model.safetensors")))
    for name in ("test_resnet", "timm/test_resnet"):
        model = build_embedder(name, dim=8, pretrained=True).eval()
        torch.testing.assert_close(model.features(IMAGES), features(network, cfg.mean, cfg.std), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["test_resnet", "timm/resnet18.a1_in1k", "hf_hub:timm/resnet18.a1_in1k",
                                  "legacy_seresnet18"])  # fmt: skip
def test_a_hub_out_of_reach_is_one_error_that_names_the_file_way(offline, name, monkeypatch):
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda *_, **__: (_ for _ in ()).throw(OSError("offline")))
    monkeypatch.setenv("TORCH_HOME", str(offline))
    with raised(Unreachable, remedy=Option("model.weights", "FILE")) as caught:
        build_embedder(name, dim=8, pretrained=True)
    assert caught.value.backbone == name.removeprefix("timm/") and caught.value.code == 2


@pytest.mark.parametrize("name", ["small_cnn", "torchvision/resnet18"])
def test_networks_that_are_not_timms_have_no_weights_there(name):
    with raised(Incompatible, fields=("model.pretrained", "model.backbone")):
        build_embedder(name, pretrained=True)


def test_bad_folders(tmp_path):
    name = f"local-dir:{tmp_path}"
    with raised(BadArgument, name=Option("model.pretrained")):
        build_embedder("gmixer_12_224", pretrained=True)
    with raised(BadArgument, name=Option("model.backbone")):
        build_embedder("hf_hub:a/b/c", pretrained=True)
    with raised(NotFound, path=tmp_path / "config.json"):
        build_embedder(name)
    for text in ("{", "[]", '{"pretrained_cfg": {}}'):
        (tmp_path / "config.json").write_text(text)
        with raised(DamagedFile, path=tmp_path / "config.json"):
            build_embedder(name)
    (tmp_path / "config.json").write_text('{"architecture": "resnet5O"}')
    with raised(UnknownName, name="resnet5O"):
        build_embedder(name)
    write_model(tmp_path)
    for content in (b"torn", None):
        (tmp_path / "model.safetensors").unlink() if content is None else (tmp_path / "model.safetensors").write_bytes(
            content
        )
        with raised(DamagedFile, path=name):
            build_embedder(name, pretrained=True)


def test_a_run_needs_no_folder_and_no_hub_afterwards(tmp_path, offline):
    """Neither to be loaded nor to be taken up again."""
    write_model(tmp_path / "net", "test_vit", img_size=64)
    changes = {"model.backbone": f"local-dir:{tmp_path / 'net'}", "model.pretrained": "true", "data.size": 32,
               "loop.steps": 2}  # fmt: skip
    recipe = tiny_recipe("rendered", changes)
    run = fit(recipe, tmp_path / "run", "cpu")
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    before = load_run(tmp_path / "run", "cpu").embed(images)
    shutil.rmtree(tmp_path / "net")
    found = load_run(tmp_path / "run", "cpu")
    assert torch.equal(found.embed(images), before) and found.model.preprocessing.mean == tuple(SETTINGS["mean"])
    to_folder(found, tmp_path / "exported")
    again = load(tmp_path / "exported", "cpu")
    assert torch.equal(again.embed(images), before) and again.recipe.model.backbone == "local-dir:net"
    (tmp_path / "run" / "result.json").unlink()
    torch.save(saved | {"step": 1, "finished": False}, tmp_path / "run" / "checkpoint.pt")
    assert fit(recipe, tmp_path / "run", "cpu", resume=True)["last"].keys() == run["last"].keys()


def test_a_run_resizes_as_its_weights_ask_for(tmp_path, photos):
    """It finds that out once: neither a resume nor another look at the result asks again."""
    write_model(tmp_path / "net")
    fields = {"data": "Folder", "data.root": photos, "data.size": 32, "data.shorter": 36, "loop.steps": 2}
    fields |= {"model.backbone": f"local-dir:{tmp_path / 'net'}", "model.pretrained": True, "batches.size": 6}
    recipe = options.override(schema.Recipe(), {key: str(value) for key, value in (PLAIN | fields).items()})
    assert recipe.data.interpolation is None and recipe.data.resize == "bilinear"
    fit(recipe, tmp_path / "run", "cpu")
    run = load_run(tmp_path / "run", "cpu")
    assert run.recipe.data.interpolation == "bicubic"
    view = evaluation_view(run.recipe.data)
    image = torch.randint(0, 256, (3, 60, 80), dtype=torch.uint8)
    scaled = functional.resize(image, [36], InterpolationMode.BICUBIC, antialias=True)
    assert torch.equal(view(image), functional.center_crop(scaled, [32]))
    assert described_preprocessing(run.recipe.data)["interpolation"] == "bicubic"
    shutil.rmtree(tmp_path / "net")
    assert fit(recipe, tmp_path / "run", "cpu", resume=True)["last"] and alike(recipe, run.recipe)
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    torch.save(saved | {"step": 1, "finished": False}, tmp_path / "run" / "checkpoint.pt")
    fit(recipe, tmp_path / "run", "cpu", resume=True)
    assert load_run(tmp_path / "run", "cpu").recipe == run.recipe
    other = options.override(recipe, {"data.interpolation": "bilinear"})
    assert not alike(other, run.recipe)
    with pytest.raises(OtherRecipe):
        fit(other, tmp_path / "run", "cpu", resume=True)


@pytest.mark.parametrize("model", [{"model.weights": "a.pth"}, {}])
def test_without_hub_weights_images_are_resized_as_before(model):
    recipe = options.override(schema.Recipe(), {"data": "Folder", "model.backbone": "resnet50"} | model)
    assert completed(recipe) == recipe and evaluation_view(recipe.data).stored.interpolation == "bilinear"


# ---------------------------------------------------------------- what a backbone expects


def test_what_a_folder_expects_is_in_its_config(tmp_path):
    write_model(tmp_path)
    found = expects(f"local-dir:{tmp_path}")
    assert (found.size, found.shorter, found.interpolation, found.features) == (96, 128, "bicubic", 96)
    assert (found.mean, found.std) == (tuple(SETTINGS["mean"]), tuple(SETTINGS["std"]))


@pytest.mark.parametrize("name, size, shorter, interpolation, features", [
    ("vit_tiny_patch16_224.augreg_in21k", 224, 248, "bicubic", 192),
    ("tf_efficientnet_lite0", 224, 256, "bicubic", 1280),
    ("torchvision/resnet50", 224, 232, "bilinear", 2048), ("torchvision/inception_v3", 299, 342, "bilinear", 2048),
    ("resnet50_v1", 224, 256, "bilinear", 2048), ("se_resnet50_ir", 112, 112, "bilinear", 25088),
    ("resnet18_cifar", 32, 32, "bilinear", 512), ("small_cnn", None, None, "bilinear", 2048),
])  # fmt: skip
def test_what_backbones_expect(name, size, shorter, interpolation, features):
    found = expects(name)
    assert (found.size, found.shorter, found.interpolation, found.features) == (size, shorter, interpolation, features)
    with torch.device("meta"):
        network = build_backbone(name)
    assert (found.mean, found.std) == (network.preprocessing.mean, network.preprocessing.std)
    assert network.features == features


def test_no_network_is_built_to_know_that(monkeypatch):
    monkeypatch.setattr(torch.nn.init, "kaiming_normal_", lambda weight, **_: None if weight.is_meta else pytest.fail())
    assert expects("resnet50").features == 2048


def test_sources_are_reported_from_names():
    names = ["hf_hub:a/b", "hf-hub:a/b", "local-dir:x", "resnet18", "timm/resnet18", "package.module:Network"]
    assert [hub.is_source(name) for name in names] == [True] * 3 + [False] * 3
    assert schema.Model("hf_hub:a/b").backbone == "hf_hub:a/b"
