"""What is sent, read with limits: bytes and seconds of a body, formats and pixels of an image, numbers of a vector."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import anyio
import torch
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request
from torch import Tensor

from isosphere.data.decoding import in_memory

from .answers import bad, busy, refusal, too_large
from .limits import MEGA, Limits

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # which PIL reads by itself; some others start programs


class Budget:
    """Bytes that all requests hold together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0

    @contextmanager
    def body(self) -> Iterator["Body"]:
        """A new body; its bytes are given back at the end of the block."""
        body = Body(self)
        try:
            yield body
        finally:
            self.held -= len(body.content)
            body.content = bytearray()


class Body:
    """What one request has sent so far."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.content = budget, bytearray()

    async def read(self, request: Request, most: int, seconds: float) -> bytearray:
        """The whole body, of at most so many bytes, within so many seconds."""
        reason = f"more than {most / MEGA:g} million bytes"
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise too_large(reason)
        with anyio.move_on_after(seconds):
            async for part in request.stream():
                if len(self.content) + len(part) > most:
                    raise too_large(reason)
                if self.budget.held + len(part) > self.budget.limit:
                    raise busy("too many uploads at once")
                self.budget.held += len(part)
                self.content += part
            if not self.content:
                raise bad("the body is empty: send an image file, or an embedding as JSON")
            return self.content
        raise refusal(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {seconds:g} seconds")


def image_of(body: bytes | bytearray, limits: Limits, frame: tuple[int, int]) -> Tensor:
    """An image file as pixels, uint8 (3, H, W), upright. Its size is judged before it is decoded.

    Later it is resized to cover a `frame`, height and width: a thin image would become a huge one.
    """
    most = f"at most {limits.pixels / MEGA:g} million pixels are taken"
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as opened:
            width, height = opened.size
            if width * height > limits.pixels:
                raise too_large(f"{width} x {height} pixels; {most}")
            if max(1.0, max(frame) / min(width, height)) ** 2 * width * height > limits.pixels:
                raise too_large(f"{width} x {height} pixels are too thin to be resized; {most}")
            return in_memory(opened)
    except HTTPException:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise too_large(most) from None
    except MemoryError:
        raise busy("no memory for this image now") from None
    except Exception as error:  # on damaged files PIL raises almost anything
        raise refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"not an image that can be read ({', '.join(FORMATS)})"
        ) from error


def vector_of(body: bytes | bytearray, width: int) -> Tensor:
    """`{"embedding": [...]}` as (1, D)."""
    try:
        given = json.loads(body)["embedding"]
        if len(given) != width or not all(type(value) in (int, float) for value in given):
            raise ValueError
        found = torch.tensor([given], dtype=torch.float64).float()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise bad(f'the body must be {{"embedding": [...]}} with {width} numbers') from None
    if not found.isfinite().all() or not found.any():
        raise bad("an embedding must have finite numbers, not all of them 0")
    return found
