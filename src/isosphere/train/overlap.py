"""What an exam shares with training: told, warned of or refused, so that nobody is tested on what was trained on."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch

from isosphere.data.images import ImageSet, some
from isosphere.recipes import schema
from isosphere.train.exams import Exam, Faces, Frozen, Unexamined


def kind_of(data: schema.Data) -> str:
    """What is tested: test images, or in a trial some of the training data."""
    return "held-out training" if getattr(data, "held_out", 0) else "test"


def tested(exam: Exam, classes: Sequence[str], images: int | None = None, kind: str = "test") -> str:
    """What the exam's images are to a model that was trained on these classes, and on so many images if known."""
    if isinstance(exam, Unexamined):
        return "the images trained on"
    unseen = f"{kind} images, not trained on"
    if isinstance(exam, Frozen):
        parted = f"{kind} images, parted otherwise than in training: some may have been trained on"
        return parted if images not in (None, len(exam.train)) else unseen
    sets = exam.sets if isinstance(exam, Faces) else [exam.images]
    names = {name for images in sets for name in images.classes}
    if isinstance(exam, Faces):
        if not named(classes) or any(images.paths is None for images in sets):  # a .rec numbers people, a pack has none
            return f"{kind} images; whether their people were trained on cannot be told"
        names = named(names)
    shared = f"{len(names.intersection(classes))} of {len(names)}"
    if names.isdisjoint(classes):
        return unseen if isinstance(exam, Faces) else f"{kind} classes, never seen in training"
    told = "people have the name of one trained on" if isinstance(exam, Faces) else "classes were trained on"
    return f"{kind} images; {shared} {told}"


def named(people: Iterable[str]) -> set[str]:
    """Those whose name is more than a number, which another set may have given to somebody else."""
    return {name for name in people if not name.isdigit()}


def refuse_asked(probes: ImageSet, distractors: list[ImageSet]) -> None:
    """A photograph is nearer to itself than to any other, so no file that is asked for may be a distractor."""
    file, counts = _file(), torch.bincount(probes.labels)[probes.labels].tolist()  # of a person's only one nobody asks
    asked = {file(path) for path, count in zip(probes.paths, counts, strict=True) if count > 1}
    others = [path for images in distractors for path in images.paths]
    met = [path for path in others if file(path) in asked]
    if met:
        told = f"{len(met)} of {len(others)} distractors are among the {len(asked)} photographs to identify"
        raise ValueError(f"{told}, which hides these from their own people: {some(met)}; take other distractors")
    alike = sorted(named(probes.classes).intersection(name for images in distractors for name in images.classes))
    if alike:
        told = f"{len(alike)} people to identify have the name of a distractor: {some(alike)}"
        warnings.warn(f"{told}; if they are the same, finding them counts as an error", stacklevel=2)


def refuse_trained(people: ImageSet, exam: Faces) -> None:
    """Refuse to train on photographs that the exam shows, and warn of people who have the name of one in it."""
    file = _file()
    shown = {
        file(path): images.classes[label]
        for images in exam.sets
        for path, label in zip(images.paths or (), images.labels.tolist(), strict=False)
    }
    trained = map(file, getattr(people, "paths", None) or ())
    met = [shown[one] for one in trained if one in shown]
    how = "list their names, one a line, in a file that --data.exclude names"
    if met:
        told = f"{len(met)} of {len(shown)} photographs to test on are among those to train on"
        raise ValueError(f"{told}, of {some(dict.fromkeys(met))}; {how}")
    alike = sorted(named(shown.values()).intersection(people.classes))
    if alike:
        told = f"{len(alike)} people to test on have the name of one to train on: {some(alike)}"
        warnings.warn(f"{told}; if they are the same, {how}", stacklevel=2)


def _file() -> Callable[[str], tuple[str, str]]:
    """What tells whether two paths are one file; a data set has few folders and many files, so folders are kept."""
    folder = cache(os.path.realpath)
    return lambda path: (folder(os.path.dirname(path)), os.path.basename(path))
