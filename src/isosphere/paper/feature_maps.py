"""What the strongest channels of the last layer respond to, for a few images and several runs (Fig. 8)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from isosphere.data.decoding import decode
from isosphere.errors import BadArgument, Option
from isosphere.inference import evaluation_view, load_run
from isosphere.recipes import labels as words
from isosphere.report import style
from isosphere.report.records import read_folders

CHANNELS = 6
ROW = 1.35  # inches, of which a row's name takes no more


def strongest(maps: np.ndarray, count: int = CHANNELS) -> np.ndarray:
    """The channels of largest mean activation of each image, strongest first, (K, C, H, W) -> (K, count)."""
    means = np.asarray(maps, dtype=np.float64).mean((2, 3))
    return np.argsort(-means, axis=1, kind="stable")[:, :count]


def feature_maps(
    runs: list[Path],
    out: Path,
    maps: Sequence[np.ndarray] | None = None,
    images: Sequence[Sequence[np.ndarray]] | None = None,
    count: int = CHANNELS,
) -> list[Path]:
    """Draw the strongest channels over each image, for each run.

    A run has `maps` (K, C, H, W) and `images`, K of (h, w, 3) uint8. These are what the network saw: a map covers all
    of its image. Each image and run has a row, so runs stand under each other. Each map is scaled to its own largest
    value.
    """
    folders = read_folders(runs)
    if maps is None or images is None:
        raise BadArgument("maps" if maps is None else "images", None, "given: those of the last layer for each run")
    pictures = len(images[0])
    if not len(maps) == len(images) == len(runs) or any(
        np.ndim(its) != 4 or not len(its) == len(seen) == pictures for its, seen in zip(maps, images, strict=True)
    ):
        raise BadArgument("maps", [np.shape(its) for its in maps], f"{len(runs)} of shape ({pictures}, C, H, W)")
    if any(np.shape(its)[1] < count for its in maps):
        raise BadArgument("count", count, f"at most {min(np.shape(its)[1] for its in maps)}, the channels")
    recipes = [run.values for run in folders]
    names = words.labels(recipes, [run.name for run in folders])
    title = f"The {count} channels of the last layer with the largest mean activation, strongest first\n"
    title += words.about(recipes)
    chosen = [strongest(its, count) for its in maps]
    with style.sheet(out, title, pictures * len(runs), count + 1, size=(1.25, ROW)) as (_, panels):
        for number, panel in enumerate(panels):
            row, column = divmod(number, count + 1)
            picture, run = divmod(row, len(runs))
            image = np.asarray(images[run][picture])
            height, width = image.shape[:2]
            panel.set(xticks=[], yticks=[])
            panel.grid(False)
            panel.imshow(image, extent=(0, width, height, 0))
            if column == 0:
                panel.set_ylabel(style.wrapped(names[run], ROW), fontsize=7)
                continue
            channel = int(chosen[run][picture, column - 1])
            values = np.asarray(maps[run][picture, channel], dtype=np.float64)
            heat = panel.imshow(
                values, cmap="viridis", alpha=0.6, extent=(0, width, height, 0), interpolation="bilinear"
            )
            heat.set_clim(min(values.min(), 0.0), max(values.max(), 1e-12))
            panel.set_title(f"channel {channel}", fontsize=7)
    return style.files(out)


@torch.no_grad()
def last_maps(folders: list[Path], paths: list[Path]) -> dict[str, list[np.ndarray]]:
    """For each run, the last layer with places, (K, C, H, W), and the preprocessed images."""
    if not paths:
        raise BadArgument("images", [], "one image or more")
    found, seen, pixels = [], [], [decode(path) for path in paths]
    for trained in map(load_run, folders):
        backbone, view = trained.model.backbone, evaluation_view(trained.recipe.data)
        maps = getattr(backbone, "maps", None) or getattr(backbone, "forward_features", None)  # the latter is timm's
        if maps is None:
            name = trained.recipe.model.backbone
            raise BadArgument(Option("model.backbone"), name, "one of ours or timm's, with maps")
        images = torch.stack([view(image) for image in pixels]).to(trained.device)
        found.append(maps(trained.model.preprocessing(images)).float().cpu().numpy())
        seen.append(images.permute(0, 2, 3, 1).cpu().numpy())
    return {"maps": found, "images": seen}
