"""A trained model at work: load it from its run folder, preprocess images, embed them."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from isosphere import distributed, files, runs
from isosphere.data.alignment import FaceView
from isosphere.data.decoding import in_memory
from isosphere.data.feed import loader
from isosphere.data.frames import Source, framed, square
from isosphere.data.images import Images, ImageSet, open_images
from isosphere.data.readable import readable_images
from isosphere.data.transforms import TestView, View
from isosphere.data.workers import cores
from isosphere.errors import BadArgument, BadCheckpoint, CroppedFacesWarning, NoCheckpoint, Option, UnreadableImage
from isosphere.metrics.faces import mirror_averaged
from isosphere.models.embedder import Embedder, build_embedder
from isosphere.models.own import build_own_embedder
from isosphere.recipes import own, schema
from isosphere.recipes.fields import located, split_share
from isosphere.samplers import OrderedBatches

Forward = Callable[[Tensor], Tensor]  # images (N, C, H, W) -> rows (N, D)
Pixels = Image.Image | np.ndarray | Tensor  # one image in memory


# ---------------------------------------------------------------- embed


@torch.no_grad()
def embed(
    model: nn.Module,
    images: Images,
    view: View | None,
    device: torch.device,
    workers: int = 0,
    batch: int = 256,
    autocast: torch.dtype | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    forward: Forward | None = None,
) -> Tensor:
    """Raw embeddings of all images, float32 (N, D) on the device, in order; the ranks share the work.

    `forward` is another function of the model than itself, such as its features. `progress(done, total)` is called
    after each batch. The model is in evaluation mode meanwhile, and as it was afterwards, also after an error.
    """
    forward = model if forward is None else forward
    world, own = distributed.world(), range(distributed.rank(), len(images), distributed.world())
    # Alone, a rank takes all: a subset would copy the pixels. One without any sees the first, to know a row's width.
    mine = images if world == 1 else images.subset(own or range(1))
    batches = OrderedBatches(len(mine), batch)
    rows, done = [], 0
    with evaluating(model):
        for part in loader(mine, batches, view, range(batches.per_epoch), workers, pin_memory=device.type == "cuda"):
            with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
                rows.append(forward(part.images.to(device, non_blocking=True)).float())
            done += len(part.images)
            progress(done, len(mine))
    return distributed.gather_rows(torch.cat(rows)[: len(own)], len(images))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards every module is in the mode that it had."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode


@contextmanager
def progress_bar(title: str, total: int, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, called as `show(done, total)`; it goes when all is done."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    columns, hidden = (*Progress.get_default_columns(), MofNCompleteColumn()), not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@dataclass(frozen=True)
class ImageEmbedder:
    """A model with what it takes to embed whole sets of images, in one of four ways."""

    model: Embedder
    device: torch.device
    workers: int = 0
    autocast: torch.dtype | None = None
    shown: bool = False  # a progress bar
    lists_unreadable: bool = False  # all files that cannot be read are listed, not only the first

    def __call__(self, images: Images, view: View | None, forward: Forward | None = None) -> Tensor:
        """Raw embeddings (N, D)."""
        try:
            with progress_bar("embedding", len(images), self.shown) as show:
                return embed(
                    self.model, images, view, self.device, self.workers,
                    autocast=self.autocast, progress=show, forward=forward,
                )  # fmt: skip
        except UnreadableImage:
            if self.lists_unreadable:
                readable_images(images)
            raise

    def mirrored(self, images: Images, view: View | None) -> Tensor:
        """Embeddings averaged over an image and its mirror image (N, D)."""
        return self(images, view, partial(mirror_averaged, self.model))

    def features(self, images: Images, view: View | None) -> Tensor:
        """What the backbone gives to the head (N, F)."""
        return self(images, view, self.model.features)

    def both(self, images: Images, view: View | None) -> Tensor:
        """Features, then embeddings, by one pass (N, F + D)."""
        return self(images, view, self.model.both)


def half_precision(loop: schema.Loop, device: torch.device) -> torch.dtype | None:
    """bfloat16 where the recipe asks for it and the device has it, else None."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if loop.precision == "bfloat16" or (loop.precision == "auto" and able) else None


def workers(loop: schema.Loop) -> int:
    """Processes that decode images, as many as the recipe asks for, but no more than there are cores for them."""
    return min(loop.workers, cores())


# ---------------------------------------------------------------- a trained model


@dataclass(frozen=True)
class Trained:
    """A model read back from its run folder, with its recipe and the classes it was trained on."""

    recipe: schema.Recipe
    model: Embedder
    device: torch.device
    classes: list[str]
    images: int | None  # how many it was trained on; an older checkpoint does not tell
    stopped: int | None = None  # the step of its checkpoint, if it was not trained to its end

    @property
    def embedder(self) -> ImageEmbedder:
        """The model for whole sets of images, behind a progress bar."""
        loop, own = self.recipe.loop, self.recipe.data.own
        return ImageEmbedder(self.model, self.device, workers(loop), half_precision(loop, self.device), True, own)

    @property
    def forward(self) -> Forward:
        """How this run embeds: faces are averaged with their mirror images."""
        return partial(mirror_averaged, self.model) if self.recipe.data.framed else self.model

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
        if isinstance(self.recipe.data, schema.OwnData) and self.recipe.data.transformed:
            return self._transformed(given, labels, features)
        paths = [str(image) for image in given if isinstance(image, str | Path)]
        if len(paths) == len(given):
            found, view = preprocessed(self, ImageSet(labels, ["files"], paths), Path(paths[0]).parent, skip=False)
        else:
            found, view = ImageSet.from_pixels(_in_memory(self, given), labels, ["images"]), None
        embedder = replace(self.embedder, workers=0, shown=False, lists_unreadable=False)
        forward = self.model.features if features else self.forward
        if view is None:  # they are in memory
            return embedder(found, None, forward)
        rows = []
        # Threads, not processes: where these are not forked, they need a script that guards its __main__.
        with ThreadPoolExecutor(max(1, workers(self.recipe.loop))) as pool:
            for part in torch.arange(len(found)).split(256):
                pixels = torch.stack([*pool.map(lambda index: view(found[index]), part.tolist())])
                rows.append(embedder(ImageSet.from_pixels(pixels, labels[part], found.classes), None, forward))
        return torch.cat(rows)


    def _transformed(self, given: Sequence[Any], labels: Tensor, features: bool) -> Tensor:
        """Raw embeddings of images as the run's own dataset gives them: float tensors of one shape."""
        if not all(isinstance(image, Tensor) and image.is_floating_point() for image in given):
            raise BadArgument("images", type(given[0]), "float tensors (C, H, W), as the dataset of this run gave them")
        pixels = ImageSet(labels, ["images"], pixels=torch.stack([*given]))
        return replace(self.embedder, workers=0, shown=False)(pixels, None, self.model.features if features else None)


def load_run(folder: str | Path, device: str | torch.device = "auto", model: object = None) -> Trained:
    """The trained model of a run folder; relative paths in its recipe begin where it was trained.

    `model` is the network of a run that was given one as an object.

    The device is cpu, cuda (torch's current one) or cuda:1; "auto" is a GPU if there is one. torch.distributed is left
    as it is, also under torchrun.
    """
    folder = Path(folder)
    saved = read_checkpoint(folder / runs.CHECKPOINT)
    recipe = located(runs.recipe_of(saved["recipe"]), runs.bases(folder))
    # The checkpoint holds all weights, so the pretrained file may be gone.
    plain = replace(recipe.model, weights=None) if isinstance(recipe.model, schema.Model) else recipe.model
    network = build_model(plain, recipe.data.size, model)
    load_weights(network, saved["model"])
    chosen = distributed.find_device(device)
    if chosen.type == "cuda" and chosen.index is None:  # it stays there, whatever is the current one later
        chosen = torch.device("cuda", torch.cuda.current_device())
    stopped = None if saved["finished"] else saved["step"]
    return Trained(recipe, network.to(chosen).eval(), chosen, saved["classes"], saved.get("images"), stopped)


def build_model(
    model: schema.Networks, size: int, given: object = None, images: Tensor | None = None
) -> Embedder:
    """The embedder that the recipe names, for images of `size` x `size` pixels.

    A network of the user's own is the one `given`, or what its path names; `images` (N, C, H, W) show what it gives.
    """
    if isinstance(model, schema.OwnModel):
        module: Any = own.find("model", model, given)
        module = module if isinstance(module, nn.Module) else own.called(module)
        images = torch.zeros(2, 3, size, size, dtype=torch.uint8) if images is None else images
        settings = (model.head, model.dim, model.freeze_bn, model.preprocessing, model.width)
        return build_own_embedder(module, *settings, images)
    fields = {name: value for name, value in vars(model).items() if name != "head_start"}  # done before the first step
    return build_embedder(**fields, size=size)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A run's checkpoint, read without running code from it; the tensors are on the CPU."""
    if not path.is_file():
        begun, finished = ((path.parent / name).is_file() for name in (runs.RECIPE, runs.RESULT))
        reason = "the run was stopped before its first" if begun else f"{path.parent} is not a run folder"
        raise NoCheckpoint(path, "the run kept none (loop.save_every 0)" if finished else reason)
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch raise almost anything
        reason = str(error).split("\n")[0].split(" (1)")[0]
        raise BadCheckpoint(path, f"it cannot be read safely: {reason}") from error
    if not isinstance(saved, dict) or "recipe" not in saved:
        raise BadCheckpoint(path, "it was not written by isosphere")
    return runs.translate_checkpoint(saved)


def load_weights(module: nn.Module, weights: dict[str, Any]) -> None:
    """Load weights that must fit exactly."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise BadCheckpoint(runs.CHECKPOINT, f"it does not fit its recipe: {reason[:200]}") from error


# ---------------------------------------------------------------- preprocess


def evaluation_view(data: schema.Data) -> FaceView | TestView:
    """What an image file goes through before a model that was trained on this data; of faces without landmarks."""
    return square(data.fraction) if data.framed else TestView(data.size, data.shorter)


def parse_place(place: str, field: str) -> tuple[str, FaceView | None]:
    """`lfw/singles.csv:0.52` -> the path and the square of that share, or None without a share."""
    path, share = split_share(place)
    if share is not None and not 0 < share <= 1:
        raise BadArgument(Option(f"data.{field}"), place, "a path and a share above 0 and at most 1")
    return path, None if share is None else square(share)


def preprocessed(
    trained: Trained, images: ImageSet, home: Path, share: FaceView | None = None, people: int = 1, skip: bool = True
) -> tuple[ImageSet, FaceView | TestView | None]:
    """The images with the view by which the run's own are embedded; faces are framed as those trained on."""
    data = trained.recipe.data
    skip = skip and data.own and data.skip_unreadable
    if data.framed:
        source = Source(images, home, share or square(data.fraction), people=people)
        return framed(source, data.align, trained.device, skip), None
    return readable_images(images, skip_unreadable=True) if skip else images, evaluation_view(data)


def _in_memory(trained: Trained, images: Sequence[object]) -> Tensor:
    """Images of any sizes as the network gets those of the run, uint8 (N, 3, S, S)."""
    data, pixels = trained.recipe.data, [in_memory(image) for image in images]
    cut = sum(image.shape[1:] != (data.size, data.size) for image in pixels)
    if data.framed and data.align and cut:
        text = f"{cut} of {len(pixels)} faces have no landmarks: their central square is taken"
        # At the line that called `embed`, which is decorated.
        warnings.warn(CroppedFacesWarning(text, cut), stacklevel=4)
    view = evaluation_view(data)
    return torch.stack([view(image) for image in pixels])


def for_other_images(recipe: schema.Recipe) -> schema.Recipe:
    """A run's recipe for images that are not its own: unreadable ones can be skipped, whatever it was trained on."""
    data = recipe.data
    return recipe if data.own else replace(recipe, data=schema.Folder(size=data.size, shorter=data.shorter))


# ---------------------------------------------------------------- files in, files out


def embed_files(trained: Trained, root: str, out: Path, features: bool = False) -> list[Path]:
    """Embed a folder's or CSV's images to OUT.npy, OUT.labels.npy (their classes' names) and OUT.paths.txt (both)."""
    labels, paths = out.with_suffix(".labels.npy"), out.with_suffix(".paths.txt")
    for path in (out, labels, paths):
        files.writable(path)
    place, share = parse_place(root, "root") if trained.recipe.data.framed else (root, None)
    images, view = preprocessed(trained, open_images(place, flat=True, whole=True), Path(place), share)
    embeddings = trained.embedder(images, view, trained.model.features if features else trained.forward)
    names = [images.classes[label] for label in images.labels.tolist()]
    # Names, not numbers, which mean other classes in another folder.
    for path, array in ((out, embeddings.cpu().numpy()), (labels, np.asarray(names, dtype=str))):
        with files.replacing(path) as file:
            np.save(file, array)
    lines = [f"{path}\t{name}\n" for path, name in zip(images.files, names, strict=True)]
    files.write(paths, "".join(lines), "surrogateescape")
    return [out, labels, paths]
