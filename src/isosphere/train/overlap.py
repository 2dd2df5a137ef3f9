"""What test images share with training images: noted, warned of or refused."""

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache

import torch

from isosphere.data.copies import copies_of
from isosphere.data.faces import letters
from isosphere.data.images import Images
from isosphere.data.lists import some
from isosphere.data.looks import alike
from isosphere.errors import (
    CopiesWarning,
    NamesakesWarning,
    NearCopiesWarning,
    Option,
    ProbesAmongDistractors,
    RepeatedDistractors,
    TrainedPhotographs,
)
from isosphere.recipes import schema

EXCLUDE = Option("data.exclude")  # the file of people's names to leave out of training


def kind_of(recipe: schema.Recipe) -> str:
    """What is measured on: test images, or in a trial some of the training data."""
    return "held-out training" if recipe.validation.only else "test"


def named(people: Iterable[str]) -> dict[str, str]:
    """Names by their letters, of those with more than a number. Another set may give a number to somebody else."""
    return {letters(name): name for name in people if not name.isdigit()}


def refuse_probes(probes: Images, distractors: Sequence[Images]) -> None:
    """A photograph is nearer to itself than to any other, so no probe's file may be a distractor."""
    file, counts = _file(), torch.bincount(probes.labels)[probes.labels].tolist()  # a person's only one is no probe
    asked = {file(path) for path, count in zip(probes.paths or (), counts, strict=True) if count > 1}
    others = {file(path): path for images in distractors for path in images.paths or ()}
    total = sum(map(len, distractors))
    met = [path for one, path in others.items() if one in asked]
    if met:
        raise ProbesAmongDistractors(met, len(met), total, len(asked))
    if len(others) < total:
        raise RepeatedDistractors(total - len(others), total)
    alike = _namesakes(probes.classes, distractors)
    if alike:
        text = f"{len(alike)} people to identify have the name of a distractor: {some(alike)}"
        text += "; if they are the same, finding them counts as an error"
        warnings.warn(NamesakesWarning(text, len(alike), alike), stacklevel=2)


def refuse_trained(people: Images, tests: Sequence[Images]) -> None:
    """Refuse to train on photographs that are tested on. Warn of people who have the name of one of them."""
    file = _file()
    shown = {file(path) for images in tests for path in images.paths or ()}
    trained = {file(path): label for path, label in zip(people.paths or (), people.labels.tolist(), strict=False)}
    met = [label for one, label in trained.items() if one in shown]
    if met:
        names = [people.classes[label] for label in dict.fromkeys(met)]
        raise TrainedPhotographs(names, len(met), len(shown), EXCLUDE)
    alike = _namesakes(people.classes, tests)
    if alike:
        text = f"{len(alike)} people to test on have the name of one to train on: {some(alike)}"
        text += f"; if they are the same, list their names in the file {EXCLUDE.field}"
        warnings.warn(NamesakesWarning(text, len(alike), alike), stacklevel=2)


def _namesakes(people: Iterable[str], sets: Sequence[Images]) -> list[str]:
    """Those of the people whose name somebody in the sets has, too, by its letters."""
    known, others = named(people), named(name for images in sets for name in images.classes)
    return sorted(known[one] for one in known.keys() & others.keys())


def _file() -> Callable[[str], str]:
    """Whether two paths are one file. A data set has few folders and many files, so folders are kept."""
    folder = cache(os.path.realpath)

    def file(path: str) -> str:
        if os.path.islink(path):
            return os.path.realpath(path)
        return os.path.join(folder(os.path.dirname(path)), os.path.basename(path))

    return file


def copies(train: Images, tests: Sequence[Images]) -> tuple[str, ...]:
    """Notes on test images that are copies of training images, or look like one. They are given as warnings, too."""
    if any(images is train for images in tests):  # without labels the training images themselves are measured
        return ()
    found, notes = copies_of(tests, train), []
    if found:
        notes.append(f"{len(found)} test images are byte copies of training images")
        path, other = next(iter(found.items()))
        text = f"{notes[0]}, e.g. {path} = {other}"
        warnings.warn(CopiesWarning(text, len(found), (path, other)), stacklevel=3)
    near = _near(train, tests, found.keys())
    if near:
        notes.append(f"{len(near)} test images look nearly like training images")
        text = f"{notes[-1]}: {some((f'{path} like {other}' for path, other in near.items()), 3)}"
        text += "; if they are copies, put both into one part, by a list with a column split"
        warnings.warn(NearCopiesWarning(text, len(near), [*near]), stacklevel=3)
    return tuple(notes)


def _near(train: Images, tests: Sequence[Images], known: Collection[str]) -> dict[str, str]:
    """Test images that look like a training image, and which one; those whose files are known as copies not again."""
    found: dict[str, str] = {}
    theirs = getattr(train, "looks", None)
    for images in tests:
        ours = getattr(images, "looks", None)
        if ours is None or theirs is None:
            continue
        names, others = (its.paths or [f"image {number}" for number in range(len(its))] for its in (images, train))
        pairs = ((names[row], others[other]) for row, other in alike(ours, theirs).items())
        found |= {name: other for name, other in pairs if name not in known}
    return found
