"""The four retrieval benchmarks, split by class and checked against Table 1. `layouts.py` reads them."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from isosphere.errors import DamagedFile, FolderExists, InputError, NoDataSet, Option, OtherCounts, UnknownName

from .download import fetch_folder
from .images import ImageSet
from .layouts import SOURCES, Counts, Listed, Source, home
from .lists import ordered, some


class Row(NamedTuple):
    """One line of what is installed. If a benchmark is absent, `folder` is None and `state` says so."""

    name: str
    title: str
    folder: Path | None
    state: str
    source: str


@dataclass(frozen=True)
class Benchmark:
    """Training and test images of disjoint classes; `is_query` (bool, one a test image) marks the queries.

    `note` says how the images differ from the benchmark's own, and is empty where they do not. `folder` holds them.
    """

    name: str
    train: ImageSet
    test: ImageSet
    is_query: Tensor | None = None
    note: str = ""
    folder: Path = Path()

    @property
    def query(self) -> ImageSet | None:
        """The queries, with the labels of `test`. None if each test image is a query among all others."""
        return None if self.is_query is None else _labeled_part(self.test, self.is_query)

    @property
    def gallery(self) -> ImageSet | None:
        """The gallery, with the labels of `test`; None where there are no separate queries."""
        return None if self.is_query is None else _labeled_part(self.test, ~self.is_query)


def load(name: str, root: str | Path, allow_missing: bool = False) -> Benchmark:
    """The benchmark of this name in the folder `root`, or in a folder of its usual name below.

    Counts other than those of Table 1 are an error. With `allow_missing` absent images are left out, and a note says
    so.
    """
    source = _source(name)
    folder = home(source, Path(root))
    if folder is None:
        get = f"{source.address}, or by `isosphere datasets {root} --get {name}`" if source.archive else source.address
        raise NoDataSet(root, source.title, source.layout, get)
    try:
        listed = list(source.read(folder, source))
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OSError) as error:
        raise DamagedFile(folder, f"its lists are not those of {source.title}: {error}") from error
    there = [image for image in listed if image.path.is_file()]
    found = _counts(there)
    note = ""
    if found != source.counts:
        note = f"{source.title} has {_in_words(found)}, not {_in_words(source.counts)}"
        absent = tuple(str(image.path.relative_to(folder)) for image in sorted(set(listed) - set(there)))
        note += f"; absent: {some(absent, 20)}" if absent else ""
        if not allow_missing or not min(found):
            repair, remedies = f"complete {folder} from {source.address}", (Option("data.allow_missing", True),)
            counts = _named(found), _named(source.counts)
            raise OtherCounts(source.title, *counts, absent, repair, remedies if min(found) else ())
    train, test = (_image_set([image for image in there if (image.split == "train") == part]) for part in (True, False))
    roles = [image.split for image in there if image.split != "train"]
    is_query = torch.tensor([role == "query" for role in roles]) if "query" in roles else None
    return Benchmark(name, train, test, is_query, note, folder)


def installed(root: str | Path) -> list[Row]:
    """What of the four benchmarks is under `root`, where, whether complete, and where to get it."""
    return [_row(name, Path(root)) for name in SOURCES]


def install(name: str, root: str | Path) -> Path:
    """The benchmark's folder under `root`, downloaded unless it is complete. One without archive is an error."""
    source, row = _source(name), _row(name, Path(root))
    if row.state == "complete" and row.folder is not None:
        return row.folder
    if not source.archive:
        raise NoDataSet(Path(root) / source.folders[0], source.title, source.layout, source.address)
    if row.folder is not None:
        raise FolderExists(row.folder, row.state)
    return fetch_folder(source.archive, Path(root) / source.folders[0], source.md5)


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise UnknownName("benchmark", name, list(SOURCES))
    return SOURCES[name]


def _row(name: str, root: Path) -> Row:
    source = SOURCES[name]
    folder, state = home(source, root), "not installed"
    if folder is not None:
        try:
            state = load(name, folder, allow_missing=True).note or "complete"
        except (ValueError, ImportError) as error:
            state = str(error)
    return Row(name, source.title, folder, state, source.address)


def _counts(listed: list[Listed]) -> Counts:
    parts = [[image for image in listed if (image.split == "train") == train] for train in (True, False)]
    return Counts(*(len({image.label for image in part}) for part in parts), *map(len, parts))


def _named(counts: Counts) -> dict[str, int]:
    return {part.replace("_", " "): count for part, count in counts._asdict().items()}


def _in_words(counts: Counts) -> str:
    return (
        f"{counts.train_images:,} training images of {counts.train_classes:,} classes and "
        f"{counts.test_images:,} test images of {counts.test_classes:,}"
    )


def _image_set(listed: list[Listed]) -> ImageSet:
    names = ordered({image.label for image in listed})
    number = {name: label for label, name in enumerate(names)}
    return ImageSet(torch.tensor([number[image.label] for image in listed]), names, [str(i.path) for i in listed])


def _labeled_part(images: ImageSet, mask: Tensor) -> ImageSet:
    """The masked images with the labels and classes of the whole, so that queries and gallery agree."""
    paths = [path for path, kept in zip(images.files, mask.tolist(), strict=True) if kept]
    return ImageSet(images.labels[mask], images.classes, paths)
