"""A trained run measured again: on its own test images, or on others."""

import warnings
from pathlib import Path
from typing import Any

from isosphere.data.images import LabeledImages, open_images
from isosphere.data.own import DatasetImages
from isosphere.data.transforms import View
from isosphere.errors import BadArgument, MovedData, NoProbe, NoTestPart, Option
from isosphere.inference import Trained, evaluation_view, naming, parse_place, preprocessed
from isosphere.recipes import schema
from isosphere.recipes.own import NO_OBJECTS, Objects
from isosphere.train import own
from isosphere.train.build import build_task
from isosphere.train.contrastive import Frozen
from isosphere.train.evaluation import Evaluation, evaluate
from isosphere.train.faces import faces_evaluation
from isosphere.train.overlap import kind_of
from isosphere.train.retrieval import MirroredRetrieval, Retrieval, check_parts, own_retrieval
from isosphere.train.validation import validated


def measure_run(trained: Trained, data: Any = None, objects: Objects = NO_OBJECTS) -> dict[str, Any]:
    """A trained run on its own test images, or in retrieval among all classes of a folder, a CSV or a dataset.

    Of a given split only test images are measured. Returns the metrics as `last`. `tested` is what the images are to
    the run. `objects` are the parts of its own that the run was given.
    """
    if data is None:
        evaluation = _own_evaluation(trained, objects)
        relation = _relation(trained, evaluation)
    else:
        images, view, part = _other_images(trained, data)
        evaluation = own_retrieval(images, view, MirroredRetrieval if trained.recipe.data.framed else Retrieval)
        shared = len(set(images.classes).intersection(trained.classes))
        relation = f"all {len(images.classes)} classes of {part}"
        relation += f"; {shared} have the name of one trained on" if shared else ""
        relation += _stopped(trained)
    found = evaluate(evaluation, trained.embedder, True, trained.recipe.seed)
    return {"last": found.metrics, "tested": relation}


def probe_run(trained: Trained, lrs: tuple[float, ...]) -> tuple[dict[float, dict[str, float | None]], str]:
    """The linear probe of a run's frozen features at several learning rates, and what the images are to the run."""
    evaluation = _own_evaluation(trained)
    if not isinstance(evaluation, Frozen):
        raise NoProbe(type(trained.recipe.data).__name__)
    found = evaluation.probe(evaluation.embed(trained.embedder, True), trained.recipe.seed, lrs)
    return found, _relation(trained, evaluation)


def _relation(trained: Trained, evaluation: Evaluation) -> str:
    """What the run's own test images are to it, and whether it was stopped."""
    kind = kind_of(trained.recipe)
    return evaluation.relation(trained.classes, trained.images, kind, compared=False) + _stopped(trained)


def _stopped(trained: Trained) -> str:
    return "" if trained.stopped is None else f"; the run was stopped at step {trained.stopped:,}"


def _own_evaluation(trained: Trained, objects: Objects = NO_OBJECTS) -> Evaluation:
    """The evaluation of a run's own data, wherever they are now."""
    data = trained.recipe.data
    try:
        if isinstance(data, schema.Faces):
            return faces_evaluation(data, trained.device)
        task = build_task(data, trained.device, objects.data)
        task = own.evaluated(task, trained.recipe.evaluation, objects.evaluation)
        task = validated(task, trained.recipe.validation, data.place)
        other = len(trained.classes) > 1 and task.images.classes != trained.classes  # one is called as its folder
        if other or (isinstance(task.evaluation, Retrieval) and trained.images not in (None, len(task.images))):
            what = "classes" if other else "images"
            text = f"{data.place} is not what this run was trained on: other training {what}"
            warnings.warn(f"{text}; data.root says where the run's own are", stacklevel=2)
        return task.evaluation
    except FileNotFoundError as error:
        raise MovedData(str(error), Path.cwd(), Option(f"data.{data.test_root}")) from error


def _other_images(trained: Trained, data: Any) -> tuple[LabeledImages, View | None, str]:
    """Images of a place or a dataset, of a given split the test part, and what this part is called.

    Of faces `folder:0.52` gives another share of the frame.
    """
    if not isinstance(data, str | Path):
        found, own_data = DatasetImages(data), trained.recipe.data
        if found.transformed != own_data.transformed:
            kind = "float tensors" if own_data.transformed else "pixels"
            raise BadArgument("data", type(data).__name__, f"a dataset that gives {kind}, as in training")
        check_parts(None, found, type(data).__name__)
        return found, None if found.transformed else evaluation_view(own_data), type(data).__name__
    part = root = str(data)
    root, share = parse_place(root, "root") if trained.recipe.data.framed else (root, None)
    images = open_images(root, naming=naming(trained.recipe.data))
    if images.splits is not None:
        tests = [index for index, split in enumerate(images.splits) if split == "test"]
        if not tests:
            raise NoTestPart(root)
        if len(tests) < len(images):
            part, images = f"the test part of {part}", images.subset(tests)
    check_parts(None, images, part)
    return *preprocessed(trained, images, Path(root), share, people=2), part
