"""Trained runs read back: their exam taken again, and other images embedded."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor, nn

from isosphere import distributed, files, runs
from isosphere.data.images import ImageSet, UnreadableImage, decode, in_memory, open_images, readable_images
from isosphere.recipes import options, schema
from isosphere.runs import bases
from isosphere.train import build, state
from isosphere.train.evaluate import embed, half_precision, take, workers
from isosphere.train.exams import Exam, Frozen, Images, Retrieval, View
from isosphere.train.face_exam import build_face_exam
from isosphere.train.frames import Source, framed, parse_place, square
from isosphere.train.overlap import kind_of, tested
from isosphere.train.views import build_test_view, build_views

Pixels = Image.Image | np.ndarray | Tensor  # in memory


@dataclass(frozen=True)
class Trained:
    """A model read back from its run folder, with what it needs to see images, and the classes it was trained on."""

    recipe: schema.Recipe
    model: nn.Module
    device: torch.device
    classes: list[str]
    images: int | None  # how many it was trained on; an older checkpoint does not tell
    stopped: int | None = None  # the step of its checkpoint, if it was not trained to its end

    @distributed.alone()
    def embed(self, images: Sequence[str | Path | Pixels] | Pixels, features: bool = False) -> Tensor:
        """Raw embeddings (N, D) of images, seen as the run's test images are, or the backbone's features.

        Images are all paths of files, or all in memory: of PIL, or pixels of any size, uint8 (N, 3, H, W) or
        (N, H, W, 3); one alone is taken, too. Faces in memory have no landmarks: those of 112 x 112 stay, others are
        cut by `data.fraction`. Under torch.distributed every rank embeds what it is given, and waits for no other.
        """
        array = isinstance(images, np.ndarray | Tensor) and images.ndim in (2, 3)  # of 2 to be refused as a whole
        images = [images] if array or isinstance(images, str | Path | Image.Image) else list(images)
        if not images:
            raise ValueError("there are no images to embed")
        labels = torch.zeros(len(images), dtype=torch.long)
        if all(isinstance(image, str | Path) for image in images):
            files = ImageSet(labels, ["files"], list(map(str, images)))
            found, view, how = _seen(self, files, Path(images[0]).parent, skip=False)
        else:
            pixels, how = _seen_in_memory(self, images)
            found, view = ImageSet.from_pixels(pixels, labels, ["images"]), None
        dtype, how = half_precision(self.recipe.loop, self.device), "features" if features else how
        shown = partial(embed, self.model, view=None, device=self.device, autocast=dtype, how=how)
        if found.pixels is not None:
            return shown(found)
        rows = []
        # Threads, not processes: where these are not forked, they need a script that guards its __main__.
        with ThreadPoolExecutor(max(1, workers(self.recipe.loop))) as pool:
            for part in torch.arange(len(found)).split(256):
                pixels = torch.stack([*pool.map(lambda index: view(found[index]), part.tolist())])
                rows.append(shown(ImageSet.from_pixels(pixels, labels[part], found.classes)))
        return torch.cat(rows)


def load_run(folder: str | Path, device: str | torch.device = "auto") -> Trained:
    """The trained model of a run folder; paths in its recipe are seen from where it was trained, last from here.

    The device is cpu, cuda (torch's current one) or cuda:1; "auto" is a GPU if there is one. torch.distributed is left
    as it is, also under torchrun.
    """
    folder = Path(folder)
    saved = state.load(folder / state.CHECKPOINT)
    recipe = runs.recipe_of(saved["recipe"])
    recipe = found_again(recipe, bases(folder))
    # The checkpoint holds all weights, so the pretrained file may be gone.
    model = build.build_model(replace(recipe.model, weights=None), recipe.data.size)
    state.put(model, saved["model"])
    chosen = distributed.find_device(device)
    if chosen.type == "cuda" and chosen.index is None:  # it stays there, whatever is the current one later
        chosen = torch.device("cuda", torch.cuda.current_device())
    stopped = None if saved["finished"] else saved["step"]
    return Trained(recipe, model.to(chosen).eval(), chosen, saved["classes"], saved.get("images"), stopped)


def found_again(recipe: schema.Recipe, seen_from: Sequence[Path]) -> schema.Recipe:
    """The recipe with relative paths as the first of these folders sees them that does; others stay."""

    def found(place: str, field: str) -> str:
        path = parse_place(place, field)[0] if field in ("probes", "distractors") else place  # without its share
        for base in seen_from if path else ():
            if (base / path).exists() and not (base / path / "recipe.json").is_file():  # which is a run of that name
                return f"{(base / path).resolve()}{place[len(path) :]}"
        return place

    data, model = recipe.data, recipe.model
    places = {name: getattr(data, name) for name in state.PLACES if hasattr(data, name)}
    one = {name: found(place, name) for name, place in places.items() if isinstance(place, str)}
    many = {name: tuple(found(place, name) for place in its) for name, its in places.items() if name not in one}
    weights = model.weights and found(model.weights, "weights")
    return replace(recipe, data=replace(data, **one, **many), model=replace(model, weights=weights))


def changed_here(recipe: schema.Recipe, changes: dict[str, str], run: Path) -> schema.Recipe:
    """A run's recipe with fields changed; its paths, and those given now, are absolute if it was trained elsewhere."""
    begun, *_ = seen_from = bases(run)
    if begun.resolve() == Path.cwd():
        return options.override(recipe, changes)
    return found_again(options.override(found_again(recipe, seen_from), changes), [Path.cwd()])


def moved(data: schema.Data) -> str:
    """The first field of the data whose folder is not there, or nothing."""
    return next((name for name in ("root", "pairs_root") if not Path(getattr(data, name, "")).exists()), "")


def for_others(recipe: schema.Recipe) -> schema.Recipe:
    """A run's recipe for images that are not its own: unreadable ones can be skipped, whatever it was trained on."""
    data = recipe.data
    if hasattr(data, "skip_unreadable"):
        return recipe
    return replace(recipe, data=schema.Folder(size=data.size, shorter=getattr(data, "shorter", data.size)))


def measure_run(trained: Trained, root: str | None = None) -> dict[str, Any]:
    """A trained run in its own exam, or in retrieval among all classes of a folder or CSV, of a given split the test's.

    Returns the metrics as `last`, and as `tested` what the images are to the run.
    """
    embedder = partial(embed_shown, trained)
    if root is None:
        exam = _own_exam(trained)
        told = _told(trained, exam)
    else:
        images, view, how, part = _other_images(trained, root, classes=2)
        exam, embedder = Retrieval(images, view), partial(embedder, how=how)
        told = f"all {len(images.classes)} classes of {part}"
        shared = len(set(images.classes).intersection(trained.classes))
        told += f"; {shared} have the name of one trained on" if shared else ""
        told += _broken_off(trained)
    return {"last": take(exam, embedder, True, trained.recipe.seed)[0], "tested": told}


def probe_run(trained: Trained, lrs: tuple[float, ...]) -> tuple[dict[float, dict[str, float | None]], str]:
    """The linear probe of a run's frozen features at several learning rates, and what the images are to the run."""
    exam = _own_exam(trained)
    if not isinstance(exam, Frozen):
        raise ValueError("--probe needs a run without labels on images that have some, which this is not")
    found = exam.probe(exam.look(partial(embed_shown, trained), True), trained.recipe.seed, lrs)
    return found, _told(trained, exam)


def _told(trained: Trained, exam: Exam) -> str:
    """What the images of its own exam are to a run, and whether it was stopped."""
    return tested(exam, trained.classes, trained.images, kind_of(trained.recipe.data)) + _broken_off(trained)


def _broken_off(trained: Trained) -> str:
    return "" if trained.stopped is None else f"; the run was stopped at step {trained.stopped:,}"


def _own_exam(trained: Trained) -> Exam:
    """The exam of a run's own data, wherever they are now."""
    data = trained.recipe.data
    try:
        if isinstance(data, schema.Faces):
            return build_face_exam(data, trained.device)
        views = build_views(data, trained.device)
        other = len(trained.classes) > 1 and views.train.classes != trained.classes  # one is called as its folder
        if other or (isinstance(views.exam, Retrieval) and trained.images not in (None, len(views.train))):
            place = getattr(data, "root", "") or data.name
            told = f"{place} is not what this run was trained on: other training {'classes' if other else 'images'}"
            warnings.warn(f"{told}; --data.root says where the run's own are", stacklevel=2)
        return views.exam
    except FileNotFoundError as error:
        field = "pairs_root" if isinstance(data, schema.Faces) else "root"
        told = f"{error} (seen from {Path.cwd()} and from above the run)"
        raise FileNotFoundError(f"{told}; say where it is now with --data.{field}") from error


def embed_shown(trained: Trained, images: Images, view: View | None, how: str = "embeddings") -> Tensor:
    """Raw embeddings (N, D) of all images, behind a progress bar."""
    console = Console(stderr=True)
    columns, quiet = (*Progress.get_default_columns(), MofNCompleteColumn()), not console.is_terminal
    try:
        with Progress(*columns, console=console, disable=quiet) as progress:
            bar = progress.add_task("embedding", total=len(images))
            loop, tick = trained.recipe.loop, partial(progress.advance, bar)
            dtype = half_precision(loop, trained.device)
            return embed(trained.model, images, view, trained.device, workers(loop), autocast=dtype, tick=tick, how=how)
    except UnreadableImage:
        if hasattr(trained.recipe.data, "skip_unreadable"):
            readable_images(images)  # names all of them, and what to do
        raise


def embed_files(trained: Trained, root: str, out: Path, features: bool = False) -> list[Path]:
    """Embed a folder's or CSV's images to OUT.npy, OUT.labels.npy (their classes' names) and OUT.paths.txt (both)."""
    for path in (out, *_others(out)):
        files.writable(path)
    images, view, how, _ = _other_images(trained, root)
    return _write(out, images, embed_shown(trained, images, view, "features" if features else how))


def _other_images(trained: Trained, root: str, classes: int = 1) -> tuple[ImageSet, View | None, str, str]:
    """Images of a place with at least so many classes, and which part of it they are.

    Where several classes are to be measured, a given split's test images are, else all of it is taken; of faces
    `folder:0.52` says another share of the frame.
    """
    part = root
    root, share = parse_place(root, "root") if isinstance(trained.recipe.data, schema.Faces) else (root, None)
    images = open_images(root, flat=classes == 1, whole=classes == 1)
    if classes > 1 and images.splits is not None:
        tests = [index for index, split in enumerate(images.splits) if split == "test"]
        if not tests:
            raise ValueError(f"{root} gives a split without a test image: leave out the split to measure on all")
        if len(tests) < len(images):
            part, images = f"the test part of {part}", images.subset(tests)
    if len(images.classes) < classes:
        raise ValueError(f"{part} holds one class only: there is nothing to retrieve among")
    if classes > 1 and int(images.labels.bincount().max()) < 2:
        raise ValueError(f"{part} has one image of each class: an image is looked for by another of its class")
    return *_seen(trained, images, Path(root), share, classes), part


def _seen(
    trained: Trained, images: ImageSet, home: Path, share: View | None = None, classes: int = 1, skip: bool = True
) -> tuple[ImageSet, View | None, str]:
    """The images with the view and the `how` by which the run's own are embedded.

    Faces are framed as those trained on, by landmarks or as a central square.
    """
    data = trained.recipe.data
    if isinstance(data, schema.Faces):
        source = Source(images, home, share or square(data.fraction), people=classes)
        return framed(source, data.align, trained.device, skip and data.skip_unreadable), None, "mirrored"
    if skip and getattr(data, "skip_unreadable", False):
        images = readable_images(images, skip_unreadable=True)
    return images, build_test_view(data), "embeddings"


def _seen_in_memory(trained: Trained, images: Sequence[Pixels]) -> tuple[Tensor, str]:
    """Images of any sizes as the network sees those of the run, uint8 (N, 3, S, S), and the `how`."""
    data, pixels = trained.recipe.data, [in_memory(image) for image in images]
    faces, view = isinstance(data, schema.Faces), build_test_view(data)
    cut = sum(image.shape[1:] != (data.size, data.size) for image in pixels)
    if faces and data.align and cut:
        told = f"{cut} of {len(pixels)} faces have no landmarks: their central square is taken"
        warnings.warn(told, stacklevel=4)  # at the line that called `embed`, which is decorated
    return torch.stack([view(image) for image in pixels]), "mirrored" if faces else "embeddings"


@torch.no_grad()
def feature_maps(runs: list[Path], files: list[Path]) -> dict[str, list[np.ndarray]]:
    """What the last layer with places gives for these images, (K, C, H, W), and what it saw of them, for each run."""
    if not files:
        raise ValueError("feature maps need images to look at: --images a.jpg b.jpg")
    found, seen, pixels = [], [], [decode(file) for file in files]
    for trained in map(load_run, runs):
        backbone, view = trained.model.backbone, build_test_view(trained.recipe.data)
        maps = getattr(backbone, "maps", None) or getattr(backbone, "forward_features", None)  # the latter is timm's
        if maps is None:
            raise ValueError(f"{trained.recipe.model.backbone} does not show its last layer; ours and timm's do")
        images = torch.stack([view(image) for image in pixels]).to(trained.device)
        found.append(maps(trained.model.preprocessing(images)).float().cpu().numpy())
        seen.append(images.permute(0, 2, 3, 1).cpu().numpy())
    return {"maps": found, "images": seen}


def _others(out: Path) -> tuple[Path, Path]:
    """The files of labels and paths next to the embeddings' own."""
    return out.with_suffix(".labels.npy"), out.with_suffix(".paths.txt")


def _write(out: Path, images: ImageSet, embeddings: Tensor) -> list[Path]:
    labels, paths = _others(out)
    with files.replacing(out) as file:
        np.save(file, embeddings.cpu().numpy())
    names = [images.classes[label] for label in images.labels.tolist()]
    with files.replacing(labels) as file:
        np.save(file, np.asarray(names, dtype=str))  # not numbers, which mean other classes in another folder
    lines = [f"{path}\t{name}\n" for path, name in zip(images.paths, names, strict=True)]
    files.write(paths, "".join(lines), "surrogateescape")
    return [out, labels, paths]
