"""A map-style dataset of the user's own as images with labels."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from isosphere.errors import BadArgument

from .decoding import in_memory
from .images import LabeledImages, viewed
from .rows import Rows, is_table
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

    Hugging Face datasets have the columns image and label. Where a dataset has `groups` or `is_query`, one value an
    image, retrieval is measured by them.

    `rows` (N,) are the indices in the dataset. Floats, which transforms inside the dataset have made, stay as they are.
    """

    device = None  # not in memory
    on_disk = True

    def __init__(
        self, dataset: Any, rows: Tensor | None = None, labels: Tensor | None = None, classes: Sequence[str] = ()
    ) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(dataset, str):
            expected = "a map-style dataset: it has a length, and data[i] is (image, label)"
            raise BadArgument("data", type(dataset).__name__, expected)
        if rows is None or labels is None:
            dataset, rows = _whole(dataset)
            dataset = Rows(dataset) if is_table(dataset) else dataset
            labels, classes = _labels(dataset, rows)
            for name in ("groups", "is_query"):
                setattr(self, name, _mark(dataset, name, rows))
        super().__init__(labels, classes)
        self.dataset, self.rows = dataset, rows

    @property
    def transformed(self) -> bool:
        """Whether images are float tensors, made by transforms of the dataset."""
        return self[0].is_floating_point()

    @property
    def paths(self) -> list[str] | None:
        """The files of torchvision's ImageFolder and the like, which have `samples`."""
        samples = getattr(self.dataset, "samples", None)
        if not samples or not isinstance(samples[0], tuple) or not isinstance(samples[0][0], str):
            return None
        return [samples[row][0] for row in self.rows.tolist()]

    def __getitem__(self, index: int) -> Tensor:
        """One image, uint8 (3, H, W), or as the dataset made it if that is of floats."""
        row = int(self.rows[index])
        return self._image(row, row)

    def read(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Images at these indices (N,), seen through the view with numbers (N, draws).

        The numbers also seed the dataset's own random transforms. Without any, an image is the same each time.
        """
        rows = seeds = self.rows[indices]
        if numbers is not None and numbers.shape[1] > 1:
            seeds = (numbers[:, :2].double() * 2**24).long() @ torch.tensor([2**24, 1])
        found = [self._image(row, seed) for row, seed in zip(rows.tolist(), seeds.tolist(), strict=True)]
        shapes = sorted({tuple(image.shape) for image in found})
        if len(shapes) > 1 and (view is None or isinstance(view, OwnView)):
            raise BadArgument("data", shapes[:2], "a dataset whose float tensors all have one shape")
        return viewed(found, view, numbers)

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """The same as `read`: nothing is in memory."""
        return self.read(indices, view, numbers)

    def subset(self, indices: Iterable[int] | Tensor) -> "DatasetImages":
        """The images at these indices, in this order. Classes without images go, the others keep their order."""
        kept, labels, classes = self.relabeled(indices)
        return self.marked(type(self)(self.dataset, self.rows[kept], labels, classes), kept)

    def _image(self, row: int, seed: int) -> Tensor:
        with seeded(seed):
            image, _ = _item(self.dataset, row)
        if isinstance(image, Tensor) and image.is_floating_point():
            return image
        return in_memory(_colored(image) if isinstance(image, np.ndarray | Tensor) else image)


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


def _whole(dataset: Any) -> tuple[Any, Tensor]:
    """The dataset that a `Subset` is of, which has labels and names of classes, and the indices (N,) in it."""
    rows = torch.arange(len(dataset))
    while type(dataset) is Subset:
        rows = torch.as_tensor(dataset.indices, dtype=torch.long)[rows]
        dataset = dataset.dataset
    return dataset, rows


def _item(dataset: Any, row: int) -> tuple[Any, Any]:
    """An image and its label."""
    item = dataset[row]
    if not isinstance(item, tuple | list) or len(item) != 2:
        found = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
        raise BadArgument("data[i]", found, "a pair of an image and its label")
    return item[0], item[1]


def _labels(dataset: Any, rows: Tensor) -> tuple[Tensor, list[str]]:
    """The labels (N,) as numbers of classes, and the classes' names."""
    listed = _listed(dataset)
    found = [_label(dataset, row) if listed is None else listed[row] for row in rows.tolist()]
    plain = [label.item() if isinstance(label, Tensor | np.generic) and label.ndim == 0 else label for label in found]
    if kinds := {type(label).__name__ for label in plain if not isinstance(label, int | str)}:
        expected = "a dataset whose labels are numbers or names"
        raise BadArgument("data", f"labels of type {', '.join(sorted(kinds))}", expected)
    if not plain:
        raise BadArgument("data", "0 images", "a dataset of images")
    names = sorted(set(plain), key=lambda label: (isinstance(label, str), label))
    number = {name: place for place, name in enumerate(names)}
    known: Any = getattr(dataset, "classes", None)
    named = isinstance(known, Sequence) and all(isinstance(name, int) and 0 <= name < len(known) for name in names)
    classes = [str(known[name]) if named else str(name) for name in names]
    return torch.tensor([number[label] for label in plain], dtype=torch.long), classes


def _listed(dataset: Any) -> Any:
    """A list of one label for each image, where the dataset keeps one."""
    for name in LABELS:
        found = getattr(dataset, name, None)
        if isinstance(found, Sequence | Tensor | np.ndarray) and len(found) == len(dataset):
            return found
    return None


def _mark(dataset: Any, name: str, rows: Tensor) -> Tensor | None:
    """What a dataset says of these images, besides their labels; None where it says nothing."""
    given = getattr(dataset, name, None)
    if given is None:
        return None
    kind = torch.bool if name == "is_query" else torch.long
    try:
        found = torch.as_tensor(given, dtype=kind)
        if found.shape != (len(dataset),):
            raise ValueError(f"of shape {tuple(found.shape)}")
    except (TypeError, ValueError, RuntimeError) as error:
        each = "truth value" if kind == torch.bool else "whole number"
        raise BadArgument(f"data.{name}", str(error), f"one {each} an image") from None
    return found[rows]


def _colored(pixels: np.ndarray | Tensor) -> np.ndarray | Tensor:
    """Gray pixels (H, W), (1, H, W) or (H, W, 1) as (3, H, W); others as they are."""
    shape = tuple(pixels.shape)
    if pixels.ndim == 2 or (pixels.ndim == 3 and 1 in shape[::2] and 3 not in shape[::2]):
        size = shape[1:] if pixels.ndim == 3 and shape[0] == 1 else shape[:2]
        return np.broadcast_to(np.asarray(pixels).reshape(1, *size), (3, *size))
    return pixels


def _label(dataset: Any, row: int) -> Any:
    with seeded(row):
        return _item(dataset, row)[1]
