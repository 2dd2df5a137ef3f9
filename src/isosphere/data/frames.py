"""Faces in their frames, from their cache. Without one they are in memory once on each machine.

Then one rank frames them, and all map its file.
"""

import contextlib
import os
import pickle
import platform
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from isosphere import distributed, locks
from isosphere.data import alignment
from isosphere.data.cache.images import CachedSet
from isosphere.data.cache.opening import opened_or_none
from isosphere.data.images import ImageSet
from isosphere.data.lists import some
from isosphere.data.readable import readable_images, without
from isosphere.data.recordio import RecordSet
from isosphere.errors import (
    CroppedFacesWarning,
    Option,
    OtherRankFailed,
    TooFewClasses,
    UnreadableImage,
    UnreadableImages,
    UnreadableImagesWarning,
)

REMEDIES = {  # by skip_unreadable; where that is true, landmarks are all that is left to fail
    None: (Option("data.allow_missing", True),),
    False: (Option("data.skip_unreadable", True),),
    True: (Option("data.align", False),),
}


class Source(NamedTuple):
    """A set of photographs, its folder or list, and the square where there are no landmarks.

    If unreadable ones are skipped, people with fewer than `minimum` left are skipped, too. So many `people` must stay.
    """

    images: ImageSet | RecordSet
    home: Path
    view: alignment.FaceView
    minimum: int = 1
    people: int = 1


def square(fraction: float) -> alignment.FaceView:
    """This share of the shorter side, a little above the middle as in LFW. A share of 1 is the whole central square."""
    return replace(alignment.FaceView(), fraction=fraction) if fraction < 1 else alignment.WHOLE


def framed(
    source: Source, align: bool, device: torch.device, skip_unreadable: bool | None = None, cache: str = "none"
) -> ImageSet | CachedSet:
    """All faces of a set in their frames, on the device if they take at most half of its free memory.

    `skip_unreadable` is None for pairs, of which none can be skipped. `cache` is where faces in their frames are kept.
    """
    if source.images.pixels is None and (found := _cached(source, align, skip_unreadable, cache)) is not None:
        return found.placed(device)
    faces = shared(lambda: _framed(source, align, skip_unreadable), device)
    assert faces.pixels is not None, "faces that were framed are in memory"
    if device.type != "cuda" or faces.pixels.numel() <= torch.cuda.mem_get_info(device)[0] / 2:
        faces.pixels = faces.pixels.to(device)
    return faces


def _cached(source: Source, align: bool, skip_unreadable: bool | None, cache: str) -> CachedSet | None:
    """The faces from their cache; None without one."""
    images, home, view, *_ = source
    landmarks, frame = alignment.landmarks_of(images, home) if align else None, alignment.Frame(view)
    found = opened_or_none(images, frame, home, cache, landmarks)
    if found is None:
        return None
    unreadable = {index: error for index, error in found.failures.items() if isinstance(error, UnreadableImage)}
    kept = _enough(without(images, unreadable, True), source) if skip_unreadable else images
    people = {label for label, name in enumerate(images.classes) if name in set(kept.classes)}
    labels, skipped = images.labels.tolist(), unreadable if skip_unreadable else {}
    refused = {i: error for i, error in found.failures.items() if i not in skipped and labels[i] in people}
    if refused:
        raise replace(alignment.unframed(images, refused), remedies=REMEDIES[skip_unreadable])
    there = [index for index in range(len(images)) if index not in found.failures]
    chosen = [place for place, index in enumerate(there) if labels[index] in people]
    faces = CachedSet(images.subset(there), frame, found.origin, torch.device("cpu")).subset(chosen)
    its = None if landmarks is None else landmarks[[there[place] for place in chosen]]
    cut = alignment.cut_faces(faces, its, torch.from_numpy(faces.sides), view.size)
    faces.note = _noted(home, kept.note, cut)
    return faces


def _framed(source: Source, align: bool, skip_unreadable: bool | None) -> ImageSet:
    images, home, view, *_ = source
    if skip_unreadable:
        images = _enough(readable_images(images, skip_unreadable=True), source)
    if images.pixels is not None and images.pixels.shape[-1] == images.pixels.shape[-2] == view.size:
        return images
    try:
        faces = alignment.framed(images, view, alignment.landmarks_of(images, home) if align else None)
    except UnreadableImages as error:
        error.remedies = REMEDIES[skip_unreadable]
        raise
    faces.paths = images.paths  # by which a wrong pair is traced to its photographs
    faces.note = _noted(home, images.note, faces.note, _narrowed(images))
    return faces


def _noted(home: Path, *notes: str) -> str:
    note = "; ".join(filter(None, notes))
    return f"{home.name}: {note}" if note else ""


def _narrowed(images: ImageSet | RecordSet) -> str:
    """How many pictures of a pack lose what is outside of their central square. It warns, too."""
    height, width = (1, 1) if images.pixels is None else images.pixels.shape[-2:]
    if height == width:
        return ""
    note = f"all {len(images)} pictures of {some(images.classes)} are {width} x {height} pixels, not square"
    note += ": their central square is taken"
    warnings.warn(CroppedFacesWarning(note, len(images)), stacklevel=2)
    return note


def _enough(images: ImageSet | RecordSet, source: Source) -> ImageSet | RecordSet:
    """Of images that can be decoded those of people who still have enough of them."""
    minimum = source.minimum
    counts = torch.bincount(images.labels, minlength=len(images.classes))
    few = counts < minimum
    kept, lost = int((~few).sum()), [name for name, gone in zip(images.classes, few.tolist(), strict=True) if gone]
    if kept < source.people:
        place = f"{source.home}, by people of {minimum} readable images or more ({images.note}),"
        raise TooFewClasses(place, "train or test", kept, source.people)
    if lost:
        note = f"{len(lost)} people have fewer than {minimum} readable images and are left out"
        note += f", {int(counts[few].sum())} images with them"
        warnings.warn(UnreadableImagesWarning(f"{note}: {some(lost)}", len(lost), lost), stacklevel=2)
        images = images.of_classes((~few).nonzero().flatten().tolist())
        images.note += f"; {note}"
    return images


def shared(make: Callable[[], ImageSet], device: torch.device) -> ImageSet:
    """What `make` gives, pixels in memory. The first rank of a machine calls it, and all ranks map its file.

    The others wait for a lock, as a collective would give up after some minutes. The files are gone once all have them
    open.
    """
    if distributed.world() == 1:
        return make()
    leads = int(os.environ.get("LOCAL_RANK", distributed.rank())) == 0
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(tempfile.TemporaryDirectory(prefix="isosphere-")) if leads else ""
        held = stack.enter_context(contextlib.ExitStack())
        if leads:
            held.enter_context(locks.hold(Path(own) / "lock"))
        places = [("", "")] * distributed.world()
        dist.all_gather_object(places, (platform.node(), own))
        folder = Path(next(place for machine, place in places if place and machine == platform.node()))
        if leads:
            faces = make()
            assert faces.pixels is not None
            np.save(folder / "pixels.npy", faces.pixels.numpy())
            faces.pixels = None
            (folder / "faces.pickle").write_bytes(pickle.dumps(faces))
            held.close()
        else:
            locks.wait_until_free(folder / "lock")
        if not (folder / "faces.pickle").is_file():
            raise OtherRankFailed("frames the faces")
        faces = pickle.loads((folder / "faces.pickle").read_bytes())
        # Copy on write, as torch knows no read-only tensors: nobody writes, so the pages are one for all.
        faces.pixels = torch.from_numpy(np.load(folder / "pixels.npy", mmap_mode="c"))
        distributed.agreed(False, device)  # when all have it
    return faces
