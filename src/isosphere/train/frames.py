"""Faces in their frames, in memory once a machine: one rank frames them, and all map the file that it leaves."""

import contextlib
import fcntl
import os
import pickle
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from isosphere.data import alignment
from isosphere.data.images import ImageSet, readable_images
from isosphere.data.recordio import RecordSet
from isosphere.train import distributed


class Source(NamedTuple):
    """A set of photographs, the folder or list that it comes from, and the square where there are no landmarks."""

    images: ImageSet | RecordSet
    home: Path
    view: alignment.FaceView


def square(fraction: float) -> alignment.FaceView:
    """This share of the shorter side, a little above the middle as LFW's faces are; 1 is the whole central square."""
    return replace(alignment.FaceView(), fraction=fraction) if fraction < 1 else alignment.WHOLE


def parse_place(place: str, field: str) -> tuple[str, alignment.FaceView | None]:
    """`lfw/singles.csv:0.52` -> the place and the square of that share, or None without a share."""
    path, colon, share = place.rpartition(":")
    if not colon or Path(place).exists():
        return place, None
    try:
        fraction = float(share)
    except ValueError:
        return place, None
    if not 0 < fraction <= 1:
        raise ValueError(f"data.{field} {place} asks for {share} of the shorter side: a share is above 0 and at most 1")
    return path, square(fraction)


def framed(sources: Sequence[Source], align: bool, device: torch.device, skip_unreadable: bool = False) -> ImageSet:
    """All faces of these sets in their frames, on the device if they take no more than half of it.

    Labels of several sets count on.
    """
    faces = shared(lambda: _joined([_framed(source, align, skip_unreadable) for source in sources]), device)
    if device.type != "cuda" or faces.pixels.numel() <= torch.cuda.mem_get_info(device)[0] / 2:
        faces.pixels = faces.pixels.to(device)
    return faces


def _framed(source: Source, align: bool, skip_unreadable: bool) -> ImageSet:
    images, home, view = source
    if skip_unreadable:
        images = readable_images(images, skip_unreadable)
    if images.pixels is not None and images.pixels.shape[-1] == images.pixels.shape[-2] == view.size:
        return images
    faces = alignment.framed(images, view, alignment.landmarks_of(images, home) if align else None)
    faces.paths = images.paths  # by which a wrong pair is traced to its photographs
    told = "; ".join(filter(None, (getattr(images, "deviation", ""), faces.deviation)))
    faces.deviation = f"{home.name}: {told}" if told else ""
    return faces


def _joined(parts: list[ImageSet]) -> ImageSet:
    if len(parts) == 1:
        return parts[0]
    labels, classes, paths = [], [], []
    for part in parts:
        labels.append(part.labels + len(classes))
        classes += part.classes
        paths += part.paths or ()
    pixels = torch.cat([part.pixels for part in parts])
    whole = ImageSet(torch.cat(labels), classes, paths if len(paths) == len(pixels) else None, pixels)
    whole.deviation = "; ".join(filter(None, (part.deviation for part in parts)))
    return whole


def shared(make: Callable[[], ImageSet], device: torch.device) -> ImageSet:
    """What `make` gives, pixels in memory; of several ranks only the first of each machine calls it, and all map them.

    The others wait for its lock and not in a collective, which would give up after some minutes. The files are gone
    once all have them open.
    """
    if distributed.world() == 1:
        return make()
    leads = int(os.environ.get("LOCAL_RANK", distributed.rank())) == 0
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(tempfile.TemporaryDirectory(prefix="isosphere-")) if leads else ""
        if leads:
            lock = stack.enter_context(open(Path(own) / "lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        places = [("", "")] * distributed.world()
        dist.all_gather_object(places, (platform.node(), own))
        folder = Path(next(place for machine, place in places if place and machine == platform.node()))
        if leads:
            faces = make()
            np.save(folder / "pixels.npy", faces.pixels.numpy())
            faces.pixels = None
            (folder / "faces.pickle").write_bytes(pickle.dumps(faces))
            fcntl.flock(lock, fcntl.LOCK_UN)
        with contextlib.suppress(FileNotFoundError), open(folder / "lock") as others:
            fcntl.flock(others, fcntl.LOCK_SH)
        if not (folder / "faces.pickle").is_file():
            raise OSError("the process that frames the faces has ended; its own message says why")
        faces = pickle.loads((folder / "faces.pickle").read_bytes())
        # Copy on write, as torch knows no read-only tensors: nobody writes, so the pages are one for all.
        faces.pixels = torch.from_numpy(np.load(folder / "pixels.npy", mmap_mode="c"))
        distributed.agreed(False, device)  # when all have it
    return faces
