"""Augmentation in a run: the same whatever reads the images, repeated on resuming, shared out over ranks."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ranks
from isosphere.data.augmentation import AFTER_VIEWS
from isosphere.data.transforms import uniforms
from isosphere.errors import Incompatible, Interrupted
from isosphere.models.preprocessing import CAFFE_INCEPTION, IMAGENET, UNIT
from isosphere.models.se_resnet_ir import FACES
from isosphere.recipes import override, schema
from isosphere.recipes.own import Objects
from isosphere.train import loop, own
from isosphere.train.build import build_augmentation
from own_parts import Points
from raised import raised
from tiny import TINY

EVERY = {"data.jitter": "0.4,0.4,0.4,0.1", "data.randaugment": "9", "data.erasing": "0.5"}


def recipe_of(photos: Path, changes: dict[str, object] | None = None) -> schema.Recipe:
    fields = {key: value for key, value in TINY.items() if not key.startswith("data.")}
    fields |= {"batches.size": "12", "loop.steps": "4", "loop.eval_every": "4", "loop.workers": "0"}
    fields |= {"data": "Folder", "data.root": str(photos), "data.size": "16", "data.shorter": "20"} | EVERY
    return override(schema.Recipe(), fields | {key: str(value) for key, value in (changes or {}).items()})


def seen(recipe: schema.Recipe) -> list[torch.Tensor]:
    """What the network gets at each step."""
    run, found = loop.prepare(recipe, torch.device("cpu")), []
    run.network.train()
    run.network.register_forward_pre_hook(lambda module, given: found.append(given[0].clone()))
    for batch in loop.training_feed(run):
        loop.train_step(run, batch.images, batch.labels)
        run.step += 1
    return found


def test_crops_are_augmented_by_the_numbers_of_their_step_and_place(photos):
    recipe = recipe_of(photos)
    plain, found = seen(override(recipe, dict.fromkeys(EVERY, 0) | {"data.jitter": "0,0,0,0"})), seen(recipe)
    augmentation = build_augmentation(recipe.data, loop.prepare(recipe, torch.device("cpu")).model)
    for step, (before, after) in enumerate(zip(plain, found, strict=True)):
        numbers = uniforms(recipe.seed, step, torch.arange(12), augmentation.draws, AFTER_VIEWS)
        assert torch.equal(augmentation(before, numbers), after) and not torch.equal(before, after)
        assert after.dtype == torch.uint8


def test_workers_change_nothing(photos):
    one, two = (seen(recipe_of(photos, {"loop.workers": workers, "loop.steps": 2})) for workers in (0, 2))
    assert all(map(torch.equal, one, two))


def test_ranks_see_what_one_process_sees(photos):
    recipe = recipe_of(photos, {"loop.steps": 2})
    whole, parts = seen(recipe), ranks.on_ranks(2, seen, recipe)
    for step, images in enumerate(whole):
        assert torch.equal(torch.cat([part[step] for part in parts]), images)


def test_a_run_that_was_stopped_sees_the_same(photos, tmp_path, monkeypatch):
    recipe = recipe_of(photos)
    loop.fit(recipe, tmp_path / "whole", "cpu")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 2)
        loop.fit(recipe, tmp_path / "broken", "cpu")
    loop.fit(recipe, tmp_path / "broken", "cpu", resume=True)
    whole, broken = (torch.load(tmp_path / run / "checkpoint.pt", weights_only=True) for run in ("whole", "broken"))
    assert all(torch.equal(value, broken["model"][name]) for name, value in whole["model"].items())


def test_views_without_labels_jitter_by_themselves(photos):
    model = loop.prepare(recipe_of(photos), torch.device("cpu")).model
    assert build_augmentation(schema.Unlabeled(str(photos)), model) is None
    assert build_augmentation(schema.Folder(str(photos)), model) is None
    assert build_augmentation(schema.Folder(str(photos), jitter=(0, 0, 0, 0.1)), model).jitter == (0, 0, 0, 0.1)


@pytest.mark.parametrize("settings", [IMAGENET, UNIT, CAFFE_INCEPTION, FACES])
def test_what_is_erased_becomes_nothing(settings):
    pixel = torch.tensor(settings.neutral, dtype=torch.uint8).view(1, 3, 1, 1)
    assert settings(pixel).abs().max() <= max(0.51 * settings.scale / std for std in settings.std)


def test_float_tensors_of_a_dataset_are_left_alone(photos):
    recipe = replace(recipe_of(photos), data=schema.OwnData("own_parts:Points", erasing=0.5))
    recipe = replace(recipe, model=schema.OwnModel("own_parts:Net"))
    recipe, objects = own.found(recipe, Objects(data=Points()))
    with raised(Incompatible, fields=("data", "data.erasing")):
        loop.prepare(recipe, torch.device("cpu"), objects=objects)
