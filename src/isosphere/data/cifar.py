"""CIFAR-10 and CIFAR-100 in memory, from any of their layouts on disk, complete or refused.

| layout | cifar10 | cifar100 |
|---|---|---|
| python files | `cifar-10-batches-py/` | `cifar-100-python/` |
| class folders | `train/<class>/*.png`, `test/<class>/*.png`, also in `cifar10/` | the same, also in `cifar100/` |

The python files are pickles. The unpickler here makes numbers, strings and numpy arrays alone. Class folders are
decoded by all cores in some seconds. Both layouts have the same order of classes. The order of images differs, so runs
on two layouts do not see the same batches.
"""

import hashlib
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from isosphere.errors import (
    DamagedFile,
    NoDataSet,
    NotFound,
    Option,
    OtherCounts,
    UnknownName,
    UnreadableImage,
    UnsafeFile,
)

from .decoding import decode
from .download import fetch_folder
from .images import ImageSet
from .workers import in_workers

SIDE = 32
COUNTS = {"train": 50_000, "test": 10_000}
CHUNK = 500  # files that a worker decodes at a time
OWN = "images of your own go with the recipe simclr-photos"


class Source(NamedTuple):
    """One of the two sets: its python files, their names for labels and classes, and the official archive."""

    title: str
    classes: int
    folder: str  # of the python files, here and in the archive
    files: dict[str, tuple[str, ...]]
    labels: str
    meta: tuple[str, str]  # the file with the names of the classes, and what it calls them
    archive: str
    md5: str


SOURCES = {
    "cifar10": Source(
        title="CIFAR-10",
        classes=10,
        folder="cifar-10-batches-py",
        files={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
        labels="labels",
        meta=("batches.meta", "label_names"),
        archive="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
    ),
    "cifar100": Source(
        title="CIFAR-100",
        classes=100,
        folder="cifar-100-python",
        files={"train": ("train",), "test": ("test",)},
        labels="fine_labels",
        meta=("meta", "fine_label_names"),
        archive="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
    ),
}


def load(
    name: str, root: str | Path, download: bool = False, device: torch.device | str = "cpu"
) -> tuple[ImageSet, ImageSet]:
    """Training and test images of cifar10 or cifar100 under `root`, uint8 (50000, 3, 32, 32) and (10000, 3, 32, 32).

    The pixels are on the device, the labels on the CPU. `download` fetches the archive where neither layout is there.
    """
    if name not in SOURCES:
        raise UnknownName("data set", name, list(SOURCES))
    source, root = SOURCES[name], Path(root)
    found = _home(name, root)
    if found is None and download:
        fetch_folder(source.archive, root / source.folder, source.md5)
        found = _home(name, root)
    if found is None:
        layout = f"{source.folder}/, or class folders in train/ and test/"
        raise NoDataSet(root, source.title, layout, source.archive, Option("data.download", True))
    folder, read = found
    if read is _read_python:
        _refuse_copies(folder, source)
    train, test = (_checked(read(folder, source, part), source, folder, part) for part in COUNTS)
    if train.classes != test.classes:
        both, all_names = set(train.classes) & set(test.classes), set(train.classes) | set(test.classes)
        found, expected = {"classes in both parts": len(both)}, {"classes in both parts": source.classes}
        raise OtherCounts(f"{source.title} in {folder}", found, expected, tuple(sorted(all_names - both)), OWN)
    return _in_memory(train, device), _in_memory(test, device)


def _home(name: str, root: Path) -> tuple[Path, Callable[[Path, Source, str], ImageSet]] | None:
    """The folder with one of the layouts, and what reads it."""
    source = SOURCES[name]
    for folder in (root, root / source.folder):
        if (folder / source.meta[0]).is_file():
            return folder, _read_python
    for folder in (root, root / name, root / source.title):
        if all((folder / part).is_dir() for part in COUNTS):
            return folder, _read_folders
    return None


def _checked(images: ImageSet, source: Source, folder: Path, part: str) -> ImageSet:
    """The images, if there are as many as in the original, and equally many of each class."""
    expected = {"images": COUNTS[part], "classes": source.classes}
    title = f"{source.title} in {folder}, {part},"
    instead = "unpack the archive again" if images.paths is None else OWN
    found = {"images": len(images), "classes": len(images.classes)}
    if found != expected:
        raise OtherCounts(title, found, expected, repair=instead)
    each, counts = COUNTS[part] // source.classes, images.labels.bincount(minlength=source.classes).tolist()
    odd = {f"of {name}": count for name, count in zip(images.classes, counts, strict=True) if count != each}
    if odd:
        raise OtherCounts(title, odd, dict.fromkeys(odd, each), repair=instead)
    return images


def _read_python(folder: Path, source: Source, part: str) -> ImageSet:
    """One part from the python files. A row of `data` is a whole image: all red, all green, all blue."""
    pixels, labels = [], []
    for name in source.files[part]:
        held = _unpickled(folder / name, "data", source.labels)
        data = held["data"]
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3 * SIDE * SIDE,):
            raise DamagedFile(folder / name, f"it does not hold rows of {3 * SIDE * SIDE} bytes")
        truth, known = held[source.labels], range(source.classes)
        right = isinstance(truth, list) and all(isinstance(label, int) and label in known for label in truth)
        if not right or len(truth) != len(data):
            reason = f"it does not hold {len(data):,} {source.labels} from 0 to {known[-1]}"
            raise DamagedFile(folder / name, reason)
        pixels.append(torch.from_numpy(data).view(-1, 3, SIDE, SIDE))
        labels += truth
    file, key = source.meta
    return ImageSet.from_pixels(torch.cat(pixels), torch.tensor(labels), _unpickled(folder / file, key)[key])


def _refuse_copies(folder: Path, source: Source) -> None:
    """Refuse a file that was copied over another: the number of images would still be right."""
    seen: dict[bytes, str] = {}
    for name in (name for names in source.files.values() for name in names if (folder / name).is_file()):
        first = seen.setdefault(hashlib.sha256((folder / name).read_bytes()).digest(), name)
        if first != name:
            raise DamagedFile(folder / name, f"it is a copy of {first}; unpack the archive again")


class ForeignName(Exception):
    """A name in a pickle that none of CIFAR's files contains."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, strings, lists, dicts and numpy arrays; everything else that a pickle can name is refused."""

    # numpy has moved the function that makes an empty array to fill, so it is taken from an array.
    admitted = {"ndarray": np.ndarray, "dtype": np.dtype, "_reconstruct": np.empty(0).__reduce__()[0]}

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in self.admitted:
            return self.admitted[name]
        raise ForeignName(f"asks for {module}.{name}")


def _unpickled(path: Path, *keys: str) -> dict[str, Any]:
    """The dict in a file, which must have these keys. Strings of Python 2 are read byte by byte."""
    if not path.is_file():
        raise NotFound(path, "file of CIFAR")
    try:
        with open(path, "rb") as file:
            held = _PlainUnpickler(file, encoding="latin1").load()
    except ForeignName as error:
        raise UnsafeFile(path, str(error)) from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise DamagedFile(path, f"it is none of CIFAR's files: {type(error).__name__}: {error}") from error
    if not isinstance(held, dict) or not all(key in held for key in keys):
        raise DamagedFile(path, f"it does not hold {' and '.join(keys)}")
    return held


def _read_folders(folder: Path, source: Source, part: str) -> ImageSet:
    """One part from its class folders, not yet decoded."""
    return ImageSet.folder(folder / part)


def _in_memory(images: ImageSet, device: torch.device | str) -> ImageSet:
    """The same images with their pixels on the device. Files are decoded in parallel behind a progress bar."""
    pixels = images.pixels
    if pixels is None:
        chunks, decoded = _Decoded(images.files), []
        for chunk in in_workers(chunks, range(len(chunks)), None, "reading images"):
            if isinstance(chunk, UnreadableImage):
                raise chunk
            decoded.append(chunk)
        pixels = torch.cat(decoded)
    return ImageSet.from_pixels(pixels.to(device), images.labels, images.classes)


class _Decoded(Dataset):
    """`decoded[i]` is the i-th chunk of the files, uint8 (at most CHUNK, 3, 32, 32), or an error."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.chunks = [paths[first : first + CHUNK] for first in range(0, len(paths), CHUNK)]

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> Tensor | UnreadableImage:
        images = []
        for path in self.chunks[index]:
            try:
                images.append(decode(path))
            except UnreadableImage as error:  # returned, because a worker would raise it without its path
                return error
            if images[-1].shape != (3, SIDE, SIDE):
                height, width = images[-1].shape[1:]
                return UnreadableImage(path, f"it has {width} x {height} pixels, not {SIDE} x {SIDE}")
        return torch.stack(images)
