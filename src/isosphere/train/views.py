"""From a recipe's data to pixels: the images to train on, how they are seen, and the exam."""

import warnings
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path

import torch

from isosphere.data import alignment, cifar, faces, retrieval
from isosphere.data.copies import find_copies
from isosphere.data.images import ImageSet, lines, readable_images, some, split_classes
from isosphere.data.lists import nested, subfolders
from isosphere.data.packed import PackedSet, pack
from isosphere.data.transforms import ShiftView, TestView, TrainView
from isosphere.data.two_views import ContrastiveView
from isosphere.recipes import schema
from isosphere.train import exams, overlap
from isosphere.train.exams import Exam, Images, View
from isosphere.train.frames import Source, framed, parse_place, square

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
    unlabelled: bool = False  # an image is its own class, of which a batch has several views
    counts: dict[str, int] = field(default_factory=dict)  # of faces, by which results on other data are noticed

    @property
    def sizes(self) -> dict[str, int]:
        """How many images train and test, and of how many classes if they have such."""
        tested = {id(images): images for images in getattr(self.exam, "sets", [self.exam.images])}.values()
        found = {"train_images": len(self.train), "test_images": sum(map(len, tested))}
        if not self.unlabelled:
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
        schema.Unlabelled: _unlabelled,
    }
    views = makers[type(data)](data, device)
    return _told_copies(views) if isinstance(data, schema.Folder | schema.Faces | schema.Unlabelled) else views


def _told_copies(views: Views) -> Views:
    """With the test files that are copies of training files in a warning and in the deviation."""
    if isinstance(views.exam, exams.Unexamined):  # which shows the training images themselves
        return views
    sets = getattr(views.exam, "sets", [views.exam.images])
    tested = list(dict.fromkeys(path for images in sets for path in images.paths or ()))
    found = find_copies(tested, views.train.paths or ())
    if not found:
        return views
    told = f"{len(found)} test images are byte copies of training images"
    path, other = next(iter(found.items()))
    warnings.warn(f"{told}, e.g. {path} = {other}", stacklevel=3)
    return changed(views, deviation="; ".join(filter(None, (views.deviation, told))))


def build_face_exam(data: schema.Faces, device: torch.device) -> exams.Faces:
    """The exam alone, for which nobody of the people who are trained on, of whom there may be many, is opened."""
    return _face_exam(data, device, *_open_exam(data))[0]


def build_test_view(data: schema.Data) -> View | None:
    """What an image file goes through before a model that was trained on this data; of faces without landmarks."""
    if isinstance(data, schema.Faces):
        return square(data.fraction)
    return TestView(data.size, getattr(data, "shorter", data.size))


def open_images(root: str, flat: bool = False, whole: bool = False) -> ImageSet:
    """A folder of class folders or of their split, or a CSV; with `flat` also images without classes.

    The `whole` is all parts of a split, validation too.
    """
    if not root:
        kind = "images or of class folders" if flat else "class folders"
        raise ValueError(f"data.root is empty: name a folder of {kind} (./photos if it has that name) or a CSV")
    path = _there(root)
    if path.is_file():
        return ImageSet.csv(path, labelled=not flat, whole=whole)
    if flat and (not subfolders(path) or nested(path)):
        return ImageSet.flat(path)
    return ImageSet.folder(path, whole=whole)


def _there(root: str) -> Path:
    if not Path(root).exists():
        raise FileNotFoundError(f"no such folder or file: {root}")
    return Path(root)


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
    return Views(train, train_view, build_test_view(data), exam, images.deviation)


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
    return Views(train, train_view, build_test_view(data), exam, benchmark.deviation)


def _packed(images: ImageSet, name: str, data: schema.Benchmark, device: torch.device) -> PackedSet:
    store = pack(images, Path(data.pack) / f"{name}-{data.shorter}", data.shorter)
    return store.to(device) if store.fits(device) else store


# ---------------------------------------------------------------- faces


def _faces(data: schema.Faces, device: torch.device) -> Views:
    """Everything is opened before the first face is framed, so that what is missing is told at once."""
    people, opened = _people(data), _open_exam(data)
    counts = _count(people, *opened)
    exam, deviations = _face_exam(data, device, *opened)
    overlap.refuse_trained(people, exam)
    source = Source(people, Path(data.root), square(data.fraction), data.min_images, people=2)
    train = framed(source, data.align, device, data.skip_unreadable)
    told = "; ".join(filter(None, [train.deviation, *deviations]))
    return Views(train, faces.FlipView(), None, exam, told, counts=counts)


def face_counts(data: schema.Faces) -> dict[str, int]:
    """How many photographs and people a run would find to train on, and of what in its exam; frames nobody."""
    return _count(_people(data), *_open_exam(data))


def _count(people: ImageSet, pairs: list[faces.Pairs], probes: list[Source], others: list[Source]) -> dict[str, int]:
    probed, among = (sum(len(source.images) for source in sources) for sources in (probes, others))
    trained = {"images": len(people), "people": len(people.classes)}
    return trained | {"pairs": sum(map(len, pairs)), "probes": probed, "distractors": among}


def _people(data: schema.Faces) -> ImageSet:
    if not data.root:
        raise ValueError("data.root is empty: name a folder of people's folders, or a .rec beside its .idx")
    exclude = [name for _, name in lines(data.exclude)] if data.exclude else []
    people = faces.identities(_there(data.root), exclude, data.min_images)
    if len(people.classes) < 2:
        raise ValueError(f"{data.root} leaves one person to train on, {people.classes[0]}: two or more are needed")
    return people


def _open_exam(data: schema.Faces) -> tuple[list[faces.Pairs], list[Source], list[Source]]:
    """Pairs, probes (one set or none) and the sets of distractors, not framed yet."""
    if not data.pairs_root:
        kinds = "lfw/, cfp/ or lfw.bin, or a list of your own, mine_pair.txt"
        raise ValueError(f"data.pairs_root is empty: name the folder of the verification sets ({kinds})")
    if not data.pairs:
        raise ValueError(f"data.pairs is empty: name at least one of {', '.join(faces.SETS)}")
    if bool(data.probes) != bool(data.distractors):
        raise ValueError("data.probes and data.distractors go together: who is to be identified, and among whom")
    _there(data.pairs_root)
    pairs = [_folded(_pairs(place, data)) for place in data.pairs]
    probes = [_source(data.probes, "probes")] if data.probes else []
    others = [_source(place, "distractors") for place in data.distractors]
    if probes:
        _refuse_singles(probes[0].images, data.probes)
        overlap.refuse_asked(probes[0].images, [source.images for source in others])
    return pairs, probes, others


def _face_exam(
    data: schema.Faces, device: torch.device, pairs: list[faces.Pairs], probes: list[Source], others: list[Source]
) -> tuple[exams.Faces, list[str]]:
    """The exam, which needs none of the people that are trained on, and how its sets differ from the original."""
    sets: dict[tuple, ImageSet] = {}
    for number, found in enumerate(pairs):
        key = (found.view, *(found.images.paths or (found.name,)))
        if key not in sets:  # CFP's two protocols are of the same images
            sets[key] = framed(Source(found.images, found.home, found.view), data.align, device)
        pairs[number] = changed(found, images=sets[key])
    faced = [framed(source, data.align, device, data.skip_unreadable) for source in (*probes, *others)]
    asked, among = (faced[0], faced[1:]) if faced else (None, [])
    if asked is not None and data.skip_unreadable:
        _refuse_singles(asked, data.probes)
    told = [one.deviation for one in (*pairs, *sets.values(), asked, *among) if one is not None]
    return exams.Faces(tuple(pairs), asked, dict(zip(_names(others), among, strict=True))), told


def _names(sources: list[Source]) -> list[str]:
    """What sets are called in the metrics: as their file or folder, numbered where that does not tell them apart."""
    short = [source.home.stem for source in sources]
    apart = len(set(short)) == len(short) and not any(name.isdigit() for name in short)
    return short if apart else [f"{name}-{number}" for number, name in enumerate(short, 1)]


def _refuse_singles(probes: ImageSet, place: str) -> None:
    if int(torch.bincount(probes.labels).max()) < 2:
        raise ValueError(f"{place} has no person with two photographs that can be read: none can be identified")


def _pairs(place: str, data: schema.Faces) -> faces.Pairs:
    """The pairs `name` or `name:share`; photographs of one's own are cut as those trained on if there is no share."""
    name, view = parse_place(place, "pairs")
    found = faces.verification(name, data.pairs_root, data.allow_missing)
    if found.images.paths is None:
        if view is not None:
            raise ValueError(f"data.pairs {place}: {name} is a pack, whose faces are cut already; leave out the share")
        return found
    return changed(found, view=view or (found.view if name in faces.SETS else square(data.fraction)))


def _folded(pairs: faces.Pairs) -> faces.Pairs:
    """A fold's threshold comes from the others, so one (LFW's view 1) becomes ten: each kind in tenths, in order."""
    if len(pairs.fold.unique()) > 1:
        return pairs
    fold = torch.empty_like(pairs.fold)
    for kind in (pairs.same, ~pairs.same):
        fold[kind] = torch.arange(int(kind.sum())) * 10 // max(1, int(kind.sum()))
    return changed(pairs, fold=fold)


def _source(place: str, field: str) -> Source:
    """Probes or distractors, whole without a share; these may also lie in one folder, as nobody asks who they are."""
    path, view = parse_place(place, field)
    return Source(open_images(path, flat=field == "distractors"), Path(path), view or alignment.WHOLE)


# ---------------------------------------------------------------- without labels


def _cifar(data: schema.Cifar, device: torch.device) -> Views:
    train, test = cifar.load(data.name, data.root, data.download, device)
    if data.held_out:
        train, test = _parted(train, data.held_out, data.name)
    view = ContrastiveView(data.size, data.size, data.scale, jitter=data.jitter)
    return Views(train, view, None, exams.Frozen(train, test, None), unlabelled=True)


def _unlabelled(data: schema.Unlabelled, device: torch.device) -> Views:
    images = readable_images(open_images(data.root, flat=True), data.skip_unreadable)
    train_view = ContrastiveView(data.size, data.shorter, data.scale, flip=data.flip, jitter=data.jitter)
    test_view = build_test_view(data)
    if len(images.classes) < 2:
        exam = exams.Unexamined(images, test_view)
        return Views(images, train_view, test_view, exam, images.deviation, unlabelled=True)
    _refuse_one_part(images, data.root)
    train, test = _parted(images, FIFTH, data.root)
    exam = exams.Frozen(train, test, test_view)
    return Views(train, train_view, test_view, exam, images.deviation, unlabelled=True)


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
