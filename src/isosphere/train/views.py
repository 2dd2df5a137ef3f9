"""From a recipe's data to pixels: the images to train on, how they are seen, and the exam."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from isosphere.data import cifar, faces, retrieval
from isosphere.data.images import ImageSet, open_images, readable_images, some, split_classes
from isosphere.data.packed import PackedSet, pack
from isosphere.data.transforms import ShiftView, TestView, TrainView
from isosphere.data.two_views import ContrastiveView
from isosphere.recipes import schema
from isosphere.train import exams, overlap
from isosphere.train.exams import Exam, Images, View
from isosphere.train.face_exam import count, face_exam, open_exam, open_people
from isosphere.train.frames import Source, framed, square

RECALLS = {
    "cub200": (1, 2, 4, 8),
    "cars196": (1, 2, 4, 8),
    "sop": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 30, 40, 50),
}
FIFTH = 0.2  # of one's own class folders every fifth image measures


@dataclass(frozen=True)
class Views:
    """Training images with what is done to their pixels, and the exam; a view of None leaves pixels alone."""

    train: Images
    train_view: View | None
    test_view: View | None
    exam: Exam
    deviation: str = ""  # how a benchmark's copy differs from the original, what is left out, tests that train, too
    unlabeled: bool = False  # an image is its own class, of which a batch has several views
    counts: dict[str, int] = field(default_factory=dict)  # of faces, by which results on other data are noticed

    @property
    def sizes(self) -> dict[str, int]:
        """How many images train and test, and of how many classes if they have such."""
        tested = {id(images): images for images in getattr(self.exam, "sets", [self.exam.images])}.values()
        found = {"train_images": len(self.train), "test_images": sum(map(len, tested))}
        if not self.unlabeled:
            found["train_classes"] = len(self.train.classes)
        if isinstance(self.exam, exams.Retrieval | exams.Frozen):
            found["test_classes"] = len(self.exam.images.classes)
        return found


def build_views(data: schema.Data, device: torch.device) -> Views:
    """Open the data set and split it, so that nothing that is measured on was trained on.

    Of one's own files copies under other names are told; the splits of benchmarks are as published.
    """
    makers = {
        schema.Rendered: _rendered,
        schema.Folder: _folder,
        schema.Benchmark: _benchmark,
        schema.Faces: _faces,
        schema.Cifar: _cifar,
        schema.Unlabeled: _unlabeled,
    }
    views = makers[type(data)](data, device)
    if isinstance(data, schema.Folder | schema.Faces | schema.Unlabeled):
        told = filter(None, (views.deviation, overlap.told_copies(views.train, views.exam)))
        views = replace(views, deviation="; ".join(told))
    return views


def build_test_view(data: schema.Data) -> View | None:
    """What an image file goes through before a model that was trained on this data; of faces without landmarks."""
    if isinstance(data, schema.Faces):
        return square(data.fraction)
    return TestView(data.size, getattr(data, "shorter", data.size))


# ---------------------------------------------------------------- retrieval


def _rendered(data: schema.Rendered, device: torch.device) -> Views:
    from isosphere.data.rendered import rendered

    train, test = split_classes(rendered(data.classes, data.per_class, data.seed, data.size))
    return Views(train, ShiftView(data.shift) if data.shift else None, None, exams.Retrieval(test, None))


def _folder(data: schema.Folder, device: torch.device) -> Views:
    images = readable_images(open_images(data.root), data.skip_unreadable)
    _refuse_one_part(images, data.root)
    train, test = split_classes(images, data.train_fraction, allow_shared=data.allow_shared)
    for part, use in ((train, "train"), (test, "test")):
        if len(part.classes) < 2:
            told = f"one class only to {use} on: both training and test need two, or there is nothing to tell apart"
            raise ValueError(f"{data.root} has {told}")
    if int(torch.bincount(test.labels).max()) < 2:
        told = f"one image of each of the {len(test.classes)} classes to test on: an image is looked for by another of"
        raise ValueError(f"{data.root} has {told} its class, so two or more of some are needed")
    train_view = TrainView(data.size, data.shorter, data.scale, flip=data.flip)
    exam = exams.Retrieval(test, build_test_view(data))
    return Views(train, train_view, build_test_view(data), exam, images.note)


def _refuse_one_part(images: ImageSet, root: str) -> None:
    given = set(images.splits or ())
    if len(given) == 1:
        other = "test" if given == {"train"} else "train"
        repair = f"give some images the split {other}, or leave out the split to have them parted"
        raise ValueError(f"{root} has no image for {other}: all have the split {given.pop()}; {repair}")


def _benchmark(data: schema.Benchmark, device: torch.device) -> Views:
    benchmark = retrieval.load(data.name, data.root, data.allow_missing)
    train, test, is_query = benchmark.train, benchmark.test, benchmark.is_query
    if data.pack:
        train = _packed(train, f"{data.name}-train", data, device)
        test = test if data.held_out else _packed(test, f"{data.name}-test", data, device)
    if data.held_out:
        is_query, kept = None, len(train.classes) - data.held_out
        if kept < 1:
            raise ValueError(f"data.held_out leaves none of the {len(train.classes)} training classes to train on")
        train, test = train.of_classes(range(kept)), train.of_classes(range(kept, len(train.classes)))
    train_view = TrainView(data.size, data.shorter, data.scale, flip=data.flip)
    exam = exams.Retrieval(test, build_test_view(data), is_query, RECALLS[data.name])
    return Views(train, train_view, build_test_view(data), exam, benchmark.note)


def _packed(images: ImageSet, name: str, data: schema.Benchmark, device: torch.device) -> PackedSet:
    store = pack(images, Path(data.pack) / f"{name}-{data.shorter}", data.shorter)
    return store.to(device) if store.fits(device) else store


# ---------------------------------------------------------------- faces


def _faces(data: schema.Faces, device: torch.device) -> Views:
    """Everything is opened before the first face is framed, so that what is missing is told at once."""
    people, opened = open_people(data), open_exam(data)
    counts = count(people, *opened)
    exam, deviations = face_exam(data, device, *opened)
    overlap.refuse_trained(people, exam)
    source = Source(people, Path(data.root), square(data.fraction), data.min_images, people=2)
    train = framed(source, data.align, device, data.skip_unreadable)
    told = "; ".join(filter(None, [train.note, *deviations]))
    return Views(train, faces.FlipView(), None, exam, told, counts=counts)


# ---------------------------------------------------------------- without labels


def _cifar(data: schema.Cifar, device: torch.device) -> Views:
    train, test = cifar.load(data.name, data.root, data.download, device)
    if data.held_out:
        train, test = _parted(train, data.held_out, data.name)
    view = ContrastiveView(data.size, data.size, data.scale, jitter=data.jitter)
    return Views(train, view, None, exams.Frozen(train, test, None), unlabeled=True)


def _unlabeled(data: schema.Unlabeled, device: torch.device) -> Views:
    images = readable_images(open_images(data.root, flat=True), data.skip_unreadable)
    train_view = ContrastiveView(data.size, data.shorter, data.scale, flip=data.flip, jitter=data.jitter)
    test_view = build_test_view(data)
    if len(images.classes) < 2:
        exam = exams.Unexamined(images, test_view)
        return Views(images, train_view, test_view, exam, images.note, unlabeled=True)
    _refuse_one_part(images, data.root)
    train, test = _parted(images, FIFTH, data.root)
    exam = exams.Frozen(train, test, test_view)
    return Views(train, train_view, test_view, exam, images.note, unlabeled=True)


def _parted(images: ImageSet, share: float, root: str) -> tuple[ImageSet, ImageSet]:
    """Of each class this share apart, evenly in the set's order and never the first; a given split wins."""
    if images.splits is not None:
        apart = torch.tensor([split == "test" for split in images.splits])
    else:
        place = torch.zeros(len(images), dtype=torch.float64)
        for label in range(len(images.classes)):
            members = (images.labels == label).nonzero().flatten()
            place[members] = torch.arange(len(members), dtype=torch.float64)
        # Where the count of those apart grows by one; the slack keeps 5 * 0.2 from falling short of 1.
        apart = ((place + 1) * share + 1e-9).floor() > (place * share + 1e-9).floor()
    if not apart.any() or apart.all():
        told = f"{root}: {len(images)} images of {len(images.classes)} classes cannot be parted"
        given = "a test/ beside a train/ of class folders, or a CSV whose column split has train and test"
        raise ValueError(f"{told}: measuring needs a class of at least {round(1 / share)} images, {given}")
    train, test = (images.subset(rows.nonzero().flatten()) for rows in (~apart, apart))
    unknown = [name for name in test.classes if name not in set(train.classes)]
    if unknown:
        raise ValueError(f"{len(unknown)} classes have test images alone: {some(unknown)}; give each a training image")
    return train, test
