"""A trained model with its preprocessing in one graph: uint8 images of any size in, embeddings out.

`embed` rounds to whole pixel values after resizing. A graph stays in float, as runtimes round differently.
"""

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from isosphere.data.alignment import FaceView
from isosphere.data.fits import GRAY, sides
from isosphere.data.transforms import TestView
from isosphere.errors import Incompatible, Option
from isosphere.inference import Trained, evaluation_view
from isosphere.sphere import directions

Length = int | torch.SymInt | Tensor  # of an image: known, symbolic while a graph is made, or computed in the graph


class Pipeline(nn.Module):
    """RGB images of one size, uint8 (N, 3, H, W) -> embeddings (N, D), float32, of length 1 if `unit`."""

    def __init__(self, trained: Trained, unit: bool = True) -> None:
        super().__init__()
        if trained.recipe.data.transformed:
            reason = "this run's images are made by transforms of its own, which no file can hold"
            raise Incompatible(("data",), reason, (Option("to", "safetensors"),))
        self.model = copy.deepcopy(trained.model).cpu().float().eval()
        self.unit, self.view = unit, evaluation_view(trained.recipe.data)
        self.around: Tensor
        self.register_buffer("around", torch.tensor(GRAY, dtype=torch.float32)[:, None, None])
        self._trained = replace(trained, model=self.model, device=torch.device("cpu"))

    def forward(self, images: Tensor) -> Tensor:
        embeddings = self._trained.forward(self.model.from_floats(self.pixels(images))).float()
        return directions(embeddings) if self.unit else embeddings

    def pixels(self, images: Tensor) -> Tensor:
        """What the model sees, without rounding to whole pixel values, (N, 3, S, S)."""
        rows, columns = view_weights(self.view, *images.shape[2:])
        pixels = rows @ images.float() @ columns.T + self.around * (1 - rows.sum(1)[:, None] * columns.sum(1))
        return pixels.clamp(0, 255)  # beyond which a cubic may go


def view_weights(view: TestView | FaceView, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Matrices (S, H) and (S, W) that bring an image (H, W) to its view (S, S): rows @ image @ columns.T.

    Rows of a matrix have the sum 1, or less around a padded image.
    """
    if isinstance(view, TestView):
        return framed(view, height, width, 0), framed(view, width, height, 1)
    short = torch.sym_min(height, width)
    given = [torch.scalar_tensor(side, dtype=torch.float64) for side in (height, width, short)]
    stays = (given[0] == view.size) & (given[1] == view.size)
    side = torch.where(stays, given[2], (view.fraction * given[2]).round().clamp(min=1))
    top = ((given[0] - side) / 2 - view.rise * given[2]).round().clamp(min=0).minimum(given[0] - side)
    left = ((given[1] - side) / 2).round()
    rows = resizing(height, torch.where(stays, torch.zeros_like(top), top), side, view.size, 0, view.size)
    return rows, resizing(width, left, side, view.size, 0, view.size)


def framed(view: TestView, length: int, other: int, axis: int) -> Tensor:
    """One of the two matrices of a test view: rows (S, H) for the axis 0, columns (S, W) for 1."""
    size, frame, along = sides(view.size)[axis], view.stored.frame[axis], view.stored.frame[1 - axis]
    cubic = view.interpolation == "bicubic"
    if view.fit == "crop":
        new = torch.sym_max(frame, length * along // other)
        spare = new - size
        start = spare // 2 + (spare % 2) * (spare // 2 % 2)  # half of it, rounded to even
        return resizing(length, 0, length, new, start, size, cubic=cubic)
    new = frame
    if view.fit == "pad":
        new = torch.sym_max(1, torch.sym_min(frame, (2 * length * along + other) // (2 * other)))
    first = resizing(length, 0, length, new, -((frame - new) // 2), frame, cubic=cubic)
    return first if frame == size else resizing(frame, 0, frame, size, 0, size, antialias=False) @ first


def resizing(
    length: int,
    begin: Length,
    span: Length,
    new: Length,
    start: Length,
    size: int,
    antialias: bool = True,
    cubic: bool = False,
) -> Tensor:
    """Antialiased bilinear or bicubic resizing as a matrix (size, length).

    `span` pixels from `begin` on become `new` ones, of which those from `start` on are taken; where there are none, a
    row is 0. A pixel weighs as a triangle, or Keys' cubic, around the center of the new one says. These are as wide as
    one of the larger of the two. Without antialiasing they are as wide as a given pixel, and pixels of the rim repeat.
    """
    given = (begin, span, new, start)
    begins, spans, news, starts = (torch.scalar_tensor(x) if not isinstance(x, Tensor) else x.float() for x in given)
    scale, taken = spans / news, torch.arange(size, dtype=torch.float32) + starts
    centers = begins + (taken + 0.5) * scale
    if not antialias:
        centers = centers.clamp(min=0.5, max=length - 0.5)
        scale = scale.clamp(max=1)
    places = torch.arange(length, dtype=torch.float32) + 0.5
    away = (places - centers[:, None]).abs() / scale.clamp(min=1)
    weights = keys_cubic(away) if cubic else (1 - away).clamp(min=0)
    weights = weights * ((places > begins) & (places < begins + spans))
    there = (taken >= 0) & (taken < news)
    return torch.where(there[:, None], weights / weights.sum(1, keepdim=True).clamp(min=1e-9), 0)


def keys_cubic(away: Tensor) -> Tensor:
    """Weights of pixels so far from a place, by the cubic with a of -0.5, as PIL and torch's antialiasing have it."""
    near, far = (1.5 * away - 2.5) * away**2 + 1, ((-0.5 * away + 2.5) * away - 4) * away + 2
    return torch.where(away < 1, near, torch.where(away < 2, far, 0))
