"""Which images train and which test: by an earlier run's file, folds, the data's own split, or classes at random.

Every split of own images is made here. It is written and read again as a run's `split.json`.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from isosphere.errors import (
    BadArgument,
    DamagedFile,
    LeftOutWarning,
    NotFound,
    OneSplit,
    Option,
    OtherCounts,
    SharedClasses,
)
from isosphere.files import read_json

from .apart import images_apart
from .images import Images, LabeledImages

Set = TypeVar("Set", bound=LabeledImages)
TRAINED = ("train", "validation")
"""Parts of a file that are not for testing; validation classes are held out of the training classes."""


def split_classes(
    image_set: Set,
    fraction: float = 0.5,
    seed: int | None = None,
    allow_shared: bool = False,
    folds: int = 0,
    fold: int = 1,
    file: str = "",
    root: str = "",
    by: Literal["classes", "images"] = "classes",
) -> tuple[Set, Set]:
    """Training and test images of disjoint classes. This `fraction` of the classes trains, at random if seeded.

    `by` images it is this fraction of each class, and the others are for testing: of the classes that were trained on.
    A `file` of an earlier split comes first, then `folds`: the classes of one fold, 1 to `folds`, are for testing. Else
    a set with `splits` of its own (a list's column, or train/ and test/ folders) keeps them. A class in both parts is
    an error unless allowed.
    """
    if file:
        return _as_before(image_set, Path(file), root)
    count = len(image_set.classes)
    if folds:
        if folds > count:
            raise BadArgument(Option("data.folds"), folds, f"at most {count}, the number of classes")
        tested = np.array_split(class_order(image_set.classes, seed), folds)[fold - 1]
        return image_set.of_classes(np.setdiff1d(np.arange(count), tested)), image_set.of_classes(tested)
    if image_set.splits is not None:
        train, test = (
            image_set.subset([i for i, split in enumerate(image_set.splits) if split == name])
            for name in ("train", "test")
        )
        if not len(train) or not len(test):
            raise OneSplit("the set", *(("train", "test") if len(train) else ("test", "train")))
        held = image_set.subset([i for i, split in enumerate(image_set.splits) if split == "val"])
        shared = sorted(set(test.classes) & {*train.classes, *held.classes})
        if shared and not allow_shared:
            raise SharedClasses(shared, Option("data.allow_shared", True))
        return train, test
    if by == "images":
        apart = images_apart(image_set.labels, 1 - fraction, seed, least=2)
        if not apart.any() or apart.all():
            raise BadArgument(Option("data.train_fraction"), fraction, "one that leaves some images on each side")
        return image_set.subset((~apart).nonzero().flatten()), image_set.subset(apart.nonzero().flatten())
    trained = round(fraction * count)
    if not 0 < trained < count:
        raise BadArgument("fraction", fraction, f"one that leaves some of {count} classes on each side")
    order = class_order(image_set.classes, seed)
    return image_set.of_classes(order[:trained]), image_set.of_classes(order[trained:])


def class_order(names: Sequence[str], seed: int | None) -> np.ndarray:
    """The classes in their order, or at random by seed and name. Then a new class hardly moves the others."""
    if seed is None:
        return np.arange(len(names))
    keys = [blake2b(f"{seed}/{name}".encode(errors="surrogateescape"), digest_size=16).digest() for name in names]
    return np.array(sorted(range(len(names)), key=keys.__getitem__))


# ---------------------------------------------------------------- in a file


def described(parts: Mapping[str, Images], root: str = "") -> dict[str, Any]:
    """The parts of a split as JSON: names of classes, and files below the root where parts share classes."""
    names = [name for images in parts.values() for name in images.classes]
    shared = len(set(names)) < len(names)
    found: dict[str, dict[str, Any]] = {}
    for part, images in parts.items():
        found[part] = {"images": len(images), "classes": list(images.classes)}
        if shared and images.paths is not None:
            found[part]["files"] = [below(path, root) for path in images.paths]
    return found


def below(path: str, root: str) -> str:
    """A path as seen from the data's root, or from a list's folder, so that both may move. One elsewhere stays."""
    folder = os.path.dirname(root) if os.path.isfile(root) else root
    inside = Path(path).is_relative_to(folder) if folder else False
    return os.path.relpath(path, folder) if inside else path


def _as_before(image_set: Set, file: Path, root: str) -> tuple[Set, Set]:
    """The parts that a file names, which must all be there. Images that it does not name are left out, with a note."""
    parts = _read(file)
    by_file = all("files" in part for part in parts.values())
    kind = "files" if by_file else "classes"
    paths: Sequence[str] | None = getattr(image_set, "paths", None)
    if by_file and paths is None:
        raise BadArgument(Option("data.split"), str(file), "a split by classes, as these images are not files")
    wanted = {name: part not in TRAINED for part, its in parts.items() for name in its[kind]}  # name -> is for testing
    names = [below(path, root) for path in paths or ()] if by_file else image_set.classes
    absent = wanted.keys() - set(names)
    if absent:
        found, expected = {kind: len(wanted) - len(absent)}, {kind: len(wanted)}
        raise OtherCounts(str(file), found, expected, tuple(sorted(absent)), "a split is of the images it was made of")
    sides = torch.tensor([int(wanted.get(name, -1)) for name in names])
    sides = sides if by_file else sides[image_set.labels]
    lost = int((sides < 0).sum())
    train, test = (image_set.subset((sides == side).nonzero().flatten()) for side in (0, 1))
    if not len(train) or not len(test):
        raise OneSplit(str(file), *(("train", "test") if len(train) else ("test", "train")))
    if lost:
        note = f"{lost} images are left out: {file} does not name their {kind}"
        warnings.warn(LeftOutWarning(note, lost), stacklevel=3)
        train.note = "; ".join(filter(None, (image_set.note, note)))
    return train, test


def _read(file: Path) -> dict[str, dict[str, list[str]]]:
    """The parts of a split's file."""
    if not file.is_file():
        raise NotFound(file, "file of a split, such as a run's split.json")
    found = read_json(file)
    try:
        parts = {part: its for part, its in found.items() if part in (*TRAINED, "test")}
        if not {"train", "test"} <= parts.keys():
            raise ValueError("it has no train and test")
        if not all(isinstance(its.get("classes"), list) for its in parts.values()):
            raise ValueError("a part has no list of classes")
    except (ValueError, AttributeError) as error:
        raise DamagedFile(file, str(error)) from error
    return parts
