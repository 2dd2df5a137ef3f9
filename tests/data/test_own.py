"""Datasets of the user's own: labels, classes, files, and random transforms that can be repeated."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder

from isosphere.data.feed import loader
from isosphere.data.own import DatasetImages, OwnView
from isosphere.data.transforms import TrainView
from isosphere.errors import BadArgument
from isosphere.samplers import ClassBatches
from own_parts import Pictures, Points

LABELS = {
    "numbers": (int, [str(label) for label in range(8)]),
    "from 10 on": (lambda label: label + 10, [str(label) for label in range(10, 18)]),
    "names": (lambda label: f"class {label}", [f"class {label}" for label in range(8)]),
    "tensors": (torch.tensor, [str(label) for label in range(8)]),
    "of numpy": (np.int64, [str(label) for label in range(8)]),
}


@pytest.mark.parametrize("label, classes", LABELS.values(), ids=LABELS)
def test_labels_are_numbers_or_names(label, classes):
    images = DatasetImages(Pictures(labels=label))
    assert images.classes == classes and images.labels.tolist() == [index % 8 for index in range(40)]
    part = images.of_classes([1, 5])
    assert part.classes == [classes[1], classes[5]] and part.rows.tolist() == [i for i in range(40) if i % 8 in (1, 5)]
    assert torch.equal(part[3], images[13])


def test_lists_of_labels_are_read_and_no_image(photos):
    class Listed(Pictures):
        targets = [index % 4 for index in range(40)]
        classes = ["a", "b", "c", "d", "e"]

        def __getitem__(self, index: int) -> tuple:
            raise AssertionError("no image is needed")

    assert DatasetImages(Listed()).classes == ["a", "b", "c", "d"]
    assert DatasetImages(Subset(Subset(Listed(), range(10, 30)), [1, 4])).classes == ["c", "d"]
    files = DatasetImages(Subset(ImageFolder(str(photos)), range(5, 15)))
    assert files.classes == ["class1", "class2"] and [path.split("/")[-2] for path in files.paths][4:6] == files.classes
    with pytest.raises(BadArgument):
        DatasetImages(Subset(Pictures(), []))


def test_random_transforms_are_a_function_of_seed_and_step_and_leave_the_callers_numbers_alone():
    images = DatasetImages(Points())
    batches = ClassBatches(images.labels, 12, 3, seed=0)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    wanted = random.random(), np.random.rand(), torch.rand(1)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    first = [batch.images for batch in loader(images, batches, OwnView(), range(4), seed=0)]
    again = [batch.images for batch in loader(images, batches, OwnView(), range(2, 4), workers=1, seed=0)]
    assert all(map(torch.equal, first[2:], again)) and not torch.equal(first[0], first[1])
    other = next(loader(images, batches, OwnView(), range(1), seed=1)).images
    assert not torch.equal(first[0], other)
    assert torch.equal(images.read(torch.tensor([3]), None), images.subset([3]).read(torch.tensor([0]), None))
    assert (random.random(), np.random.rand(), torch.rand(1)) == wanted


def test_random_transforms_of_pixels_are_repeated_under_a_view():
    images = DatasetImages(Pictures(lambda pixels: np.roll(pixels, np.random.randint(18), 0)))
    batches, view = ClassBatches(images.labels, 12, 3, seed=0), TrainView(16, 18)
    found = [[batch.images for batch in loader(images, batches, view, range(n, 4), seed=0)] for n in (0, 2)]
    assert all(map(torch.equal, found[0][2:], found[1])) and found[0][0].shape == (12, 3, 16, 16)
