"""A set of labeled images, from a folder of class folders, a CSV or pixels in memory, and its split by class.

Files are decoded as torchvision's loader does it (alpha is dropped, colors are not managed), except that the EXIF
orientation is applied and 16-bit gray is scaled instead of clipped.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from . import lists
from .lists import ordered, some
from .transforms import View


class UnreadableImage(ValueError):
    """A file that cannot be decoded: `path` names it, `reason` says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)  # both in args, so that it can be pickled by a worker process
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot read the image {self.path}: {self.reason}"


def decode(file: str | Path | BinaryIO, name: str = "") -> Tensor:
    """An image file as RGB, uint8 (3, H, W), upright by its EXIF orientation; one in memory is told by `name`."""
    try:
        with Image.open(file) as opened:
            return _rgb(opened)
    except Exception as error:  # on damaged files PIL raises almost anything
        reason = str(error).replace(repr(file), repr(name)) if name else error
        raise UnreadableImage(name or str(file), f"{type(error).__name__}: {reason}") from error


def in_memory(image: Image.Image | np.ndarray | Tensor) -> Tensor:
    """An image of PIL, seen as its file would be, or pixels, uint8 (3, H, W) or (H, W, 3), as uint8 (3, H, W)."""
    if isinstance(image, Image.Image):
        if not all(image.size):
            raise ValueError(f"an image in memory has no pixels: {image.width} x {image.height}")
        return _rgb(image)
    if not isinstance(image, np.ndarray | Tensor):
        raise TypeError(f"an image in memory is one of PIL or an array of pixels, not {type(image).__name__}")
    pixels = image if isinstance(image, Tensor) else torch.from_numpy(np.array(image))  # copied: may be flipped
    if pixels.dtype != torch.uint8 or pixels.ndim != 3 or 3 not in (pixels.shape[0], pixels.shape[2]):
        told = f"{str(pixels.dtype).removeprefix('torch.')} {tuple(pixels.shape)}"
        raise ValueError(f"pixels are uint8, from 0 to 255, an image (3, H, W) or (H, W, 3), not {told}")
    if not pixels.numel():
        raise ValueError(f"an image in memory has no pixels: {tuple(pixels.shape)}")
    return pixels if pixels.shape[0] == 3 else pixels.permute(2, 0, 1)


def _rgb(opened: Image.Image) -> Tensor:
    image, kind = ImageOps.exif_transpose(opened), opened.format
    if image.mode == "F" or (image.mode == "I" and kind not in ("PNG", "PPM")):  # which have 16 bits at most
        raise ValueError("32 bits a pixel do not tell what is white; save it with 8 or 16")
    if image.mode.startswith("I"):  # 16-bit gray: PIL's own conversion would clip it to white
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


class Images(Protocol):
    """What every source of images gives: an `ImageSet`, `PackedSet`, `RecordSet`, or a class of your own.

    `labels` is long (N,) and counts `classes`, a list of names. `note` says what became of some of the images on the
    way, and is empty where nothing did.
    """

    labels: Tensor
    classes: list[str]
    note: str

    @property
    def paths(self) -> list[str] | None:
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
        """Images at these indices (N,) seen through the view, (N, C, S, S); only called where there is a device."""

    def subset(self, indices: Iterable[int] | Tensor) -> "Images":
        """The images at these indices, in this order; classes left without images go, the others keep their order."""

    def of_classes(self, class_indices: Iterable[int]) -> "Images":
        """All images of these classes, in the set's order, relabeled to 0..C-1 in the set's order of classes."""


class LabeledImages:
    """What all of our sets share: labels, classes and the choice of classes."""

    note = ""

    def __init__(self, labels: Tensor, classes: Sequence[str]) -> None:
        self.labels, self.classes = labels, list(classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} images of {len(self.classes)} classes)"

    def of_classes(self, class_indices: Iterable[int]) -> Self:
        """All images of these classes, in the set's order, relabeled to 0..C-1 in the set's order of classes."""
        wanted = torch.zeros(len(self.classes), dtype=torch.bool)
        wanted[torch.as_tensor(list(class_indices), dtype=torch.long)] = True
        return self.subset(wanted[self.labels].nonzero().flatten())

    def relabeled(self, indices: Iterable[int] | Tensor) -> tuple[Tensor, Tensor, list[str]]:
        """The indices as a tensor, and labels and classes of these images alone."""
        kept = torch.as_tensor(indices if isinstance(indices, Tensor) else list(indices), dtype=torch.long).cpu()
        present, labels = self.labels[kept].unique(return_inverse=True)
        return kept, labels, [self.classes[old] for old in present.tolist()]


class ImageSet(LabeledImages):
    """Images with labels: `set[i]` is uint8 (3, H, W) from a file, or (C, H, W) as stored for pixels in memory.

    Either `paths` (a list of N) or `pixels` (uint8 (N, C, H, W)) is None. `splits` is None, or "train" or "test" for
    each image. The rest is as `Images` says.
    """

    def __init__(
        self,
        labels: Tensor,
        classes: Sequence[str],
        paths: Sequence[str] | None = None,
        pixels: Tensor | None = None,
        splits: Sequence[str] | None = None,
    ) -> None:
        super().__init__(labels, classes)
        self.paths = None if paths is None else list(paths)
        self.pixels = pixels
        self.splits = None if splits is None else list(splits)

    @classmethod
    def folder(
        cls, root: str | Path, may_be_empty: Callable[[str], bool] = lambda name: False, whole: bool = False
    ) -> "ImageSet":
        """All images of root/class/*.jpg (and the other usual extensions), classes and files in order of name.

        Where the root holds nothing but a train/ and a test/ (or val/) folder of class folders, these are the `splits`;
        a val/ beside both is left out, unless the `whole` is wanted, without `splits`. Classes without an image are an
        error but for those whose name may be empty. Images that lie elsewhere are told in a warning and in the
        `note` of the set.
        """
        return cls._of(lists.class_folders(Path(root), may_be_empty, whole), root)

    @classmethod
    def flat(cls, root: str | Path) -> "ImageSet":
        """All images in a folder and in all that it holds, in order of name, as one class."""
        return cls._of(lists.flat_folder(Path(root)), root)

    @classmethod
    def csv(cls, path: str | Path, labeled: bool = True, whole: bool = False) -> "ImageSet":
        """Images listed in a CSV with the columns path,label[,split]; paths are relative to the CSV's own folder.

        Unless they must be `labeled`, those of a CSV without labels are one class. Where the split is train, test or
        val, those of val are left out, with a warning and in the `note`, unless the `whole` is wanted, without
        `splits`.
        """
        return cls._of(lists.csv_rows(Path(path), labeled, whole), path)

    @classmethod
    def _of(cls, listed: lists.Listed, root: str | Path) -> "ImageSet":
        classes = ordered(listed.classes)
        number = {name: label for label, name in enumerate(classes)}
        labels = torch.tensor([number[name] for name in listed.labels], dtype=torch.long)
        images = cls(labels, classes, listed.paths, splits=listed.splits)
        if listed.left_out:
            images.note = listed.left_out
            warnings.warn(f"{root}: {listed.left_out}", stacklevel=3)
        return images

    @classmethod
    def from_pixels(cls, pixels: Tensor, labels: Tensor, classes: Sequence[str]) -> "ImageSet":
        """Images of one size that are in memory already: uint8 (N, C, H, W), labels (N,), the names of the classes."""
        if pixels.dtype != torch.uint8 or pixels.ndim != 4:
            raise ValueError(f"pixels must be uint8 (N, C, H, W), not {pixels.dtype} {tuple(pixels.shape)}")
        labels = torch.as_tensor(labels)
        if labels.is_floating_point() or labels.shape != pixels.shape[:1]:
            raise ValueError(f"labels must be {len(pixels)} integers, not {labels.dtype} {tuple(labels.shape)}")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
            raise ValueError(f"labels run from {labels.min()} to {labels.max()}, but there are {len(classes)} classes")
        return cls(labels.long(), classes, pixels=pixels)

    def __getitem__(self, index: int) -> Tensor:
        return decode(self.paths[index]) if self.pixels is None else self.pixels[index]

    @property
    def device(self) -> torch.device | None:
        """Where the pixels are, or None for files that are yet to be decoded."""
        return None if self.pixels is None else self.pixels.device

    @property
    def on_disk(self) -> bool:
        """Whether the images are files."""
        return self.pixels is None

    def batch(self, indices: Tensor, view: View | None, numbers: Tensor | None = None) -> Tensor:
        """Pixels in memory at these indices (N,) seen through the view, uint8 (N, C, H, W)."""
        images = self.pixels[indices]
        return images if view is None else view(images, numbers)

    def subset(self, indices: Iterable[int] | Tensor) -> "ImageSet":
        """The images at these indices, in this order; classes left without images go, the others keep their order."""
        kept, labels, classes = self.relabeled(indices)
        part = ImageSet(
            labels,
            classes,
            None if self.paths is None else [self.paths[i] for i in kept.tolist()],
            None if self.pixels is None else self.pixels[kept],
            None if self.splits is None else [self.splits[i] for i in kept.tolist()],
        )
        part.note = self.note
        return part


def open_images(root: str, flat: bool = False, whole: bool = False) -> ImageSet:
    """A folder of class folders or of their split, or a CSV; with `flat` also images without classes.

    The `whole` is all parts of a split, validation too.
    """
    if not root:
        kind = "images or of class folders" if flat else "class folders"
        raise ValueError(f"data.root is empty: name a folder of {kind} (./photos if it has that name) or a CSV")
    path = existing(root)
    if path.is_file():
        return ImageSet.csv(path, labeled=not flat, whole=whole)
    if flat and (not lists.subfolders(path) or lists.nested(path)):
        return ImageSet.flat(path)
    return ImageSet.folder(path, whole=whole)


def existing(root: str) -> Path:
    """The path of a file or folder that must be there."""
    if not Path(root).exists():
        raise FileNotFoundError(f"no such folder or file: {root}")
    return Path(root)


def split_classes(
    image_set: ImageSet, fraction: float = 0.5, seed: int | None = None, allow_shared: bool = False
) -> tuple[ImageSet, ImageSet]:
    """Training and test images of disjoint classes: the first `fraction` of the classes train, shuffled if seeded.

    A set that brings its own `splits` (a CSV's column, or train/ and test/ folders) keeps them; a class in both is an
    error unless allowed.
    """
    if image_set.splits is not None:
        train, test = (
            image_set.subset([i for i, split in enumerate(image_set.splits) if split == name])
            for name in ("train", "test")
        )
        if not len(train) or not len(test):
            raise ValueError("the given split has no image for " + ("test" if len(train) else "train"))
        shared = sorted(set(train.classes) & set(test.classes))
        if shared and not allow_shared:
            repair = "to test on other images of classes trained on, add --data.allow_shared true"
            raise ValueError(f"{len(shared)} classes are in both train and test: {some(shared)}; {repair}")
        return train, test
    count = len(image_set.classes)
    trained = round(fraction * count)
    if not 0 < trained < count:
        raise ValueError(f"a fraction of {fraction} leaves no class for one side of {count} classes")
    order = np.arange(count) if seed is None else np.random.default_rng(seed).random(count).argsort(kind="stable")
    return image_set.of_classes(order[:trained]), image_set.of_classes(order[trained:])


def check_images(image_set: ImageSet, workers: int = 8) -> dict[int, UnreadableImage]:
    """Decodes every file in parallel behind a progress bar; the failures by index, none for pixels in memory."""
    from rich.progress import track

    def failure(index: int) -> UnreadableImage | None:
        try:
            image_set[index]
        except UnreadableImage as error:
            return error
        return None

    if image_set.pixels is not None:
        return {}
    with ThreadPoolExecutor(workers) as pool:  # threads are enough: PIL decodes without the interpreter's lock
        found = track(pool.map(failure, range(len(image_set))), "checking images", len(image_set), transient=True)
        return {index: error for index, error in enumerate(found) if error is not None}


def readable_images(image_set: ImageSet, skip_unreadable: bool = False, workers: int = 8) -> ImageSet:
    """The set if every file can be decoded; else an error naming the others, or a warning and the set without them.

    How many were left out is also in the `note` of the set.
    """
    failures = check_images(image_set, workers)
    if not failures:
        return image_set
    message = f"{len(failures)} of {len(image_set)} images are unreadable: {some(map(str, failures.values()))}"
    if not skip_unreadable or len(failures) == len(image_set):
        leave = ", or add --data.skip_unreadable true" if len(failures) < len(image_set) else ""
        raise ValueError(f"{message}; repair or remove them{leave}")
    kept = image_set.subset(index for index in range(len(image_set)) if index not in failures)
    lost = sorted(set(image_set.classes) - set(kept.classes))
    empty = f"; no image is left of {some(lost)}" if lost else ""
    warnings.warn(f"{message}{empty}; going on without them", stacklevel=2)
    told = f"{len(failures)} of {len(image_set)} images are unreadable"
    told += f", all of {len(lost)} classes among them" if lost else ""
    kept.note = "; ".join(filter(None, (image_set.note, told)))
    return kept


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lines(path: str | Path) -> list[tuple[int, str]]:
    """What a text file in UTF-8 holds, stripped and with the number of its line, without the blank ones."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such text file: {path}")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error}); save it as such") from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
