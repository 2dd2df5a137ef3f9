"""Facts about somebody's images, and runs by rule from the command line and from Python."""

import shutil

import pytest
import torch
from PIL import Image

import isosphere
from commands import isosphere as command
from commands import refusal
from isosphere.data.decoding import shape_of
from isosphere.errors import BadUsage, TooFewClasses
from isosphere.models import hub
from isosphere.models.expected import named_like
from isosphere.recipes import rules, schema
from isosphere.runs import read_recipe
from isosphere.train import facts
from isosphere.train.facts import by_rule, gathered


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    """Nothing is at hand but files."""
    monkeypatch.setattr(facts, "is_at_hand", lambda name: False)


def test_facts_of_a_folder(photos):
    found = gathered(str(photos), {"loop.steps": "7", "batches.size": "12", "data.size": "16x12"}, "cpu")
    assert (found.images, found.classes, found.per_class, found.height, found.width) == (50, 10, 5, 24, 28)
    assert (found.gpu, found.weights, found.backbone, found.trained) == (False, "", "", None)
    assert (found.asked_size, found.asked_batch, found.asked_steps) == ((16, 12), 12, 7)


def test_facts_of_a_given_split(photos, tmp_path):
    for number, folder in enumerate(sorted(photos.iterdir())):
        for part in [("train", "test"), ("train",), ("val",)][min(number, 5) // 2 % 3]:
            shutil.copytree(folder, tmp_path / part / folder.name)
    found = gathered(str(tmp_path), {}, "cpu")
    assert found.shared and found.validation and found.trained == (20, 4)
    recipe = by_rule(str(tmp_path), {}, "cpu").recipe
    assert recipe.data.allow_shared and recipe.validation == schema.Validation()


@pytest.mark.parametrize(
    ("file", "backbone"),
    [
        ("mobilenet_v2.safetensors", "mobilenet_v2"), ("a/resnet50-0676ba61.pth", "resnet50"),
        ("efficientnet_lite0_ra-37913777.pth", "efficientnet_lite0"), ("resnet50_msra.safetensors", "resnet50_v1"),
        ("my_weights.pth", ""),
    ],
)  # fmt: skip
def test_weight_files_are_named_after_their_network(file, backbone):
    assert named_like(file) == backbone


def test_weights_come_from_a_file_or_from_the_hub(photos, monkeypatch):
    changes = {"model.weights": "w/mobilenet_v2.safetensors"}
    found = gathered(str(photos), changes, "cpu")
    assert (found.backbone, found.weights, found.features) == ("mobilenet_v2", "w/mobilenet_v2.safetensors", 1280)
    recipe = by_rule(str(photos), changes, "cpu").recipe
    assert (recipe.model.backbone, recipe.model.head_start) == ("mobilenet_v2", "pca")
    monkeypatch.setattr(facts, "is_at_hand", lambda name: True)
    recipe = by_rule(str(photos), {}, "cpu").recipe
    assert recipe.model.pretrained and recipe.model.backbone == rules.NETWORKS[False]
    recipe = by_rule(str(photos), {"model.backbone": "resnet18"}, "cpu").recipe
    assert recipe.model.pretrained and (recipe.model.backbone, recipe.model.dim) == ("resnet18", 512)


def test_networks_of_the_rules_have_weights_on_the_hub():
    for name in rules.NETWORKS.values():
        assert hub._known(name)["hf_hub_id"].startswith("timm/")


def test_a_hub_that_is_not_there_is_not_at_hand(monkeypatch):
    def gone(name):
        raise hub._unreachable(name, OSError("no route"))

    monkeypatch.setattr(hub, "_reach", gone)
    monkeypatch.setattr(hub, "_cached", lambda place, files: None)
    assert not hub.is_at_hand("resnet50.tv_in1k") and not hub.is_at_hand("small_cnn")
    monkeypatch.setattr(hub, "_cached", lambda place, files: "file")
    assert hub.is_at_hand("resnet50.tv_in1k")


def test_shapes_are_read_upright_from_headers(tmp_path):
    image = Image.new("RGB", (30, 20))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif)
    image.save(tmp_path / "plain.jpg")
    (tmp_path / "broken.jpg").write_text("no image")
    found = [shape_of(tmp_path / f"{name}.jpg") for name in ("turned", "plain", "broken", "absent")]
    assert found == [(30, 20), (20, 30), None, None]


def test_a_run_by_rule_says_its_choices_and_is_called_as_the_images(photos, tmp_path):
    done = command("train", photos, "--device", "cpu", "--loop.steps", "2", folder=tmp_path)
    for part in ("network", "images", "split", "training", "constraint"):
        assert f"isosphere: {part}: " in done.stderr
    recipe = read_recipe(tmp_path / "runs" / f"{photos.name}-seed0")
    assert recipe.data.split_by == "images" and recipe.loop.steps == 2
    assert recipe.validation.held_out == 0, "of three images of a class two are too many to hold out"
    assert "untrained backbone" in done.stdout


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_few_classes_work_without_a_flag(classes, photos, tmp_path):
    for folder in sorted(photos.iterdir())[:classes]:
        shutil.copytree(folder, tmp_path / "few" / folder.name)
        for number in range(5, 12):
            noise = torch.randint(255, (24, 28, 3), dtype=torch.uint8).numpy()
            Image.fromarray(noise).save(tmp_path / "few" / folder.name / f"{number}.png")
    run = isosphere.fit(str(tmp_path / "few"), folder=tmp_path / "run", loop={"steps": 2}, device="cpu")
    assert run.recipe.data.split_by == "images" and 0 <= run.metrics["recall@1"] <= 1
    assert torch.isfinite(run.encode(str(tmp_path / "few" / folder.name / "0.png"))).all()


def test_one_class_is_refused(photos, tmp_path):
    shutil.copytree(photos / "class0", tmp_path / "one" / "class0")
    found = refusal("train", tmp_path / "one", folder=tmp_path)
    assert isinstance(found, TooFewClasses) and found.found == 1
    found = refusal("train", tmp_path / "one", "--data.root", "x", folder=tmp_path)
    assert isinstance(found, BadUsage)
