"""The pipeline as a graph, what is said of it, and how a written one compares. The format of torch is here, too."""

import io
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

import isosphere
from isosphere import files
from isosphere.errors import CroppedFacesWarning, OtherEmbeddings, Unsupported
from isosphere.inference import Trained, fingerprint
from isosphere.sphere import directions, norms

from .pipeline import Pipeline

LIMIT = 1e-4  # of the distance to torch, as a share of the embeddings' mean norm
CUTS = {
    "crop": "its center, with the shorter side at {}",
    "pad": "all of it in a gray frame",
    "squash": "all of it, squashed",
}
ROUNDING = 2.1  # pixel values: torchvision rounds after each of up to four passes, by half at most
Graph = Callable[[Tensor], Tensor]  # images, uint8 (N, 3, H, W) -> embeddings (N, D)


@dataclass(frozen=True)
class Check:
    """How a written file compares on made-up pictures."""

    error: float  # largest distance of a number to the same graph in torch, as a share of the embeddings' mean norm
    cosine: float  # smallest to what `embed` gives, which rounds to whole pixel values after resizing


def to_program(trained: Trained, path: str | Path, unit: bool = True) -> Check:
    """Write a torch.export program: images, uint8 (N, 3, H, W) -> embeddings (N, D), of unit length or raw."""
    files.writable(path)
    pipeline, written = Pipeline(trained, unit), io.BytesIO()
    extra = {"isosphere.json": json.dumps(metadata(trained, unit), indent=1)}
    torch.export.save(program_of(pipeline, trained, "torch.export"), written, extra_files=extra)
    written.seek(0)
    found = checked(path, pipeline, torch.export.load(written).module(), trained)
    files.write(path, written.getvalue())
    return found


def metadata(trained: Trained, unit: bool) -> dict[str, str]:
    """What a user of the file must know, as texts."""
    data, model = trained.recipe.data, trained.recipe.model
    cut = "its central square" if data.framed else CUTS[data.fit].format(data.shorter)
    height, width = data.sides
    return {
        "isosphere": isosphere.__version__,
        "input": "images: RGB, uint8 0 to 255, (N, 3, H, W), all of one size, upright",
        "preprocessing": f"in the graph: {cut}, as {height} x {width} pixels, then mean and std",
        "output": f"embeddings: float32, (N, {trained.model.dim}), {'of unit length' if unit else 'raw'}",
        "unit": "true" if unit else "false",
        "dim": str(trained.model.dim),
        "backbone": model.backbone,
        "head": model.head,
        "model": fingerprint(trained.model),  # as a gallery's manifest names it
    }


@torch.no_grad()
def program_of(pipeline: Pipeline, trained: Trained, what: str) -> ExportedProgram:
    """The graph with any number of images, of any size."""
    shapes = {"images": {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}}
    example = torch.zeros(2, 3, 61, 47, dtype=torch.uint8)  # sides that differ, so that none is taken for another
    try:
        return torch.export.export(pipeline.eval(), (example,), dynamic_shapes=shapes)
    except Exception as error:  # a network of the user's own makes it raise almost anything
        raise unsupported(trained, what, error) from error


def unsupported(trained: Trained, what: str, error: Exception) -> Unsupported:
    """The error of a network that a format cannot hold."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return Unsupported(trained.recipe.model.backbone, f"export to {what}", f"{reason}; use --to safetensors")


@torch.no_grad()
def checked(path: str | Path, pipeline: Pipeline, graph: Graph, trained: Trained) -> Check:
    """How the graph compares with the pipeline; one that differs is refused."""
    error, cosine = 0.0, 1.0
    for images in pictures(max(trained.recipe.data.sides)):
        if (pipeline.pixels(images) - pipeline.view(images)).abs().max() > ROUNDING:
            raise Unsupported("this run's view of images", "export as a graph", "use --to safetensors")
        wanted, found = pipeline(images), graph(images)
        scale = norms(wanted).mean().clamp(min=1e-12)
        error = max(error, float((found - wanted).abs().max() / scale))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CroppedFacesWarning)  # made-up faces have no landmarks
            rounded = directions(trained.embed(images).cpu())
        cosine = min(cosine, float((rounded * directions(found)).sum(1).min()))
    if not error <= LIMIT:  # also NaN
        raise OtherEmbeddings(str(path), error, LIMIT)
    return Check(error, cosine)


def pictures(size: int) -> Iterator[Tensor]:
    """Made-up pictures, uint8 (N, 3, H, W): soft shapes with fine grain, upright, wide, enlarged and just right."""
    generator = torch.Generator().manual_seed(0)
    for count, height, width in ((3, 2 * size, size + size // 3), (1, size + 5, 2 * size + 3), (2, size, size)):
        soft = torch.rand(count, 3, 5, 4, generator=generator)
        grain = torch.rand(count, 3, height, width, generator=generator)
        soft = torch.nn.functional.interpolate(soft, (height, width), mode="bicubic").clamp(0, 1)
        yield (235 * soft + 20 * grain).to(torch.uint8)
