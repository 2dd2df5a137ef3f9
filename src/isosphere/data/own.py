"""A map-style dataset of the user's own as images with labels."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument

from .decoding import in_memory
from .images import LabeledImages
from .transforms import View

LABELS = ("targets", "labels")
"""Where the datasets of torchvision keep all labels, so that no image is decoded for them."""


class OwnView:
    """Leaves images alone; its numbers seed the transforms inside the dataset, so that a step can be repeated."""

    draws: ClassVar[int] = 2

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        return images


class DatasetImages(LabeledImages):
    """Any dataset with `len` and `[index] -> (image, label)`; images of PIL, arrays, uint8 or float tensors.

    `rows` (N,) are the indices in the dataset. Floats, which transforms inside the dataset have made, stay as they are.
    """

    device = None  # not in memory
    on_disk = True

    def __init__(self, dataset: Any, rows: Tensor | None = None, labels: Tensor | None = None, classes: Any = None):
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise BadArgument("data", type(dataset), "a map-style dataset: len(data), and data[i] is (image, label)")
        if labels is None:
            labels, classes = _labels(dataset)
        super().__init__(labels, classes)
        self.dataset, self.rows = dataset, torch.arange(len(labels)) if rows is None else rows

    @property
    def transformed(self) -> bool:
        """Whether images are float tensors, made by transforms of the dataset."""
        image = self._item(0)
        return isinstance(image, Tensor) and image.is_floating_point()

    @property
    def paths(self) -> list[str] | None:
        """The files of torchvision's ImageFolder and the like, which have `samples`."""
        samples = getattr(self.dataset, "samples", None)
        if not samples or not isinstance(samples[0], tuple) or not isinstance(samples[0][0], str):
            return None
        return [samples[row][0] for row in self.rows.tolist()]

    def __getitem__(self, index: int) -> Tensor:
        """One image, uint8 (3, H, W), or float (C, H, W) as the dataset made it."""
        image = self._item(index)
        return image if isinstance(image, Tensor) and image.is_floating_point() else in_memory(image)

    def read(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Each image anew, since transforms may be random: their numbers are a function of (seed, step, position)."""
        if not isinstance(view, OwnView):
            return super().read(indices, view, numbers)
        assert numbers is not None, "a view that draws gets numbers"
        seeds = (numbers.double() * 2**24).long() @ torch.tensor([2**24, 1])
        found = []
        for index, seed in zip(indices.tolist(), seeds.tolist(), strict=True):
            with seeded(seed):
                found.append(self[index])
        return torch.stack(found)

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """The same as `read`: nothing is in memory."""
        return self.read(indices, view, numbers)

    def subset(self, indices: Iterable[int] | Tensor) -> "DatasetImages":
        """The images at these indices, in this order. Classes without images go, the others keep their order."""
        kept, labels, classes = self.relabeled(indices)
        return type(self)(self.dataset, self.rows[kept], labels, classes)

    def _item(self, index: int) -> Any:
        return self.dataset[int(self.rows[index])][0]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The random numbers of torch's CPU, numpy and Python from a seed; afterwards as they were."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def _labels(dataset: Any) -> tuple[Tensor, list[str]]:
    """The labels (N,) as numbers of classes, and the classes' names."""
    found = _listed(dataset)
    if found is None:
        found = [dataset[index][1] for index in range(len(dataset))]
    if len(found) != len(dataset):
        raise BadArgument("data", f"{len(found)} labels", f"a dataset with a label for each of {len(dataset)} images")
    plain = [label.item() if isinstance(label, Tensor | np.generic) else label for label in found]
    if not all(isinstance(label, int | str) for label in plain):
        kinds = sorted({type(label).__name__ for label in plain})
        raise BadArgument("data", f"labels of type {', '.join(kinds)}", "a dataset whose labels are numbers or names")
    names = sorted(set(plain), key=lambda label: (isinstance(label, str), label))
    number = {name: place for place, name in enumerate(names)}
    known = getattr(dataset, "classes", None)
    named = isinstance(known, Sequence) and all(isinstance(name, int) and 0 <= name < len(known) for name in names)
    classes = [str(known[name]) if named else str(name) for name in names]
    return torch.tensor([number[label] for label in plain], dtype=torch.long), classes


def _listed(dataset: Any) -> list[Any] | None:
    """All labels where the dataset, or the one that it is a `Subset` of, keeps a list of them."""
    for name in LABELS:
        found = getattr(dataset, name, None)
        if isinstance(found, Sequence | Tensor | np.ndarray) and len(found) == len(dataset):
            return list(found)
    if isinstance(dataset, torch.utils.data.Subset):
        whole = _listed(dataset.dataset)
        return None if whole is None else [whole[index] for index in dataset.indices]
    return None
