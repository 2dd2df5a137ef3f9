"""What images go through before a trained model sees them, so that they look as those it was tested on."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isosphere.data.alignment import FaceView
from isosphere.data.cache import CachedSet
from isosphere.data.columns import Naming
from isosphere.data.decoding import in_memory
from isosphere.data.frames import Source, framed, square
from isosphere.data.images import ImageSet
from isosphere.data.readable import readable_images
from isosphere.data.transforms import TestView
from isosphere.errors import BadArgument, CroppedFacesWarning, Option
from isosphere.models.expected import expects
from isosphere.recipes import schema
from isosphere.recipes.fields import split_share

if TYPE_CHECKING:
    from .trained import Trained


def naming(data: schema.Data) -> Naming:
    """Where the labels and groups of images are."""
    return Naming(data.label_regex, data.group_regex, data.columns)


def evaluation_view(data: schema.Data) -> FaceView | TestView:
    """What an image file goes through before a model that was trained on this data; of faces without landmarks."""
    return square(data.fraction) if data.framed else TestView(data.shape, data.shorter, data.fit, data.resize)


def parse_place(place: str, field: str) -> tuple[str, FaceView | None]:
    """`lfw/singles.csv:0.52` -> the path and the square of that share, or None without a share."""
    path, share = split_share(place)
    if share is not None and not 0 < share <= 1:
        raise BadArgument(Option(f"data.{field}"), place, "a path and a share above 0 and at most 1")
    return path, None if share is None else square(share)


def preprocessed(
    trained: "Trained", images: ImageSet, home: Path, share: FaceView | None = None, people: int = 1, skip: bool = True
) -> tuple[ImageSet | CachedSet, FaceView | TestView | None]:
    """The images with the view by which the run's own are embedded; faces are framed as those trained on."""
    data = trained.recipe.data
    if data.transformed:
        raise BadArgument("images", "files", "float tensors, as the dataset of this run gives them")
    skip = skip and data.own and data.skip_unreadable
    if data.framed:
        source = Source(images, home, share or square(data.fraction), people=people)
        return framed(source, data.align, trained.device, skip), None
    return readable_images(images, skip_unreadable=True) if skip else images, evaluation_view(data)


def pixels_of(trained: "Trained", images: Sequence[object]) -> Tensor:
    """Images of any sizes as the network gets those of the run, uint8 (N, 3, S, S)."""
    data, pixels = trained.recipe.data, [in_memory(image) for image in images]
    cut = sum(image.shape[1:] != data.sides for image in pixels)
    if data.framed and data.align and cut:
        text = f"{cut} of {len(pixels)} faces have no landmarks: their central square is taken"
        # At the line that called `embed`, which is decorated.
        warnings.warn(CroppedFacesWarning(text, cut), stacklevel=4)
    view = evaluation_view(data)
    return torch.stack([view(image) for image in pixels])


def for_other_images(recipe: schema.Recipe) -> schema.Recipe:
    """A run's recipe for images that are not its own: unreadable ones can be skipped, whatever it was trained on."""
    data = recipe.data
    if data.own or data.transformed:
        return recipe
    seen = schema.Folder(size=data.size, shorter=data.shorter, fit=data.fit, interpolation=data.interpolation)
    return replace(recipe, data=seen)


def completed(recipe: schema.Recipe) -> schema.Recipe:
    """The recipe with the interpolation that its weights from the hub ask for, if it names none."""
    data: Any = recipe.data
    pretrained = isinstance(recipe.model, schema.Model) and recipe.model.pretrained
    if not pretrained or data.interpolation is not None or "interpolation" not in vars(data):
        return recipe
    return replace(recipe, data=replace(data, interpolation=expects(recipe.model.backbone).interpolation))
