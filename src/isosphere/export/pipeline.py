"""A trained model with its preprocessing in one graph: uint8 images of any size in, embeddings out.

`embed` rounds to whole pixel values after resizing. A graph stays in float, as runtimes round differently.
"""

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from isosphere.data.alignment import FaceView
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
        self._trained = replace(trained, model=self.model, device=torch.device("cpu"))

    def forward(self, images: Tensor) -> Tensor:
        rows, columns = view_weights(self.view, *images.shape[2:])
        pixels = rows @ images.float() @ columns.T  # (N, 3, S, S)
        embeddings = self._trained.forward(self.model.from_floats(pixels)).float()
        return directions(embeddings) if self.unit else embeddings


def view_weights(view: TestView | FaceView, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Matrices (S, H) and (S, W) that bring an image (H, W) to its view (S, S): rows @ image @ columns.T."""
    short = torch.sym_min(height, width)
    if isinstance(view, TestView):
        found = []
        for length in (height, width):
            new = view.shorter * length // short
            spare = new - view.size
            start = spare // 2 + (spare % 2) * (spare // 2 % 2)  # half of it, rounded to even
            found.append(resizing(length, 0, length, new, start, view.size))
        return found[0], found[1]
    sides = [torch.scalar_tensor(side, dtype=torch.float64) for side in (height, width, short)]
    stays = (sides[0] == view.size) & (sides[1] == view.size)
    side = torch.where(stays, sides[2], (view.fraction * sides[2]).round().clamp(min=1))
    top = ((sides[0] - side) / 2 - view.rise * sides[2]).round().clamp(min=0).minimum(sides[0] - side)
    left = ((sides[1] - side) / 2).round()
    rows = resizing(height, torch.where(stays, torch.zeros_like(top), top), side, view.size, 0, view.size)
    return rows, resizing(width, left, side, view.size, 0, view.size)


def resizing(length: int, begin: Length, span: Length, new: Length, start: Length, size: int) -> Tensor:
    """Antialiased bilinear resizing as a matrix (size, length).

    `span` pixels from `begin` on become `new` ones, of which those from `start` on are taken. A pixel weighs as a
    triangle around the center of the new one, as wide as one of the larger of the two, says.
    """
    given = (begin, span, new, start)
    begins, spans, news, starts = (torch.scalar_tensor(x) if not isinstance(x, Tensor) else x.float() for x in given)
    scale = spans / news
    centers = begins + (torch.arange(size, dtype=torch.float32) + starts + 0.5) * scale
    places = torch.arange(length, dtype=torch.float32) + 0.5
    weights = (1 - (places - centers[:, None]).abs() / scale.clamp(min=1)).clamp(min=0)
    weights = weights * ((places > begins) & (places < begins + spans))
    return weights / weights.sum(1, keepdim=True)

