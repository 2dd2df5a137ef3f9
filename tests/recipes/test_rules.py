"""Recipes by rule: whatever the images, the recipe is one that can be trained, and the reasons say what it has."""

from dataclasses import replace
from itertools import product

import pytest

from isosphere.recipes import compatible, schema
from isosphere.recipes.rules import FEW, HUB, Facts, choose, explained

PHOTOS = Facts(images=8000, classes=100, per_class=80, height=500, width=600, gpu=True, cores=4)
WITH = replace(PHOTOS, backbone="resnet50.tv_in1k", weights=HUB, features=2048, side=224)
MANY = [
    Facts(
        classes * per_class, classes, per_class, *shape, gpu, 2, *split, backbone, weights, features, side, asked, batch
    )
    for classes, per_class, shape, gpu, split, (backbone, weights, features, side), asked, batch in product(
        (2, 3, 9, 15, 16, 40, 5000), (2, 30), ((64, 64), (128, 64), (3000, 2000), (40, 900)), (True, False),
        ((None, False, False), ((100, 8), True, False), ((100, 8), False, True)),
        (("", "", 0, 0), ("vit_tiny_patch16_224", HUB, 192, 224), ("resnet50_v1", "w.pth", 2048, 224)),
        (None, (96, 48)), (0, 12),
    )
]  # fmt: skip


def test_every_recipe_can_be_trained():
    assert len(MANY) > 3000
    for facts in MANY:
        recipe, choices = choose(facts, schema.Folder("photos"))
        compatible.check(recipe)
        data, batches = recipe.data, recipe.batches
        assert max(data.sides) <= 2 * data.shorter and data.shorter >= min(data.sides)
        images, classes = facts.training
        assert 1 <= batches.size // batches.per_class <= max(1, classes), facts
        assert batches.size == 12 or not facts.asked_batch
        assert len(choices) == 5 and all(choice.options for choice in choices)
        assert not facts.features or recipe.model.dim <= facts.features
        assert recipe.loop.eval_every * 9 < recipe.loop.steps <= recipe.loop.eval_every * 10
        assert (recipe.validation.held_out > 0) == (facts.validates and not facts.validation)
        assert recipe.constraint == schema.Baseline() and not isinstance(recipe.loss, type(None))


def fields(facts):
    """What the tables below name."""
    recipe = choose(facts, schema.Folder("photos")).recipe
    data, model = recipe.data, recipe.model
    return {
        "size": data.size, "fit": data.fit, "by": data.split_by, "backbone": model.backbone, "dim": model.dim,
        "start": model.head_start, "frozen": model.freeze_bn, "lr": recipe.optimizer.lr, "batch": recipe.batches.size,
        "per_class": recipe.batches.per_class, "steps": recipe.loop.steps, "held": recipe.validation.held_out,
        "optimizer": type(recipe.optimizer).__name__, "patience": recipe.loop.patience, "shared": data.allow_shared,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (PHOTOS, {"backbone": "small_cnn", "size": 64, "start": "random", "lr": 1e-3, "patience": 0}),
        (WITH, {"size": 224, "fit": "crop", "start": "pca", "dim": 512, "frozen": True, "lr": 1.25e-5, "patience": 5}),
        (WITH, {"batch": 120, "per_class": 4, "by": "classes", "held": 0.2}),
        (replace(WITH, gpu=False), {"batch": 60, "steps": 600}),
        (replace(WITH, height=128, width=64), {"size": "256x128", "fit": "squash"}),
        (replace(WITH, height=600, width=1000), {"size": "160x256", "fit": "squash"}),
        (replace(WITH, height=100, width=110), {"size": 160}),
        (replace(WITH, features=384), {"dim": 384}),
        (replace(WITH, classes=FEW - 1), {"by": "images", "batch": 120, "per_class": 8, "held": 0.2}),
        (replace(WITH, classes=24, per_class=20), {"by": "classes", "held": 4, "per_class": 15}),
        (replace(WITH, trained=(4000, 100), shared=True), {"shared": True, "held": 0.2, "by": "classes"}),
        (replace(WITH, trained=(4000, 50), validation=True), {"held": 0.0}),
        (replace(WITH, backbone="vit_small_patch14", height=900, width=400),
         {"optimizer": "AdamW", "fit": "pad", "size": 224, "frozen": False}),
        (replace(WITH, asked_batch=30), {"batch": 30, "per_class": 5}),
        (replace(WITH, asked_steps=25), {"steps": 25}),
        (replace(WITH, asked_size=(128, 128)), {"size": 128}),
    ],
)  # fmt: skip
def test_what_the_rules_choose(facts, wanted):
    found = fields(facts)
    assert {name: found[name] for name in wanted} == wanted


def test_what_was_asked_for_is_said():
    recipe = choose(WITH, schema.Folder("photos")).recipe
    said = {choice.part: choice for choice in explained(WITH, recipe, ["loop.steps"])}
    assert list(said) == ["network", "images", "split", "training", "constraint"]
    assert said["training"].why == "as asked" != said["network"].why
    own = replace(recipe, model=schema.OwnModel(path="a:b"), batches=schema.Shuffled())
    assert [choice.part for choice in explained(WITH, own, ())] == ["images", "split", "constraint"]
