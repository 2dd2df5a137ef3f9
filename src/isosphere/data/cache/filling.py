"""Decoding what a cache lacks, in worker processes."""

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from isosphere.errors import InputError, NoSpace

from ..decoding import decode
from ..looks import look
from ..workers import in_workers
from .places import NONE, make_room
from .store import RECORD, Store

CHUNK = 32  # images that a worker hands over at once
SAMPLE = 8  # images from which the size of all is estimated
NAME = 100  # bytes of a name, more or less
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Encoded(Protocol):
    """A set of image files, or of records in one."""

    def __len__(self) -> int: ...

    def encoded(self, index: int) -> bytes:
        """The bytes of an image's file."""

    def called(self, index: int) -> str:
        """What an error calls it."""

    def stamps(self) -> np.ndarray:
        """Size and time of each image's file, int64 (N, 2); -1 of one that is not there."""

    def keys(self, source: Path) -> list[str]:
        """A name of each image, by which it is known again; files below the source without its path."""

    def is_there(self, key: str, source: Path) -> bool:
        """Whether the file of a name is still there."""


FirstStage = Callable[..., Tensor]
"""A frozen dataclass such as `Stored`, whose `repr` is part of a cache's key: an image, and perhaps its landmarks, to
the image that a cache holds, uint8 (C, H, W)."""


class Image(NamedTuple):
    """Of one image: its place in the set, its size as it is stored and in the file, a digest of the file, its look."""

    place: int
    size: tuple[int, int]
    raw: tuple[int, int]
    digest: bytes
    look: bytes


class Prepared(NamedTuple):
    """Images as they are stored, with the pixels (P, 3) of all one after another. Errors are by index."""

    pixels: Tensor
    images: list[Image]
    failures: dict[int, InputError]


class Chunks(Dataset):
    """`chunks[k]` are the k-th CHUNK of the images at these places."""

    def __init__(
        self, images: Encoded, places: Sequence[int], stored: FirstStage, landmarks: Tensor | None = None
    ) -> None:
        self.images, self.places, self.stored, self.landmarks = images, places, stored, landmarks

    def only(self, place: int) -> "Chunks":
        """The one image at a place of these."""
        return Chunks(self.images, [self.places[place]], self.stored, self.landmarks)

    def __len__(self) -> int:
        return -(-len(self.places) // CHUNK)

    def __getitem__(self, chunk: int) -> Prepared:
        found, pixels, failures = [], [torch.empty(0, 3, dtype=torch.uint8)], {}
        for index in self.places[chunk * CHUNK : (chunk + 1) * CHUNK]:
            try:  # errors are returned, as a worker would raise them as others
                data = self.images.encoded(index)
                image = decode(io.BytesIO(data), self.images.called(index))
                stored = self.stored(image, *(() if self.landmarks is None else (self.landmarks[index],)))
            except InputError as error:
                failures[index] = error
                continue
            digest = hashlib.blake2b(data, digest_size=16).digest()
            found.append(Image(index, _size(stored), _size(image), digest, look(image).numpy().tobytes()))
            pixels.append(stored.permute(1, 2, 0).reshape(-1, 3))
        return Prepared(torch.cat(pixels), found, failures)


def _size(image: Tensor) -> tuple[int, int]:
    return image.shape[1], image.shape[2]


def fill(
    store: Store, chunks: Chunks, names: Sequence[bytes], stamps: np.ndarray, workers: int | None
) -> dict[int, InputError]:
    """Add the images of the chunks to the store. Returns the errors of those that cannot be read, by place."""
    needed = _estimate(chunks)
    make_room(store.folder, needed)
    failures: dict[int, InputError] = {}
    try:
        with store.adding() as add:
            for part in in_workers(chunks, range(len(chunks)), workers, "caching images"):
                failures |= part.failures
                pixels, begin = part.pixels.numpy(), 0
                for index, size, raw, digest, its_look in part.images:
                    end = begin + size[0] * size[1]
                    add(names[index], stamps[index], digest, its_look, raw, pixels[begin:end].reshape(*size, 3))
                    begin = end
    except OSError as error:
        if error.errno in FULL:
            free = shutil.disk_usage(store.folder).free
            raise NoSpace(str(store.folder.parent), needed, free, os.strerror(error.errno), NONE) from error
        raise
    return failures


def _estimate(chunks: Chunks) -> int:
    """Bytes that these images will take, by a few of them."""
    count = len(chunks.places)
    some = (round(place) for place in np.linspace(0, count - 1, min(SAMPLE, count)))
    sizes = [len(chunks.only(place)[0].pixels) for place in some]
    return round((3 * float(np.mean(sizes)) + RECORD.itemsize + NAME) * count)
