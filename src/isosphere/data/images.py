"""A set of labeled images from class folders, a CSV or pixels in memory."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from isosphere.errors import BadArgument, LeftOutWarning, NotFound, Option, UnreadableImage

from . import lists
from .columns import NO_NAMING, Naming
from .decoding import decode
from .naming import by_list, by_name, matched
from .paths import Paths
from .transforms import Staged, View

STATS = 1000  # files of which a thread asks the system at once
Seen = Callable[[Tensor, Tensor], Tensor]
"""A view, or the rest of one."""


class Images(Protocol):
    """What every source of images gives: an `ImageSet`, `CachedSet`, `RecordSet`, or a class of your own.

    `labels` is long (N,) and counts `classes`, a list of names. `note` says which images were left out or changed, and
    is empty if none was.
    """

    labels: Tensor
    classes: list[str]
    note: str

    @property
    def paths(self) -> Sequence[str] | None:
        """The file of each image; None for images in memory or in one file."""

    @property
    def device(self) -> torch.device | None:
        """Where the pixels are, or None for files that are yet to be decoded."""

    @property
    def on_disk(self) -> bool:
        """Whether pixels are read from files, so that worker processes help."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor:
        """One image, uint8 (C, H, W)."""

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Images at these indices (N,) seen through the view, (N, C, S, S). Loops ask only where there is a device.

        `numbers` are on the device, `indices` on the CPU.
        """

    def subset(self, indices: Iterable[int] | Tensor) -> Self:
        """The images at these indices, in this order. Classes without images go, the others keep their order."""

    def of_classes(self, class_indices: Iterable[int]) -> Self:
        """All images of these classes, in the set's order. Labels are 0..C-1 in the set's order of classes."""


def read_batch(images: Images, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
    """Images at these indices (N,), each decoded once, seen through the view with numbers (N, draws)."""
    found, rest = {index: images[index] for index in dict.fromkeys(indices.tolist())}, view
    if isinstance(view, Staged):
        found, rest = {index: view.stored(image) for index, image in found.items()}, view.rest
    return viewed([found[index] for index in indices.tolist()], rest, numbers)


def viewed(found: list[Tensor], view: Seen | None, numbers: Tensor | None = None) -> Tensor:
    """Images (C, H, W) of any sizes seen through the view with numbers (N, draws)."""
    if view is None:
        return torch.stack(found)
    numbers = torch.empty(len(found), 0) if numbers is None else numbers
    if len({image.shape for image in found}) > 1:
        return torch.stack([view(image, its) for image, its in zip(found, numbers, strict=True)])
    return view(torch.stack(found), numbers)  # images of one size are seen at once, which is quicker and the same


MARKS = ("tested", "validates", "is_query", "groups", "looks")
"""What a source may say of each image, besides its class."""
Set = TypeVar("Set", bound="LabeledImages")


class LabeledImages(ABC):
    """What all of our sets share: labels, classes and the choice of classes."""

    note = ""
    tested: Tensor | None = None
    """Which images are for testing, bool (N,), where the source has a split."""
    validates: Tensor | None = None
    """Which images are for validation, bool (N,), where the source has a third part for it."""
    is_query: Tensor | None = None
    """Which images ask, bool (N,), where the source says so."""
    groups: Tensor | None = None
    """A number of each image's group, long (N,), where it has one."""
    looks: Tensor | None = None
    """What each image looks like, int64 (N, 2), once all were decoded: `looks.py` finds near copies by it."""

    def __init__(self, labels: Tensor, classes: Sequence[str]) -> None:
        self.labels, self.classes = labels, list(classes)

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def __getitem__(self, index: int) -> Tensor:
        """One image, uint8 (C, H, W)."""

    @abstractmethod
    def subset(self, indices: Iterable[int] | Tensor) -> Self:
        """The images at these indices, in this order. Classes without images go, the others keep their order."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} images of {len(self.classes)} classes)"

    def of_classes(self, class_indices: Iterable[int]) -> Self:
        """All images of these classes, in the set's order. Labels are 0..C-1 in the set's order of classes."""
        wanted = torch.zeros(len(self.classes), dtype=torch.bool)
        wanted[torch.as_tensor(list(class_indices), dtype=torch.long)] = True
        return self.subset(wanted[self.labels].nonzero().flatten())

    @property
    def splits(self) -> list[str] | None:
        """"train", "val" or "test" for each image; None where the source has no split."""
        if self.tested is None:
            return None
        held = torch.zeros_like(self.tested) if self.validates is None else self.validates
        both = zip(self.tested.tolist(), held.tolist(), strict=True)
        return ["test" if test else "val" if its else "train" for test, its in both]

    def marked(self, part: Set, kept: Tensor | slice) -> Set:
        """A part of this set, with the notes and marks of its images (N,)."""
        part.note = self.note
        for name in MARKS:
            mark = getattr(self, name)
            setattr(part, name, None if mark is None else mark[kept])
        return part

    def relabeled(self, indices: Iterable[int] | Tensor) -> tuple[Tensor, Tensor, list[str]]:
        """The indices as a tensor, and labels and classes of these images alone."""
        kept = torch.as_tensor(indices if isinstance(indices, Tensor) else list(indices), dtype=torch.long).cpu()
        present, labels = self.labels[kept].unique(return_inverse=True)
        return kept, labels, [self.classes[old] for old in present.tolist()]


class ImageSet(LabeledImages):
    """Images with labels: `set[i]` is uint8 (3, H, W) from a file, or (C, H, W) from memory.

    Either `paths` (N of them) or `pixels` (uint8 (N, C, H, W)) is None. The rest is as `Images` says.
    """

    def __init__(
        self,
        labels: Tensor,
        classes: Sequence[str],
        paths: Sequence[str] | None = None,
        pixels: Tensor | None = None,
    ) -> None:
        super().__init__(labels, classes)
        self.paths = None if paths is None else Paths.of(paths)
        self.pixels = pixels

    @classmethod
    def folder(
        cls,
        root: str | Path,
        may_be_empty: Callable[[str], bool] = lambda name: False,
        whole: bool = False,
        naming: Naming = NO_NAMING,
    ) -> "ImageSet":
        """All images of root/class/*.jpg and the other usual endings, classes and files in order of name.

        A root with just a train/ and a test/ (or val/) folder of class folders has these `splits`. In place of test/
        there may be query/ and gallery/. A val/ next to them is a part of its own. With `whole` there are no `splits`.
        Classes without an image are an error, unless their name may be empty. A warning and the set's `note` count
        images in other places.
        """
        return cls._of(lists.class_folders(Path(root), may_be_empty, whole), root, naming)

    @classmethod
    def flat(cls, root: str | Path) -> "ImageSet":
        """All images in a folder and in all folders below, in order of name, as one class."""
        return cls._of(lists.flat_folder(Path(root)), root)

    @classmethod
    def named(cls, root: str | Path, naming: Naming, whole: bool = False, keep: bool = False) -> "ImageSet":
        """All images in a folder and in all folders below, with the labels that a pattern finds in their names.

        Images without one are left out, with a warning and a `note`. With `keep` their class is the folder.
        """
        return cls._of(by_name(Path(root), naming, whole, keep), root, naming)

    @classmethod
    def csv(
        cls, path: str | Path, labeled: bool = True, whole: bool = False, naming: Naming = NO_NAMING
    ) -> "ImageSet":
        """Images listed in a CSV or Parquet file: path,label and, where there are such, split, role and group.

        Paths begin at the list's own folder. A list without labels is one class, unless it must be `labeled`. With
        `whole` there are no `splits`.
        """
        return cls._of(by_list(Path(path), labeled, whole, naming), path, naming)

    @classmethod
    def _of(cls, listed: lists.Listed, root: str | Path, naming: Naming = NO_NAMING) -> "ImageSet":
        classes = lists.ordered(listed.labels.values)
        place = {name: number for number, name in enumerate(classes)}
        order = np.array([place[name] for name in listed.labels.values], np.int64)
        images = cls(torch.from_numpy(order[listed.labels.codes]), classes, listed.paths)
        images.tested, images.validates, images.is_query, images.groups = map(_tensor, listed[3:])
        if naming.group_regex:
            images.groups = _tensor(matched(naming.group_regex, listed.paths, root, "group_regex").apart())
        if listed.left_out:
            images.note = listed.left_out
            warnings.warn(LeftOutWarning(f"{root}: {listed.left_out}"), stacklevel=3)
        return images

    @classmethod
    def from_pixels(cls, pixels: Tensor, labels: Tensor, classes: Sequence[str]) -> "ImageSet":
        """Images of one size in memory: uint8 (N, C, H, W), labels (N,), the names of the classes."""
        if pixels.dtype != torch.uint8 or pixels.ndim != 4:
            raise BadArgument("pixels", f"{pixels.dtype} {tuple(pixels.shape)}", "uint8 (N, C, H, W)")
        labels = torch.as_tensor(labels)
        if labels.is_floating_point() or labels.shape != pixels.shape[:1]:
            raise BadArgument("labels", f"{labels.dtype} {tuple(labels.shape)}", f"{len(pixels)} integers")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
            found = (int(labels.min()), int(labels.max()))
            raise BadArgument("labels", found, f"from 0 to {len(classes) - 1}, as there are {len(classes)} classes")
        return cls(labels.long(), classes, pixels=pixels)

    def __getitem__(self, index: int) -> Tensor:
        if self.pixels is not None:
            return self.pixels[index]
        return decode(self.files[index])

    @property
    def files(self) -> Sequence[str]:
        """The paths, of a set that must have them."""
        if self.paths is None:
            raise BadArgument("image_set", self, "of images in files; these are in memory already")
        return self.paths

    # ---- what a cache asks of files

    def encoded(self, index: int) -> bytes:
        """The bytes of an image's file."""
        try:
            return Path(self.files[index]).read_bytes()
        except OSError as error:
            raise UnreadableImage(self.files[index], f"{type(error).__name__}: {error}") from error

    def called(self, index: int) -> str:
        """What an error calls an image."""
        return self.files[index]

    def stamps(self) -> np.ndarray:
        """Size and time of change of each file, int64 (N, 2); -1 of one that is not there."""
        parts = [self.files[start : start + STATS] for start in range(0, len(self), STATS)]
        with ThreadPoolExecutor() as pool:  # which a distant disk needs
            return np.concatenate([*pool.map(_stats, parts)])

    def keys(self, source: Path) -> list[str]:
        """A name of each image, by which it is known again; files below the source without its path."""
        begin = os.path.join(source if source.is_dir() else source.parent, "")
        return [path[len(begin) :] if path.startswith(begin) else os.path.abspath(path) for path in self.files]

    def is_there(self, key: str, source: Path) -> bool:
        """Whether the file of a name is still there."""
        return os.path.exists(os.path.join(source if source.is_dir() else source.parent, key))

    # ---- what a loop asks

    @property
    def device(self) -> torch.device | None:
        """Where the pixels are, or None for files that are yet to be decoded."""
        return None if self.pixels is None else self.pixels.device

    @property
    def on_disk(self) -> bool:
        """Whether the images are files."""
        return self.pixels is None

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Images at these indices (N,) seen through the view, uint8 (N, C, S, S). Pixels in memory go all at once."""
        if self.pixels is None:
            return read_batch(self, indices, view, numbers)
        images = self.pixels[indices.to(self.pixels.device, non_blocking=True)]
        if view is None:
            return images
        return view(images, torch.empty(len(images), 0, device=images.device) if numbers is None else numbers)

    def subset(self, indices: Iterable[int] | Tensor) -> Self:
        """The images at these indices, in this order. Classes without images go, the others keep their order."""
        kept, labels, classes = self.relabeled(indices)
        paths = None if self.paths is None else self.paths[kept.numpy()]
        return self.marked(type(self)(labels, classes, paths, None if self.pixels is None else self.pixels[kept]), kept)


def _tensor(array: np.ndarray | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(np.ascontiguousarray(array))


def _stats(paths: Sequence[str]) -> np.ndarray:
    found = np.full((len(paths), 2), -1, np.int64)
    for row, path in zip(found, paths, strict=True):
        with suppress(OSError):
            stat = os.stat(path)
            row[:] = stat.st_size, stat.st_mtime_ns
    return found


def open_images(root: str, flat: bool = False, whole: bool = False, naming: Naming = NO_NAMING) -> ImageSet:
    """A folder of class folders or of their split, or a list. With `flat` images without classes will do.

    With `whole` all parts of a split are taken, validation too.
    """
    if not root:
        kind = "images or of class folders" if flat else "class folders"
        raise BadArgument(Option("data.root"), root, f"a folder of {kind}, or a CSV or Parquet file")
    path = existing(root)
    if path.is_file():
        return ImageSet.csv(path, labeled=not flat, whole=whole, naming=naming)
    if naming.label_regex:
        return ImageSet.named(path, naming, whole, keep=flat)
    if flat and (not lists.subfolders(path) or lists.nested(path)):
        return ImageSet.flat(path)
    return ImageSet.folder(path, whole=whole, naming=naming)


def existing(root: str) -> Path:
    """The path of a file or folder that must be there."""
    if not Path(root).exists():
        raise NotFound(root, "folder or file")
    return Path(root)
