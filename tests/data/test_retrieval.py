"""The four benchmarks' loaders on miniature copies of each layout."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.retrieval import SOURCES, Counts, installed, load
from isosphere.errors import BadList, DamagedFile, NoDataSet, NotFound, Option, OtherCounts, UnknownName
from isosphere.paper import find
from isosphere.train import loop
from raised import raised


def image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (90, 40, 20)).save(path)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two training and two test classes in every benchmark; classes 1 to 4 have 2, 3, 4 and 5 images."""
    for name, source in SOURCES.items():
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, counts=Counts(2, 2, 5, 9)))


MEMBERS = [(label, index) for label in (1, 2, 3, 4) for index in range(label + 1)]


def cub_official(root: Path) -> None:
    names = [f"{label:03d}.Bird_{label}/Bird_{index}.jpg" for label, index in MEMBERS]
    (root / "CUB_200_2011").mkdir(parents=True)
    (root / "CUB_200_2011" / "images.txt").write_text("".join(f"{i} {n}\n" for i, n in enumerate(names, start=1)))
    labels = "".join(f"{i} {label}\n" for i, (label, _) in enumerate(MEMBERS, start=1))
    (root / "CUB_200_2011" / "image_class_labels.txt").write_text(labels)
    for name in names:
        image(root / "CUB_200_2011" / "images" / name)


def class_folders(root: Path) -> None:
    """Split for classification: a class's first image is in train/, the others in test/."""
    for label, index in MEMBERS:
        image(root / ("test" if index else "train") / f"{label:03d}.Kind_{label}" / f"{index}.jpg")


def flat_folders(root: Path) -> None:
    for label, index in MEMBERS:
        image(root / f"{label:03d}.Kind_{label}" / f"{index}.jpg")


def annotations(path: Path, field: str, rows: list[tuple[str, int]]) -> None:
    from scipy.io import savemat

    path.parent.mkdir(parents=True, exist_ok=True)
    table = np.empty(len(rows), dtype=[("bbox_x1", "O"), (field, "O"), ("class", "O")])
    for place, (name, label) in enumerate(rows):
        table[place] = (1, name, np.uint8(label))
    savemat(path, {"annotations": table})


def cars_first(root: Path) -> None:
    rows = [(f"car_ims/{i:06d}.jpg", label) for i, (label, _) in enumerate(MEMBERS, start=1)]
    annotations(root / "cars_annos.mat", "relative_im_path", rows)
    for name, _ in rows:
        image(root / name)


def cars_devkit(root: Path) -> None:
    for split, where in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        chosen = [label for label, index in MEMBERS if (index == 0) == (split == "train")]
        rows = [(f"{i:05d}.jpg", label) for i, label in enumerate(chosen, start=1)]
        annotations(root / where, "fname", rows)
        for name, _ in rows:
            image(root / f"cars_{split}" / name)


def sop_official(root: Path) -> None:
    lines = {"train": "image_id class_id super_class_id path\n", "test": "image_id class_id super_class_id path\n"}
    for number, (label, index) in enumerate(MEMBERS, start=1):
        path = f"bicycle_final/{100 + label}_{index}.JPG"
        lines["train" if label <= 2 else "test"] += f"{number} {label} 1 {path}\n"
        image(root / path)
    for split, text in lines.items():
        (root / f"Ebay_{split}.txt").write_text(text)


def inshop_official(root: Path, images: str = "Img/", partition: str = "Eval/") -> None:
    lines = [str(len(MEMBERS)), "image_name item_id evaluation_status"]
    for label, index in MEMBERS:
        path = f"img/WOMEN/Dresses/id_{label:08d}/{index:02d}_1_front.jpg"
        status = "train" if label <= 2 else "query" if index % 2 else "gallery"
        lines.append(f"{path}   id_{label:08d}   {status}")
        image(root / images / path)
    (root / partition).mkdir(parents=True, exist_ok=True)
    (root / partition / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")


LAYOUTS = [
    ("cub200", cub_official),
    ("cub200", class_folders),
    ("cub200", flat_folders),
    ("cars196", cars_first),
    ("cars196", cars_devkit),
    ("cars196", class_folders),
    ("sop", sop_official),
    ("inshop", inshop_official),
    ("inshop", lambda root: inshop_official(root, images="", partition="")),
]


@pytest.mark.parametrize("name, make", LAYOUTS)
def test_each_layout_gives_the_zero_shot_split(name: str, make, tmp_path: Path) -> None:
    make(tmp_path)
    benchmark = load(name, tmp_path)
    assert benchmark.note == "" and benchmark.name == name
    assert (torch.bincount(benchmark.train.labels).tolist(), torch.bincount(benchmark.test.labels).tolist()) == (
        [2, 3],
        [4, 5],
    )
    assert not set(benchmark.train.classes) & set(benchmark.test.classes)
    paths = [*benchmark.train.paths, *benchmark.test.paths]
    assert len(set(paths)) == 14 and benchmark.test[8].shape == (3, 6, 8)
    assert (benchmark.query is None) == (name != "inshop")


def test_inshop_query_and_gallery_share_the_test_labels(tmp_path: Path) -> None:
    inshop_official(tmp_path)
    (tmp_path / "Img/img/WOMEN/Dresses/id_00000003/01_1_front.jpg").unlink()
    (tmp_path / "Img/img/WOMEN/Dresses/id_00000003/03_1_front.jpg").unlink()
    benchmark = load("inshop", tmp_path, allow_missing=True)  # class 3 has lost all of its queries
    assert benchmark.query.classes == benchmark.gallery.classes == ["id_00000003", "id_00000004"]
    assert benchmark.query.labels.tolist() == [1, 1] and benchmark.gallery.labels.tolist() == [0, 0, 1, 1, 1]
    assert all("id_00000004" in path for path in benchmark.query.paths)
    assert len(benchmark.query) + len(benchmark.gallery) == len(benchmark.test) == len(benchmark.is_query)


@pytest.mark.parametrize(
    "name, make, gone",
    [
        ("cub200", cub_official, "CUB_200_2011/images/003.Bird_3/Bird_1.jpg"),
        ("cars196", cars_devkit, "cars_test/00005.jpg"),
        ("sop", sop_official, "bicycle_final/103_2.JPG"),
        ("inshop", inshop_official, "Img/img/WOMEN/Dresses/id_00000004/02_1_front.jpg"),
        ("cars196", class_folders, "test/004.Kind_4/2.jpg"),
    ],
)
def test_a_missing_image_is_an_error_or_recorded(name: str, make, gone: str, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / gone).unlink()
    with raised(OtherCounts, title=SOURCES[name].title, remedies=(Option("data.allow_missing", True),)) as caught:
        load(name, tmp_path)
    error = caught.value
    assert error.found | {"test images": 9} == error.expected and error.found["test images"] == 8
    home = "CUB_200_2011/" if name == "cub200" else ""
    assert error.absent == (() if make is class_folders else (gone.removeprefix(home),))
    benchmark = load(name, tmp_path, allow_missing=True)
    assert len(benchmark.test) == 8 and "8 test images" in benchmark.note
    assert str(tmp_path) not in benchmark.note  # it goes into records that are shared


def test_a_missing_class_folder_never_shifts_the_split(tmp_path: Path) -> None:
    flat_folders(tmp_path)
    for file in (tmp_path / "002.Kind_2").iterdir():
        file.unlink()
    (tmp_path / "002.Kind_2").rmdir()
    with raised(NoDataSet, folder=tmp_path, title="CUB-200-2011", expected=SOURCES["cub200"].layout):
        load("cub200", tmp_path, allow_missing=True)


def test_nothing_left_of_one_side_is_an_error_even_if_allowed(tmp_path: Path) -> None:
    sop_official(tmp_path)
    (tmp_path / "Ebay_test.txt").write_text("image_id class_id super_class_id path\n")
    with raised(OtherCounts, remedies=()) as caught:
        load("sop", tmp_path, allow_missing=True)
    assert caught.value.found["test images"] == 0


def test_test_classes_of_the_devkit_need_the_labeled_list(tmp_path: Path) -> None:
    cars_devkit(tmp_path)
    (tmp_path / "cars_test_annos_withlabels.mat").unlink()
    with raised(NotFound, path=tmp_path / "cars_test_annos_withlabels.mat"):
        load("cars196", tmp_path)


def test_unknown_names_and_empty_folders(tmp_path: Path) -> None:
    with raised(UnknownName, name="cub", known=["cub200", "cars196", "sop", "inshop"]):
        load("cub", tmp_path)
    with raised(NoDataSet, folder=tmp_path / "nowhere", title="Cars196"):
        load("cars196", tmp_path / "nowhere")


def test_installed_lists_complete_incomplete_and_absent(tmp_path: Path) -> None:
    cub_official(tmp_path)
    sop_official(tmp_path / "Stanford_Online_Products")
    (tmp_path / "Stanford_Online_Products" / "bicycle_final" / "101_0.JPG").unlink()
    rows = {row.name: row for row in installed(tmp_path)}
    assert list(rows) == ["cub200", "cars196", "sop", "inshop"]
    assert rows["cub200"].state == "complete" and rows["cub200"].folder == tmp_path / "CUB_200_2011"
    assert "4 training images of 2 classes" in rows["sop"].state and "101_0.JPG" in rows["sop"].state
    assert rows["inshop"].folder is None and rows["inshop"].state == "not installed"
    assert all(row.source.startswith("http") for row in rows.values())


def test_the_counts_are_those_of_table_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the sizes as they are, not the small ones
    assert {name: tuple(source.counts) for name, source in SOURCES.items()} == {
        "cub200": (100, 100, 5864, 5924),
        "cars196": (98, 98, 8054, 8131),
        "sop": (11318, 11316, 59551, 60502),
        "inshop": (3997, 3985, 25882, 26830),
    }


def test_lists_that_are_not_as_published_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sop").mkdir()
    for split in ("train", "test"):
        (tmp_path / "sop" / f"Ebay_{split}.txt").write_text("image_id class_id super_class_id path\n1 2 3\n")
    with raised(DamagedFile, path=tmp_path / "sop"):
        load("sop", tmp_path / "sop", allow_missing=True)


def test_splits_that_names_do_not_give_are_refused(tmp_path: Path) -> None:
    class_folders(tmp_path / "cub")
    for place in sorted((tmp_path / "cub").rglob("*")):
        if place.is_dir() and place.name[:3].isdecimal():
            place.rename(place.with_name(f"bird {place.name[4:]} {place.name[:3]}"))
    with raised(BadList, path=tmp_path / "cub", line=None, value=[f"bird Kind_{n} 00{n}" for n in (1, 2, 3, 4)]):
        load("cub200", tmp_path / "cub")
    inshop_official(tmp_path / "inshop")
    (partition,) = (tmp_path / "inshop").rglob("list_eval_partition.txt")
    partition.write_text(partition.read_text().replace("gallery", "galery"))
    with raised(BadList, path=partition, value="galery"):
        load("inshop", tmp_path / "inshop", allow_missing=True)


@pytest.mark.parametrize(
    "name, make, recalls",
    [("sop", sop_official, (1, 10, 100, 1000)), ("inshop", inshop_official, (1, 10, 20, 30, 40, 50))],
)
def test_a_run_is_measured_as_the_papers_table_is(name: str, make, recalls: tuple[int, ...], tmp_path: Path) -> None:
    """At the data set's own K; In-Shop's queries among its gallery alone."""
    make(tmp_path)
    pixels = np.random.default_rng(0)
    for path in tmp_path.rglob("*.[jJ][pP][gG]"):
        Image.fromarray(pixels.integers(0, 255, (6, 8, 3), dtype=np.uint8)).save(path)
    changes = {
        "data.root": tmp_path, "data.size": 6, "data.shorter": 6, "model.backbone": "small_cnn", "model.dim": 8,
        "model.freeze_bn": "false", "batches.size": 4, "batches.per_class": 2, "loop.steps": 2, "loop.workers": 0,
    }  # fmt: skip
    recipe = find(f"{name}-ms-sec", {field: str(value) for field, value in changes.items()})
    last = loop.fit(recipe, tmp_path / "run", "cpu")["last"]
    assert tuple(int(key[7:]) for key in last if key.startswith("recall@")) == recalls
    held = np.load(tmp_path / "run" / "test_embeddings.npz")
    unit = held["embeddings"].astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    asks = held["is_query"] if name == "inshop" else np.ones(9, bool)
    assert asks.sum() == (4 if name == "inshop" else 9)
    right = 0
    for query in np.flatnonzero(asks):
        others = [o for o in range(9) if (not asks[o] if name == "inshop" else o != query)]
        best = max(others, key=lambda other: unit[query] @ unit[other])
        right += held["labels"][best] == held["labels"][query]
    assert last["recall@1"] == pytest.approx(right / asks.sum())
    assert last["recall@10"] == 1
