"""The part of the training images that is held out: to watch a run, to stop it early and to choose its checkpoint."""

from dataclasses import replace
from typing import NamedTuple

from isosphere.data.apart import images_apart
from isosphere.data.images import Images
from isosphere.data.split import class_order
from isosphere.errors import BadArgument, Incompatible, Option, TooFewClasses
from isosphere.recipes import schema
from isosphere.train.retrieval import check_parts
from isosphere.train.task import Task
from isosphere.train.watch import Watch

HELD_OUT = Option("validation.held_out")
LEAST = 2  # classes to distinguish, and images of one to find each other


class Parts(NamedTuple):
    """Images to train on, and those held out."""

    train: Images
    held: Images


def validated(task: Task, option: schema.Validation, place: str) -> Task:
    """The task with a part of its training images held out. One that the data bring is taken as it is.

    With `only` this part is measured in place of the test images.
    """
    if task.given is None and not option.held_out:
        if option.only:
            raise BadArgument(Option("validation.only"), True, "false where nothing is held out")
        return task
    found = Parts(task.images, task.given) if task.given is not None else parts(task, option, place)
    if not task.unlabeled:
        check_parts(None, found.held, place, "validate")
    watched = task.evaluation.of(*found)
    if not (watched.choosing or option.only):
        if option.held_out:
            raise BadArgument(HELD_OUT, option.held_out, "0, as only norms are measured, and these choose nothing")
        return task
    split = {**task.parts, "train": found.train, "validation": found.held}
    task = replace(task, images=found.train, parts=split)
    if option.only:
        return replace(task, evaluation=watched)
    return replace(task, evaluation=task.evaluation.of(found.train), validation=watched)


def parts(task: Task, option: schema.Validation, place: str) -> Parts:
    """Whole classes are held out where classes of the test are new, else images of each class."""
    images, size = task.images, option.held_out
    if not by_classes(task):
        share = size if size < 1 else size / len(images)
        apart = images_apart(images.labels, share, option.seed, 1 if task.unlabeled else LEAST)
        if not apart.any() or apart.all():
            raise BadArgument(HELD_OUT, size, f"one that leaves some of {len(images)} images on each side")
        return Parts(*(images.subset(rows.nonzero().flatten()) for rows in (~apart, apart)))
    count = len(images.classes)
    if count < 2 * LEAST:
        raise TooFewClasses(place, "train and validate", count, 2 * LEAST)
    held = max(LEAST, round(size * count)) if size < 1 else int(size)
    if not LEAST <= held <= count - LEAST:
        raise BadArgument(HELD_OUT, size, f"from {LEAST} to {count - LEAST} of {count} training classes, or a share")
    chosen = set(class_order(images.classes, option.seed)[-held:].tolist())
    return Parts(*(images.of_classes([c for c in range(count) if (c in chosen) == its]) for its in (False, True)))


def by_classes(task: Task) -> bool:
    """Whether the test asks about new classes, so that validation must do so, too."""
    tested = {name for images in task.evaluation.sets for name in images.classes}
    return not task.unlabeled and (task.evaluation.classes is None or tested.isdisjoint(task.images.classes))


def watching(recipe: schema.Recipe, task: Task) -> Watch | None:
    """What watches a run on validation images, or on those of a trial. Patience needs one or the other."""
    option, patience = recipe.validation, recipe.loop.patience
    evaluation = task.evaluation if option.only else task.validation
    if evaluation is None or not evaluation.choosing:
        if patience:
            remedies = (Option("validation.held_out", 0.2), Option("loop.patience", 0))
            reason = "patience needs validation classes, by which a run is watched"
            raise Incompatible(("loop.patience", "validation.held_out"), reason, remedies)
        return None
    return Watch(option.metric or evaluation.choosing, patience, keeps=task.validation is not None)
