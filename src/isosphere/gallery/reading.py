"""Files on their way into a gallery: decoded once, for the model and for a thumbnail, in threads."""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from isosphere.data import alignment
from isosphere.data.decoding import decode
from isosphere.data.frames import square
from isosphere.data.images import ImageSet
from isosphere.data.lists import some
from isosphere.errors import CroppedFacesWarning, InputError, UnreadableImage
from isosphere.inference import Trained, evaluation_view
from isosphere.report.page.gallery import encoded

SIDE = 192  # of a thumbnail, in pixels


class Seen(NamedTuple):
    """A file as the model sees it, uint8 (3, S, S), and its thumbnail, a WebP."""

    pixels: Tensor
    thumbnail: bytes


Frame = Callable[[int, Tensor], Tensor]  # the number of an image and its pixels -> as the model sees it


def framing(trained: Trained, images: ImageSet, home: Path) -> Frame:
    """How each of the images is cut for the model: as the run's test images are, faces by their landmarks if known."""
    data = trained.recipe.data
    if not data.framed:
        view = evaluation_view(data)
        return lambda index, pixels: view(pixels)
    square_view = square(data.fraction)
    landmarks = alignment.landmarks_of(images, home) if data.align else None
    known = None if landmarks is None else landmarks.isfinite().all(2).sum(1) >= 2
    if known is not None and not known.all():
        lost = [images.files[index] for index in (~known).nonzero().flatten().tolist()]
        text = f"{len(lost)} of {len(images)} faces have no landmarks: their central square is taken"
        warnings.warn(CroppedFacesWarning(f"{text}: {some(lost)}", len(lost), lost), stacklevel=2)

    def frame(index: int, pixels: Tensor) -> Tensor:
        if landmarks is not None and known is not None and known[index]:
            return alignment.align(pixels, landmarks[index], square_view.size)
        return square_view(pixels)

    return frame


def seen(path: str, index: int, frame: Frame) -> Seen | UnreadableImage:
    """One file, or why it cannot be read."""
    try:
        pixels = decode(path)
        return Seen(frame(index, pixels), thumbnail(pixels))
    except UnreadableImage as error:
        return error
    except InputError as error:
        return UnreadableImage(path, str(error))


def thumbnail(pixels: Tensor) -> bytes:
    """A small WebP of pixels, uint8 (3, H, W)."""
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    image.thumbnail((SIDE, SIDE))
    return encoded(image)


def opened(webp: bytes) -> Image.Image:
    """A thumbnail as an image of PIL."""
    return Image.open(io.BytesIO(webp)).convert("RGB")


def batches(
    paths: Sequence[str], numbers: Sequence[int], frame: Frame, threads: int, size: int = 64
) -> Iterator[tuple[list[int], list[Seen | UnreadableImage]]]:
    """The files with these numbers, batch by batch. The next batch is read while the caller works on this one."""
    parts = [list(numbers[start : start + size]) for start in range(0, len(numbers), size)]
    with ThreadPoolExecutor(max(1, threads)) as pool:

        def begun(part: list[int]) -> list[Future[Seen | UnreadableImage]]:
            return [pool.submit(seen, paths[number], number, frame) for number in part]

        ahead = begun(parts[0]) if parts else []
        for place, part in enumerate(parts):
            now, ahead = ahead, begun(parts[place + 1]) if place + 1 < len(parts) else []
            yield part, [future.result() for future in now]


def stacked(found: Sequence[Seen]) -> Tensor:
    """What the model sees of a batch, uint8 (B, 3, S, S)."""
    return torch.stack([one.pixels for one in found])
