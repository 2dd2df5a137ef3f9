"""Photographs and their caches, as the tests of caches make them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from isosphere.data import CachedSet, ImageSet
from isosphere.data.cache import opening
from isosphere.data.fits import Stored


def photographs(root: Path, count: int = 10) -> Path:
    """Images of three classes, wide and tall, smooth and noisy, large and small."""
    rng = np.random.default_rng(0)
    for index in range(count):
        height, width = rng.integers(40, 120, 2)
        image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        path = root / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((int(width) * 2, int(height) * 2), Image.BILINEAR).save(path)
    return root


def opened(images: ImageSet, place: Path, shorter: int = 32, workers: int | None = 0) -> CachedSet:
    """The photographs from their cache in a place; all of them must be readable."""
    source = Path(images.files[0]).parents[1]
    found = opening.opened(images, Stored(shorter), source, place, workers=workers)
    assert not found.failures
    return CachedSet(images, Stored(shorter), found.origin)


def stored_of(images: ImageSet, index: int, shorter: int) -> torch.Tensor:
    """What a cache must hold of an image."""
    return functional.resize(images[index], [shorter], antialias=True)
