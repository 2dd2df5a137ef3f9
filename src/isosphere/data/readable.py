"""Which files of a set can be decoded, and the set without the others."""

import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from isosphere.errors import InputError, Option, UnreadableImage, UnreadableImages, UnreadableImagesWarning

from .images import Images, LabeledImages
from .lists import some
from .looks import WORDS, look

Source = TypeVar("Source", bound=Images)


def check_images(image_set: Images, workers: int = 8) -> dict[int, UnreadableImage]:
    """Decode every file in parallel behind a progress bar. Failures are by index; pixels in memory have none.

    A set of ours has `looks` from then on.
    """
    from rich.progress import track

    def failure(index: int) -> UnreadableImage | None:
        try:
            image = image_set[index]
        except UnreadableImage as error:
            return error
        if isinstance(image_set, LabeledImages):
            looks[index] = look(image)
        return None

    if image_set.device is not None:
        return {}
    looks = torch.zeros(len(image_set), WORDS, dtype=torch.int64)
    if isinstance(image_set, LabeledImages):
        image_set.looks = looks
    with ThreadPoolExecutor(workers) as pool:  # threads are enough: PIL decodes without the interpreter's lock
        found = track(pool.map(failure, range(len(image_set))), "checking images", len(image_set), transient=True)
        return {index: error for index, error in enumerate(found) if error is not None}


def readable_images(image_set: Source, skip_unreadable: bool = False, workers: int = 8) -> Source:
    """The set if every file can be decoded. Else an error that names the others, or a warning and the rest."""
    return without(image_set, check_images(image_set, workers), skip_unreadable)


def without(image_set: Source, failures: Mapping[int, InputError], skip_unreadable: bool | None = False) -> Source:
    """The set without images that cannot be read, after a warning. The `note` of the set counts them.

    They are an error that names them all, unless they shall be left out and are not all. None offers no such option.
    """
    if not failures:
        return image_set
    failed = [_named(image_set, index, error) for index, error in failures.items()]
    if not skip_unreadable or len(failures) == len(image_set):
        able = skip_unreadable is not None and len(failures) < len(image_set)
        remedies = (Option("data.skip_unreadable", True),) if able else ()
        raise UnreadableImages(failed, len(image_set), remedies=remedies)
    kept = image_set.subset(index for index in range(len(image_set)) if index not in failures)
    lost = sorted(set(image_set.classes) - set(kept.classes))
    text = f"{len(failures)} of {len(image_set)} images are unreadable"
    empty = f"; no image is left of {some(lost)}" if lost else ""
    said = f"{text}: {some(map(str, failed))}{empty}; going on without them"
    warnings.warn(UnreadableImagesWarning(said, len(failed), lost), stacklevel=3)
    text += f", all of {len(lost)} classes among them" if lost else ""
    kept.note = "; ".join(filter(None, (image_set.note, text)))
    return kept


def _named(image_set: Images, index: int, error: InputError) -> UnreadableImage:
    """The error with the image's name: decoding gives it, and what comes after does not know it."""
    if isinstance(error, UnreadableImage):
        return error
    return UnreadableImage(f"number {index}" if image_set.paths is None else image_set.paths[index], str(error))
