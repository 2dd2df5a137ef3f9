"""A data set that nobody knows: it is trained on, evaluated and used without a change anywhere."""

from dataclasses import dataclass, replace

import torch

from isosphere.data.images import ImageSet
from isosphere.inference import evaluation_view, for_other_images
from isosphere.recipes import schema
from isosphere.recipes.data import Source
from isosphere.train.build import build_task
from isosphere.train.loop import prepare, train_step, training_feed
from isosphere.train.retrieval import Retrieval
from isosphere.train.task import Task
from tiny import tiny_recipe


@dataclass(frozen=True)
class Noise(Source):
    """Classes of random pixels."""

    opened_by = f"{__name__}:open_noise"
    size: int = 12


def open_noise(data: Noise, device: torch.device) -> Task:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (96, 3, data.size, data.size), dtype=torch.uint8, generator=generator)
    images = ImageSet.from_pixels(pixels, torch.arange(96) // 6, list("abcdefghijklmnop"))
    return Task(images.of_classes(range(8)), None, Retrieval(images.of_classes(range(8, 16)), None))


def test_it_trains_and_its_images_are_seen_like_all_others():
    recipe = replace(tiny_recipe("rendered-sec"), data=Noise())
    run = prepare(recipe, torch.device("cpu"))
    assert run.task.sizes == {"train_images": 48, "test_images": 48, "train_classes": 8, "test_classes": 8}
    batch = next(iter(training_feed(run)))
    assert train_step(run, batch.images, batch.labels)["loss"].isfinite()
    assert evaluation_view(recipe.data)(torch.zeros(3, 30, 40, dtype=torch.uint8)).shape == (3, 12, 12)
    assert for_other_images(recipe).data == schema.Folder(size=12, shorter=12)
    assert build_task(recipe.data, torch.device("cpu")).notes == () and recipe.data.place == "Noise"
