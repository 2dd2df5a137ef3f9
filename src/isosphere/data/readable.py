"""Which files of a set can be decoded, and the set without the others."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from isosphere.errors import Option, UnreadableImage, UnreadableImages, UnreadableImagesWarning

from .images import Images
from .lists import some

Source = TypeVar("Source", bound=Images)


def check_images(image_set: Images, workers: int = 8) -> dict[int, UnreadableImage]:
    """Decode every file in parallel behind a progress bar. Failures are by index; pixels in memory have none."""
    from rich.progress import track

    def failure(index: int) -> UnreadableImage | None:
        try:
            image_set[index]
        except UnreadableImage as error:
            return error
        return None

    if image_set.device is not None:
        return {}
    with ThreadPoolExecutor(workers) as pool:  # threads are enough: PIL decodes without the interpreter's lock
        found = track(pool.map(failure, range(len(image_set))), "checking images", len(image_set), transient=True)
        return {index: error for index, error in enumerate(found) if error is not None}


def readable_images(image_set: Source, skip_unreadable: bool = False, workers: int = 8) -> Source:
    """The set if every file can be decoded. Else an error that names the others, or a warning and the rest.

    The `note` of the set counts those left out.
    """
    failures = check_images(image_set, workers)
    if not failures:
        return image_set
    failed = list(failures.values())
    if not skip_unreadable or len(failures) == len(image_set):
        option = Option("data.skip_unreadable", True)
        raise UnreadableImages(failed, len(image_set), remedies=(option,) if len(failures) < len(image_set) else ())
    kept = image_set.subset(index for index in range(len(image_set)) if index not in failures)
    lost = sorted(set(image_set.classes) - set(kept.classes))
    text = f"{len(failures)} of {len(image_set)} images are unreadable"
    empty = f"; no image is left of {some(lost)}" if lost else ""
    said = f"{text}: {some(map(str, failed))}{empty}; going on without them"
    warnings.warn(UnreadableImagesWarning(said, len(failed), lost), stacklevel=2)
    text += f", all of {len(lost)} classes among them" if lost else ""
    kept.note = "; ".join(filter(None, (image_set.note, text)))
    return kept
