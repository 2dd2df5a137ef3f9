"""Hugging Face datasets: a small double of them, and among the extras the real package."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

import isosphere
from isosphere.data.own import DatasetImages
from isosphere.errors import BadArgument
from raised import raised


def picture(number):
    return Image.fromarray(np.full((10, 8, 3), 3 * number, np.uint8))


class ClassLabel:
    def __init__(self, names):
        self.names = names


class Table:
    """What is asked of `datasets.Dataset`: columns, types, rows as dicts. It counts the rows that are decoded."""

    decoded = 0

    def __init__(self, columns, features):
        self.columns, self.features, self.column_names = columns, features, list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index):
        if isinstance(index, slice):
            assert "image" not in self.columns, "all images would be decoded"
            return {name: cells[index] for name, cells in self.columns.items()}
        Table.decoded += 1
        return {name: cells[index] for name, cells in self.columns.items()}

    def select_columns(self, names):
        return Table({name: self.columns[name] for name in names}, self.features)

    def with_format(self, kind):
        assert kind is None
        return self


def double(names=None, **columns):
    return Table(columns, {"label": ClassLabel(names) if names else object()})


def real(names=None, **columns):
    import datasets

    features = {name: datasets.Value("string") for name in columns if name not in ("image", "label")}
    types = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names) if names else None}
    features |= {name: types[name] for name in ("image", "label") if name in columns and types[name] is not None}
    if "label" in columns and names is None:
        kinds = {int: "int64", str: "string"}
        features["label"] = datasets.Value(kinds[type(next(its for its in columns["label"] if its is not None))])
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


@pytest.fixture(params=[double, pytest.param(real, marks=pytest.mark.extras)], ids=["double", "real"])
def made(request):
    return request.param


LABELS = [1, 0, 2, 1, 0, 2]


def test_columns_are_images_labels_and_names_of_classes(made):
    Table.decoded = 0
    images = DatasetImages(made(["ant", "bee", "cat", "none"], image=[*map(picture, range(6))], label=LABELS))
    assert images.classes == ["ant", "bee", "cat"] and images.labels.tolist() == LABELS and Table.decoded == 0
    assert images[4].shape == (3, 10, 8) and images[4].unique().tolist() == [12]
    part = images.of_classes([2])
    assert part.classes == ["cat"] and [int(part[i][0, 0, 0]) for i in range(2)] == [6, 15]
    assert images.groups is images.is_query is images.paths is None


def test_labels_may_be_words_and_rows_may_have_groups_and_roles(made):
    words = [f"w{label}" for label in LABELS]
    marks = {"group": ["a", "b", None, "a", None, "b"], "role": ["query", "gallery"] * 3}
    images = DatasetImages(made(image=[*map(picture, range(6))], label=words, **marks))
    assert images.classes == ["w0", "w1", "w2"] and images.is_query.tolist() == [True, False] * 3
    groups = images.groups.tolist()
    assert groups[0] == groups[3] and groups[1] == groups[5] and len(set(groups)) == 4
    part = images.subset([5, 0])
    assert part.groups.tolist() == [groups[5], groups[0]] and part.is_query.tolist() == [False, True]


@pytest.mark.parametrize(
    "columns",
    [
        {"img": [picture(0)], "label": [0]},
        {"image": [picture(0)], "fine_label": [0]},
        {"image": [picture(0), picture(1)], "label": [0, None]},
        {"image": [picture(0)], "label": [0], "role": ["probe"]},
    ],
)
def test_tables_that_lack_something_are_refused(columns):
    with raised(BadArgument, name="data"):
        DatasetImages(double(**columns))
    with raised(BadArgument, name="data", value="rows without a label"):
        DatasetImages(double(["a", "b"], image=[picture(0), picture(1)], label=[0, -1]))


def test_a_dataset_trains_from_python(made, tmp_path):
    count = 24
    table = made([f"c{n}" for n in range(8)], image=[*map(picture, range(count))], label=[n % 8 for n in range(count)])
    parts = {"batches": {"size": 6, "per_class": 3}, "model": {"dim": 16}, "loop": {"steps": 2}}
    data = {"kind": table, "size": 8, "shorter": 9}
    run = isosphere.fit("photos", data=data, **parts, folder=tmp_path / "run", device="cpu")
    assert "recall@1" in run.metrics and run.encode([picture(1)]).shape == (1, 16)
    assert len(run.classes) == 4 and set(run.classes) <= {f"c{n}" for n in range(8)}
    assert run.evaluate()["recall@1"] == pytest.approx(run.metrics["recall@1"])


class Marked:
    """A map-style dataset with groups, as anybody would write it."""

    targets = LABELS
    groups = np.array([0, 1, 0, 1, 1, 0])
    is_query = [True, False, False, False, False, False]

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return picture(index), LABELS[index]


def test_any_dataset_may_have_groups_and_queries():
    images = DatasetImages(Subset(Marked(), [5, 3, 0]))
    assert images.groups.tolist() == [0, 1, 0] and images.is_query.tolist() == [False, False, True]
    for name, value in (("groups", [0, 1]), ("groups", ["x"] * 6), ("is_query", torch.zeros(6, 2))):
        dataset = Marked()
        setattr(dataset, name, value)
        with raised(BadArgument, name=f"data.{name}"):
            DatasetImages(dataset)
