"""Image files and images in memory as pixels.

Files are decoded as torchvision's loader does it: alpha is dropped, colors are not managed. Two things differ. The EXIF
orientation is applied, and 16-bit gray is scaled instead of clipped.
"""

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from isosphere.errors import BadArgument, InputError, UnreadableImage

ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)
"""EXIF's tag, and its values that exchange height and width."""


def decode(file: str | Path | BinaryIO, name: str = "") -> Tensor:
    """An image file as RGB, uint8 (3, H, W), upright by its EXIF orientation. Errors have its `name`, if given."""
    if isinstance(file, str | Path) and os.path.exists(file) and not os.path.isfile(file):  # a pipe would be waited for
        raise UnreadableImage(name or str(file), "it is no plain file")
    try:
        with Image.open(file) as opened:
            return _rgb(opened)
    except InputError as error:
        raise UnreadableImage(name or str(file), str(error)) from error
    except Exception as error:  # on damaged files PIL raises almost anything
        reason = str(error).replace(repr(file), repr(name)) if name else error
        raise UnreadableImage(name or str(file), f"{type(error).__name__}: {reason}") from error


def shape_of(file: str | Path) -> tuple[int, int] | None:
    """Height and width of an image file, upright, by its header alone; None where it cannot be read."""
    if not os.path.isfile(file):
        return None
    try:
        with Image.open(file) as opened:
            turned = opened.getexif().get(ORIENTATION, 1) in TURNED
            return opened.size if turned else opened.size[::-1]
    except Exception:  # which is told where the images are read
        return None


def in_memory(image: object) -> Tensor:
    """An image of PIL, or pixels, uint8 (3, H, W) or (H, W, 3), as uint8 (3, H, W). PIL's is seen as its file is."""
    if isinstance(image, Image.Image):
        if not all(image.size):
            raise BadArgument("image", image.size, "at least one pixel wide and high")
        return _rgb(image)
    if not isinstance(image, np.ndarray | Tensor):
        raise BadArgument("image", type(image).__name__, "one of PIL, or an array of pixels")
    pixels = image if isinstance(image, Tensor) else torch.from_numpy(np.array(image))  # copied: may be flipped
    if pixels.dtype != torch.uint8 or pixels.ndim != 3 or 3 not in (pixels.shape[0], pixels.shape[2]):
        found = f"{str(pixels.dtype).removeprefix('torch.')} {tuple(pixels.shape)}"
        raise BadArgument("image", found, "uint8 from 0 to 255, (3, H, W) or (H, W, 3)")
    if not pixels.numel():
        raise BadArgument("image", tuple(pixels.shape), "at least one pixel wide and high")
    return pixels if pixels.shape[0] == 3 else pixels.permute(2, 0, 1)


def _rgb(opened: Image.Image) -> Tensor:
    image, kind = ImageOps.exif_transpose(opened), opened.format
    if image.mode == "F" or (image.mode == "I" and kind not in ("PNG", "PPM")):  # which have 16 bits at most
        raise BadArgument("image", image.mode, "of 8 or 16 bits a pixel; with 32 it is not known what is white")
    if image.mode.startswith("I"):  # 16-bit gray: PIL's own conversion would clip it to white
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()
