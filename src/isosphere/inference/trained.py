"""A trained model at work: it embeds a few images in memory or in files, or a whole folder into files."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from isosphere import distributed, files, runs
from isosphere.data.images import ImageSet, open_images
from isosphere.errors import BadArgument
from isosphere.metrics.faces import mirror_averaged
from isosphere.models.embedder import Embedder
from isosphere.recipes import schema
from isosphere.sphere import directions

from .embedding import Forward, ImageEmbedder, half_precision, workers
from .preprocessing import naming, parse_place, pixels_of, preprocessed

Pixels = Image.Image | np.ndarray | Tensor  # one image in memory


@dataclass(frozen=True)
class Trained:
    """A model read back from its run folder, with its recipe and the classes it was trained on."""

    recipe: schema.Recipe
    model: Embedder
    device: torch.device
    classes: list[str]
    images: int | None  # how many it was trained on; an older checkpoint does not say
    stopped: int | None = None  # the step of its checkpoint, if it was not trained to its end

    @property
    def embedder(self) -> ImageEmbedder:
        """The model for whole sets of images, behind a progress bar."""
        loop, own = self.recipe.loop, self.recipe.data.own
        half, flip = half_precision(loop, self.device), self.recipe.evaluation.flip
        return ImageEmbedder(self.model, self.device, workers(loop), half, True, own, flip)

    @property
    def forward(self) -> Forward:
        """How this run embeds: faces are averaged with their mirror images, others if the recipe says so."""
        return self.way(features=False)

    def way(self, features: bool) -> Forward:
        """What images are brought through: the model, or its backbone alone, also mirrored where this run does that."""
        flip = self.recipe.evaluation.flip or (self.recipe.data.framed and not features)
        forward = self.model.features if features else self.model
        return partial(mirror_averaged, forward) if flip else forward

    @distributed.alone()
    def embed(self, images: Sequence[str | Path | Pixels] | Pixels, features: bool = False) -> Tensor:
        """Raw embeddings (N, D) of images, preprocessed as the run's test images are, or the backbone's features.

        Images are all paths of files, or all in memory: of PIL, or pixels of any size, uint8 (N, 3, H, W) or
        (N, H, W, 3); one alone is taken, too. Faces in memory have no landmarks: those of 112 x 112 stay, others are
        cut by `data.fraction`. Under torch.distributed every rank embeds what it is given, and waits for no other.
        """
        if isinstance(images, np.ndarray | Tensor):
            given = [images] if images.ndim in (2, 3) else list(images)  # of 2 to be refused as a whole
        else:
            given = [images] if isinstance(images, str | Path | Image.Image) else list(images)
        if not given:
            raise BadArgument("images", [], "one image or more")
        labels = torch.zeros(len(given), dtype=torch.long)
        if self.recipe.data.transformed:
            return self._transformed(given, labels, features)
        paths = [str(image) for image in given if isinstance(image, str | Path)]
        if len(paths) == len(given):
            found, view = preprocessed(self, ImageSet(labels, ["files"], paths), Path(paths[0]).parent, skip=False)
        else:
            found, view = ImageSet.from_pixels(pixels_of(self, given), labels, ["images"]), None
        embedder = replace(self.embedder, workers=0, shown=False, lists_unreadable=False)
        forward = self.way(features)
        if view is None:  # they are in memory
            return embedder(found, None, forward)
        rows = []
        # Threads, not processes: where these are not forked, they need a script that guards its __main__.
        with ThreadPoolExecutor(max(1, workers(self.recipe.loop))) as pool:
            for part in torch.arange(len(found)).split(256):
                pixels = torch.stack([*pool.map(lambda index: view(found[index]), part.tolist())])
                rows.append(embedder(ImageSet.from_pixels(pixels, labels[part], found.classes), None, forward))
        return torch.cat(rows)

    @torch.no_grad()
    def embed_seen(self, pixels: Tensor) -> Tensor:
        """Raw embeddings (N, D), float32, of images as the model sees them, uint8 (N, 3, S, S), by one pass."""
        half = half_precision(self.recipe.loop, self.device)
        with torch.autocast(self.device.type, half or torch.bfloat16, enabled=half is not None):
            return self.forward(pixels.to(self.device)).float()

    def encode(self, images: Sequence[str | Path | Pixels] | Pixels, normalize: bool = True) -> Tensor:
        """Unit embeddings (N, D), as search wants them; `normalize=False` leaves them raw, as `embed` does."""
        found = self.embed(images)
        return directions(found) if normalize else found

    def _transformed(self, given: Sequence[Any], labels: Tensor, features: bool) -> Tensor:
        """Raw embeddings of images as the run's own dataset gives them: float tensors of one shape."""
        if not all(isinstance(image, Tensor) and image.is_floating_point() for image in given):
            raise BadArgument("images", type(given[0]), "float tensors (C, H, W), as the dataset of this run gave them")
        pixels = ImageSet(labels, ["images"], pixels=torch.stack([*given]))
        return replace(self.embedder, workers=0, shown=False)(pixels, None, self.way(features))


def embed_files(trained: Trained, root: str, out: Path, features: bool = False) -> list[Path]:
    """Embed a folder's or CSV's images to OUT.npy, OUT.labels.npy (their classes' names) and OUT.paths.txt (both)."""
    labels, paths = out.with_suffix(".labels.npy"), out.with_suffix(".paths.txt")
    for path in (out, labels, paths):
        files.writable(path)
    place, share = parse_place(root, "root") if trained.recipe.data.framed else (root, None)
    named = replace(naming(trained.recipe.data), group_regex="")
    images, view = preprocessed(trained, open_images(place, flat=True, whole=True, naming=named), Path(place), share)
    embeddings = trained.embedder(images, view, trained.way(features))
    names = [images.classes[label] for label in images.labels.tolist()]
    # Names, not numbers, which mean other classes in another folder.
    for path, array in ((out, embeddings.cpu().numpy()), (labels, np.asarray(names, dtype=str))):
        with files.replacing(path, size=array.nbytes) as file:
            np.save(file, array)
    runs.write_paths(paths, zip(images.paths or (), names, strict=True))
    return [out, labels, paths]
