"""Lists in Parquet: as CSVs, whatever their types, and without an object for each row."""

import pickle
import tracemalloc

import pyarrow
import pytest
import torch
from pyarrow import parquet

from isosphere.data import columns
from isosphere.data.columns import Naming
from isosphere.data.images import ImageSet, open_images
from isosphere.data.paths import Paths
from isosphere.data.split import split_classes
from isosphere.errors import BadList, DamagedFile, MissingExtra, NoImages
from isosphere.samplers import ClassBatches
from raised import raised


def write(tmp_path, name="list.parquet", rows=None, **cells):
    parquet.write_table(pyarrow.table(cells), tmp_path / name, row_group_size=rows)
    return tmp_path / name


@pytest.fixture
def folder(tmp_path):
    for name in ("a/1.jpg", "a/2.jpg", "b/ü.jpg", "b/4.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


PATHS = ["a/1.jpg", " a/2.jpg", "b/ü.jpg", "./b/4.jpg"]


@pytest.mark.parametrize("rows", [None, 1, 3])
@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.int64(), "dictionary"])
def test_a_parquet_file_is_read_as_a_csv(folder, rows, kind):
    labels = [10, 9, 10, 11]
    if kind == "dictionary":
        column = pyarrow.array(map(str, labels)).dictionary_encode()
    else:
        column = pyarrow.array(labels).cast(kind)
    paths = pyarrow.array(PATHS, kind if kind == pyarrow.large_string() else pyarrow.string())
    given = {"Path": paths, "label": column, "split": ["train", "test", "Train", "test"], "more": [[1], [2], [3], []]}
    listed = open_images(str(write(folder, rows=rows, group=["x", None, "x", ""], **given)), naming=Naming())
    lines = zip(PATHS, labels, given["split"], ["x", "", "x", ""], strict=True)
    (folder / "list.csv").write_text("path,label,split,group\n" + "\n".join(",".join(map(str, line)) for line in lines))
    wanted = ImageSet.csv(folder / "list.csv")
    assert listed.paths == wanted.paths == [str(folder / path.strip()) for path in PATHS]
    assert listed.classes == wanted.classes == ["9", "10", "11"] and listed.splits == wanted.splits
    assert torch.equal(listed.labels, wanted.labels)
    assert listed.groups[0] == listed.groups[2] and len(set(listed.groups.tolist())) == 3


def test_columns_may_have_other_names_and_labels_may_be_in_paths(folder):
    file = write(folder, file_name=PATHS, who=["x", "y", "x", "y"])
    naming = Naming(columns=("path=file_name", "label=who"))
    assert open_images(str(file), naming=naming).classes == ["x", "y"]
    assert open_images(str(file), naming=Naming("^(.)/", columns=("path=file_name",))).classes == ["a", "b"]


@pytest.mark.parametrize(
    ("cells", "kind", "fields"),
    [
        ({"path": PATHS}, BadList, {"value": ["path"], "line": None}),
        ({"path": PATHS, "label": ["x", None, "x", "x"]}, BadList, {"value": ["a/2.jpg", ""], "line": 2}),
        ({"path": [*PATHS[:3], None], "label": list("xxxx")}, BadList, {"value": ["", "x"], "line": 4}),
        ({"path": ["a/1.jpg"] * 2, "label": ["x", "y"]}, BadList, {"value": "a/1.jpg", "line": 2}),
        ({"path": ["a/1.jpg", "b/../a/1.jpg"], "label": ["x", "y"]}, BadList, {"value": "b/../a/1.jpg", "line": 2}),
        ({"path": PATHS, "label": [[1], [2], [3], [4]]}, BadList, {"value": "list<element: int64>"}),
        ({"path": [], "label": []}, NoImages, {}),
    ],
)
def test_what_a_parquet_file_cannot_say(folder, cells, kind, fields):
    with raised(kind, **fields):
        open_images(str(write(folder, **cells)))


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    (tmp_path / "list.parquet").write_text("path,label\n")
    with raised(DamagedFile, path=tmp_path / "list.parquet"):
        open_images(str(tmp_path / "list.parquet"))


def test_without_pyarrow_the_extra_is_named(folder, monkeypatch):
    file = write(folder, path=PATHS, label=list("xxyy"))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra) as caught:
        open_images(str(file))
    assert (caught.value.package, caught.value.extra) == ("pyarrow", "parquet")


def test_paths_are_one_block_and_parts_of_it():
    names = ["a/1.jpg", "/b/2.jpg", "ü/\udce9.jpg", "", "./c//d.jpg"]
    paths = Paths.of(names, "root")
    wanted = ["root/a/1.jpg", "/b/2.jpg", "root/ü/\udce9.jpg", "root/", "root/c/d.jpg"]
    assert [*paths] == wanted == [paths[i] for i in range(5)] and paths == wanted and paths != wanted[1:]
    part = paths[torch.tensor([4, 0]).numpy()]
    assert part == ["root/c/d.jpg", "root/a/1.jpg"] and part.text is paths.text and paths[1:3] == wanted[1:3]
    assert pickle.loads(pickle.dumps(paths)) == wanted and Paths.of(paths) is paths and "5" in repr(paths)
    assert len(set(paths.digests().tolist())) == 5 and not len(Paths.of([]))


def scaled(folder, count, monkeypatch):
    """The peak of Python's memory in listing, splitting and sampling so many rows."""
    numbers = range(count)
    file = write(
        folder, f"{count}.parquet", path=[f"photos/{n % 997:05d}/{n:08d}.jpg" for n in numbers],
        label=[f"class {n % (count // 10)}" for n in numbers], group=[str(n % 7) for n in numbers],
    )  # fmt: skip
    monkeypatch.setattr(columns, "_check_files", lambda *_: None)
    tracemalloc.start()
    train, test = split_classes(open_images(str(file)), seed=0)
    assert len(ClassBatches(train.labels, 120, 4, 0).indices(0)) == 120
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(train) + len(test) == count and len(pickle.dumps(train)) < 100 * count
    return peak


def test_memory_grows_with_the_rows_and_slowly(tmp_path, monkeypatch):
    pickle.dumps(open_images)  # imports are paid before
    few, many = (scaled(tmp_path, count, monkeypatch) for count in (10_000, 40_000))
    assert (many - few) / 30_000 < 300, "bytes a row; a text of Python's for each path alone has 80 and more"
