"""What an exam shares with training: told, warned of or refused, so that nobody is tested on what was trained on."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch

from isosphere.data.copies import find_copies
from isosphere.data.faces import letters
from isosphere.data.images import ImageSet, some
from isosphere.recipes import schema
from isosphere.train.exams import Exam, Faces, Frozen, Unexamined


def kind_of(data: schema.Data) -> str:
    """What is tested: test images, or in a trial some of the training data."""
    return "held-out training" if getattr(data, "held_out", 0) else "test"


def tested(
    exam: Exam, classes: Sequence[str], images: int | None = None, kind: str = "test", compared: bool = False
) -> str:
    """What the exam's images are to a model that was trained on these classes, and on so many images if known.

    `compared` says that the files were: `refuse_trained` has found no photograph that is in both.
    """
    if isinstance(exam, Unexamined):
        return "the images trained on"
    unseen = f"{kind} images, not trained on"
    if isinstance(exam, Frozen):
        parted = f"{kind} images, parted otherwise than in training: some may have been trained on"
        return parted if images not in (None, len(exam.train)) else unseen
    if isinstance(exam, Faces):
        return _tested_faces(exam, classes, kind, unseen, compared)
    names = set(exam.images.classes)
    if names.isdisjoint(classes):
        return f"{kind} classes, never seen in training"
    return f"{kind} images; {len(names.intersection(classes))} of {len(names)} classes were trained on"


def _tested_faces(exam: Faces, classes: Sequence[str], kind: str, unseen: str, compared: bool) -> str:
    trained, people = named(classes), [named(images.classes) for images in exam.sets]
    known = {name for names in people for name in names}
    met = known & trained.keys()
    if met:
        return f"{kind} images; {len(met)} of {len(known)} people have the name of one trained on"
    # A .rec has numbers for people, a pack has neither names nor files; of numbers in a folder files tell.
    told = compared and all(images.paths is not None for images in exam.sets)
    if not trained or not (told or all(people)):
        return f"{kind} images; whether their people were trained on cannot be told"
    return unseen


def named(people: Iterable[str]) -> dict[str, str]:
    """Names by their letters, of those who have more than a number, which another set may give to somebody else."""
    return {letters(name): name for name in people if not name.isdigit()}


def refuse_asked(probes: ImageSet, distractors: list[ImageSet]) -> None:
    """A photograph is nearer to itself than to any other, so no file that is asked for may be a distractor."""
    file, counts = _file(), torch.bincount(probes.labels)[probes.labels].tolist()  # of a person's only one nobody asks
    asked = {file(path) for path, count in zip(probes.paths, counts, strict=True) if count > 1}
    others = {file(path): path for images in distractors for path in images.paths}
    total = sum(map(len, distractors))
    met = [path for one, path in others.items() if one in asked]
    if met:
        told = f"{len(met)} of {total} distractors are among the {len(asked)} photographs to identify"
        raise ValueError(f"{told}, which hides these from their own people: {some(met)}; take other distractors")
    if len(others) < total:
        raise ValueError(f"{total - len(others)} of {total} distractors are there twice; name each set once")
    alike = _namesakes(probes.classes, distractors)
    if alike:
        told = f"{len(alike)} people to identify have the name of a distractor: {some(alike)}"
        warnings.warn(f"{told}; if they are the same, finding them counts as an error", stacklevel=2)


def refuse_trained(people: ImageSet, exam: Faces) -> None:
    """Refuse to train on photographs that the exam shows, and warn of people who have the name of one in it."""
    file = _file()
    shown = {file(path) for images in exam.sets for path in images.paths or ()}
    paths = getattr(people, "paths", None) or ()
    trained = {file(path): label for path, label in zip(paths, people.labels.tolist(), strict=False)}
    met = [label for one, label in trained.items() if one in shown]
    how = "list their names, one a line, in a file that --data.exclude names"
    if met:
        names = some(people.classes[label] for label in dict.fromkeys(met))
        told = f"{len(met)} of {len(shown)} photographs to test on are among those to train on, as {names}"
        raise ValueError(f"{told}; {how}")
    alike = _namesakes(people.classes, exam.sets)
    if alike:
        told = f"{len(alike)} people to test on have the name of one to train on: {some(alike)}"
        warnings.warn(f"{told}; if they are the same, {how}", stacklevel=2)


def _namesakes(people: Iterable[str], sets: list[ImageSet]) -> list[str]:
    """Those of the people whose name somebody in the sets has, too, by its letters."""
    known, others = named(people), named(name for images in sets for name in images.classes)
    return sorted(known[one] for one in known.keys() & others.keys())


def _file() -> Callable[[str], str]:
    """What tells whether two paths are one file; a data set has few folders and many files, so folders are kept."""
    folder = cache(os.path.realpath)

    def file(path: str) -> str:
        if os.path.islink(path):
            return os.path.realpath(path)
        return os.path.join(folder(os.path.dirname(path)), os.path.basename(path))

    return file


def told_copies(train: ImageSet, exam: Exam) -> str:
    """How many of the exam's files are copies of training files under other names, also as a warning; else nothing."""
    if isinstance(exam, Unexamined):  # which shows the training images themselves
        return ""
    sets = getattr(exam, "sets", [exam.images])
    tested = list(dict.fromkeys(path for images in sets for path in images.paths or ()))
    found = find_copies(tested, train.paths or ())
    if not found:
        return ""
    told = f"{len(found)} test images are byte copies of training images"
    path, other = next(iter(found.items()))
    warnings.warn(f"{told}, e.g. {path} = {other}", stacklevel=3)
    return told
