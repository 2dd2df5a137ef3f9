"""Faces brought to one frame of 112 x 112: by landmarks where there are some, else by a central square.

The frame is that of ArcFace's templates. The eyes are 35 pixels apart, and it is 3.2 times as wide.
"""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from isosphere.errors import (
    BadArgument,
    BadList,
    CroppedFacesWarning,
    DamagedFile,
    Incompatible,
    InputError,
    NotFound,
    Option,
    UnreadableImage,
    UnreadableImages,
)

from .images import Images, ImageSet
from .lists import some
from .recordio import RecordSet
from .text_lists import lines
from .workers import in_workers

SIZE = 112
# Where eyes (the image's left first), tip of the nose and corners of the mouth come to lie, (5, 2) as x and y.
TEMPLATE = torch.tensor(
    [(38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041)],
    dtype=torch.float64,
)
CHUNK = 64  # images that a worker hands over at once
LARGEST = 100_000  # pixels: no photograph has more a side
NUMBER = r"[-+]?(?:nan|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
LISTED = re.compile(rf"(.*?\S)((?:\s+{NUMBER}){{10,}})", re.IGNORECASE)  # a file, in which may be blanks, and numbers


def similarity(points: Tensor, targets: Tensor) -> Tensor:
    """Rotation, scale and shift that bring points (K, 2) nearest to targets (K, 2), as (2, 3) (Umeyama 1991).

    In the plane, without reflection, one complex number solves the least squares: scale times rotation.
    """
    points, targets = points.double(), targets.double()
    center, target = points.mean(0), targets.mean(0)
    (x, y), (u, v) = (points - center).T, (targets - target).T
    spread = (x * x + y * y).sum()
    if not spread > 0:
        raise BadArgument("landmarks", points.tolist(), "two that differ, or more")
    real, imaginary = (x * u + y * v).sum() / spread, (x * v - y * u).sum() / spread
    turn = torch.stack((real, -imaginary, imaginary, real)).view(2, 2)
    return torch.cat((turn, (target - turn @ center)[:, None]), dim=1)


def align(image: Tensor, landmarks: Tensor, size: int = SIZE) -> Tensor:
    """The face with these five landmarks (5, 2), moved to the template, uint8 (C, H, W) -> (C, size, size).

    Landmarks are eyes, nose and mouth as in TEMPLATE, in pixels. Hidden ones are NaN, and two must be known. None may
    be further away than twice the longer side. Sampling is bilinear, and black outside of the image. An image that
    would be more than halved is first reduced with antialiasing.
    """
    seen = landmarks.isfinite().all(1)
    if int(seen.sum()) < 2:
        raise BadArgument("landmarks", int(seen.sum()), "two that are known, or more")
    points, targets = landmarks[seen].double(), TEMPLATE[seen] * (size / SIZE)
    if points.abs().max() > 2 * max(image.shape[1:]):
        sides = f"{image.shape[2]} x {image.shape[1]} pixels"
        raise BadArgument("landmarks", round(float(points.abs().max())), f"in or near the image's {sides}")
    matrix = similarity(points, targets)
    reduction = 2 * float(matrix[:, 0].norm())
    if reduction < 1:
        from torchvision.transforms.v2 import functional

        height, width = (max(2, round(side * reduction)) for side in image.shape[1:])  # torch fails at a single pixel
        zoom = torch.tensor([width / image.shape[2], height / image.shape[1]], dtype=torch.float64)
        image = functional.resize(image, [height, width], antialias=True)
        matrix = similarity((points + 0.5) * zoom - 0.5, targets)
    inverse = torch.linalg.inv(matrix[:, :2])
    places = torch.arange(size, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(places, places, indexing="xy"), dim=-1)  # (size, size, 2) as x, y
    grid = (grid - matrix[:, 2]) @ inverse.T
    limits = torch.tensor([image.shape[2], image.shape[1]])
    grid = (2 * grid + 1) / limits - 1  # pixel centers to [-1, 1]
    warped = F.grid_sample(image[None].float(), grid[None].float(), padding_mode="zeros", align_corners=False)
    return warped[0].round().to(torch.uint8)


@dataclass(frozen=True)
class FaceView:
    """A square of `fraction` of the shorter side, `rise` of it above the center: uint8 (C, H, W) -> (C, size, size).

    The defaults frame LFW's 250 x 250 photographs as alignment would. Over LFW, aligned frames have a median side of
    130. Their centers are 8 above the middle. Photographs cut to the face, such as CFP's, want fraction 1 and rise 0.
    So do aligned faces of another size. A photograph of size x size stays as it is.
    """

    fraction: float = 0.52
    rise: float = 0.033
    size: int = SIZE
    draws: ClassVar[int] = 0

    def __call__(self, image: Tensor, numbers: Tensor | None = None) -> Tensor:
        """One image, or a batch of one size; it uses no random numbers."""
        from torchvision.transforms.v2 import functional

        height, width = image.shape[-2:]
        if height == width == self.size:
            return image
        side = max(1, round(self.fraction * min(height, width)))
        top = min(max(round((height - side) / 2 - self.rise * min(height, width)), 0), height - side)
        left = round((width - side) / 2)
        return functional.resized_crop(image, top, left, side, side, [self.size, self.size], antialias=True)


WHOLE = FaceView(fraction=1.0, rise=0.0)


@dataclass(frozen=True)
class Frame:
    """How a photograph comes to its frame, which a cache holds: by its landmarks, else through the view."""

    view: FaceView

    def __call__(self, image: Tensor, landmarks: Tensor | None = None) -> Tensor:
        """One face, uint8 (C, H, W) with landmarks (5, 2) -> (C, size, size)."""
        if landmarks is not None and bool(known(landmarks)):
            return align(image, landmarks, self.view.size)
        return self.view(image)


def known(landmarks: Tensor) -> Tensor:
    """Whether landmarks (..., 5, 2) are enough to align by, (...)."""
    return landmarks.isfinite().all(-1).sum(-1) >= 2


def framed(
    images: ImageSet | RecordSet,
    view: FaceView = WHOLE,
    landmarks: Tensor | None = None,
    workers: int | None = None,
) -> ImageSet:
    """The set with every face in its frame and in memory, uint8 (N, 3, 112, 112), decoded behind a progress bar.

    `landmarks` is (N, 5, 2). A face with fewer than two goes through the view. If that cuts faces, a warning and the
    set's `note` count them. `workers` processes share the work, by default one for each core. Unreadable images are an
    error that names and counts them.
    """
    import torchvision.transforms.v2  # noqa: F401, here, or each worker would spend seconds on it

    if landmarks is not None and landmarks.shape != (len(images), 5, 2):
        raise BadArgument("landmarks", tuple(landmarks.shape), f"of the shape ({len(images)}, 5, 2)")
    starts = range(0, len(images), CHUNK)
    pixels, failures = torch.empty(len(images), 3, view.size, view.size, dtype=torch.uint8), {}
    sides = torch.empty(len(images), 2, dtype=torch.long)
    chunks = in_workers(_Framed(images, Frame(view), landmarks), starts, workers, "framing faces")
    for start, (faces, its, errors) in zip(starts, chunks, strict=True):
        pixels[start : start + len(faces)], sides[start : start + len(faces)] = faces, its
        failures.update(errors)
    if failures:
        raise unframed(images, failures)
    found = ImageSet.from_pixels(pixels, images.labels, images.classes)
    found.note = cut_faces(images, landmarks, sides, view.size)
    return found


def unframed(images: ImageSet | RecordSet, failures: Mapping[int, InputError]) -> UnreadableImages:
    """The error for faces that cannot be read or aligned, with the people who would have none left."""
    kept = {label for index, label in enumerate(images.labels.tolist()) if index not in failures}
    lost = tuple(name for label, name in enumerate(images.classes) if label not in kept)
    failed = ((name_of(images, index), error) for index, error in failures.items())
    return UnreadableImages(
        [error if isinstance(error, UnreadableImage) else UnreadableImage(name, str(error)) for name, error in failed],
        len(images), lost,
    )  # fmt: skip


def cut_faces(images: Images, landmarks: Tensor | None, sides: Tensor, size: int) -> str:
    """A note on photographs of these sides (N, 2) that have no landmarks (N, 5, 2) though others may; it warns, too."""
    if landmarks is None:
        return ""
    cut = (~known(landmarks) & (sides != size).any(1)).nonzero().flatten().tolist()
    if not cut:
        return ""
    note = f"{len(cut)} of {len(images)} faces have no landmarks: their central square is taken"
    names = [name_of(images, index) for index in cut]
    warnings.warn(CroppedFacesWarning(f"{note}: {some(names)}", len(cut), names), stacklevel=3)
    return note


def name_of(images: Images, index: int) -> str:
    """What an image is called in a message."""
    return f"number {index} of {images}" if images.paths is None else images.paths[index]


class _Framed(Dataset):
    """`faces[start]` are the next CHUNK faces, uint8 (K, 3, S, S), the sides of their files, and errors by index."""

    def __init__(self, images: ImageSet | RecordSet, frame: Frame, landmarks: Tensor | None) -> None:
        self.images, self.frame, self.landmarks = images, frame, landmarks

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor, dict[int, InputError]]:
        indices, size = range(start, min(start + CHUNK, len(self.images))), self.frame.view.size
        faces, errors = torch.zeros(len(indices), 3, size, size, dtype=torch.uint8), {}
        sides = torch.full((len(indices), 2), size)
        for face, its, index in zip(faces, sides, indices, strict=True):
            try:  # errors are returned, because a worker would raise them without the path
                image = self.images[index]
                its.copy_(torch.tensor(image.shape[1:]))
                face.copy_(self.frame(image, None if self.landmarks is None else self.landmarks[index]))
            except InputError as error:
                errors[index] = error
        return faces, sides, errors


def landmarks_of(images: ImageSet | RecordSet, home: Path) -> Tensor | None:
    """Known landmarks of the faces, (N, 5, 2): a `landmarks.txt` in their folder, CFP's fiducials, or NaN.

    None for pixels in memory, as packs are of aligned faces.
    """
    if images.pixels is not None:
        return None
    home = home if home.is_dir() else home.parent
    listed = home / "landmarks.txt"
    if listed.is_file() and isinstance(images, RecordSet):
        reason = f"{listed} has names of files, but records have no names"
        raise Incompatible(("data.root", "data.align"), reason, (Option("data.align", False),))
    if listed.is_file() and isinstance(images, ImageSet):
        return listed_landmarks(listed, images)
    if isinstance(images, ImageSet) and (home / "Data" / "Fiducials").is_dir():
        return cfp_landmarks(images)
    return torch.tensor(torch.nan, dtype=torch.float64).expand(len(images), 5, 2)


def listed_landmarks(path: str | Path, images: ImageSet) -> Tensor:
    """Five landmarks for each file of a set, float64 (N, 5, 2), from lines `file x1 y1 ... x5 y5`.

    A file without a line has NaN. A line's file is the end of a path of the set, as `Zico/Zico_0001.jpg`. Numbers after
    the tenth are ignored.
    """
    listed = {}
    for number, line in lines(path):
        parts = LISTED.fullmatch(line)
        if parts is None:
            raise BadList(path, line, "a file and the x, y of five landmarks", number)
        values = list(map(float, parts[2].split()[:10]))
        seen = [point for point in zip(values[::2], values[1::2], strict=True) if not math.isnan(sum(point))]
        if len(seen) > 1 and max(max(axis) - min(axis) for axis in zip(*seen, strict=True)) < 1:
            raise BadList(path, line, "landmarks in pixels; these all lie within one pixel", number)
        if any(abs(value) > LARGEST for value in values):
            raise BadList(path, line, f"landmarks within {LARGEST:,} pixels, as images are", number)
        listed[parts[1]] = np.array(values).reshape(5, 2)
    depth = max((name.count("/") for name in listed), default=0) + 1
    none = np.full((5, 2), np.nan)
    found = [listed.get("/".join(Path(file).parts[-depth:]), none) for file in images.files]
    if np.isnan(found).all():
        raise BadList(path, sorted(listed), f"the ends of the {len(found)} images' paths in its first column")
    return torch.from_numpy(np.stack(found))


def visible_five(fiducials: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
    """Five landmarks (5, 2), two of them hidden (NaN), from CFP's 30 fiducials (30, 2), which mark half a face.

    Counted from 0, they are: 0-8 jaw, 9-11 brow, 12-17 eye, 18-21 bridge of the nose down to its tip. Then 22-24 below
    the nose, 25 corner of the mouth, 26-29 lips. Known are the eye's mean, the tip (21) and the corner (25). The side
    of the line from eye to mouth on which the nose is gives the half. It is the image's left in all frontal
    photographs.
    """
    fiducials = np.asarray(fiducials, dtype=np.float64)
    eye, nose, mouth = fiducials[12:18].mean(0), fiducials[21], fiducials[25]
    (down_x, down_y), (out_x, out_y) = mouth - eye, nose - eye
    right = int(down_x * out_y - down_y * out_x > 0)  # the nose is to the left of that line
    five = np.full((5, 2), np.nan)
    five[[right, 2, 3 + right]] = eye, nose, mouth
    return five


def cfp_landmarks(images: ImageSet) -> Tensor:
    """Landmarks of CFP's files from the fiducials next to them, float64 (N, 5, 2): `visible_five` of each."""
    found = []
    for file in map(Path, images.files):
        fiducials = file.parents[3] / "Fiducials" / Path(*file.parts[-3:]).with_suffix(".txt")
        if not fiducials.is_file():
            raise NotFound(fiducials, "file of fiducials")
        try:
            table = np.loadtxt(fiducials, delimiter=",").reshape(30, 2)
        except ValueError as error:
            raise DamagedFile(fiducials, f"it does not hold 30 fiducials, x,y a line: {error}") from error
        found.append(visible_five(table))
    return torch.from_numpy(np.stack(found))
