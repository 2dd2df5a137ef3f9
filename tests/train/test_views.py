"""One's own data on the way to training: given splits, what is left out, how pairs are cut."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.alignment import WHOLE, FaceView
from isosphere.data.decoding import decode
from isosphere.data.frames import square
from isosphere.data.images import open_images
from isosphere.errors import (
    BadArgument,
    CopiesWarning,
    EmptyClasses,
    LeftOutWarning,
    NotFound,
    OneSplit,
    Option,
    SharedClasses,
    SingleImages,
    TooFewClasses,
)
from isosphere.paper import find
from isosphere.recipes import schema
from isosphere.train.build import build_task
from pixels import pixels_of
from raised import raised, warned

CPU = torch.device("cpu")


def photograph(path: Path, seed: int = 0, side: int = 40) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    for number, place in enumerate(("train/rose", "train/iris", "test/rose", "test/iris")):
        for one in range(3):
            photograph(tmp_path / "flowers" / place / f"{one}.png", 10 * number + one)
    return tmp_path / "flowers"


def listed(flowers: Path) -> Path:
    rows = [f"{file.relative_to(flowers)},{file.parts[-2]},{file.parts[-3]}" for file in sorted(flowers.rglob("*.png"))]
    (flowers / "all.csv").write_text("\n".join(["path,label,split", *rows]))
    return flowers / "all.csv"


def test_a_given_split_of_the_same_classes_needs_leave(flowers: Path) -> None:
    for root in (flowers, listed(flowers)):
        data = schema.Folder(str(root), size=16, shorter=20)
        with raised(SharedClasses, classes=["iris", "rose"], option=Option("data.allow_shared", True)):
            build_task(data, CPU)
        task = build_task(replace(data, allow_shared=True), CPU)
        assert task.images.classes == task.evaluation.images.classes == ["iris", "rose"] and "; ".join(task.notes) == ""
        parts = [{Path(path).parts[-3] for path in images.paths} for images in (task.images, task.evaluation.images)]
        assert parts == [{"train"}, {"test"}] and len(task.images) == len(task.evaluation.images) == 6


def test_frozen_features_are_measured_on_a_given_split(flowers: Path) -> None:
    task = build_task(schema.Unlabeled(str(flowers), size=16, shorter=20), CPU)
    assert {Path(path).parts[-3] for path in task.images.paths} == {"train"} and len(task.images) == 6
    assert len(task.evaluation.images) == 6


@pytest.mark.parametrize("split, other", [("train", "test"), ("test", "train")])
def test_a_list_of_one_part_is_named_with_what_helps(flowers: Path, split: str, other: str) -> None:
    path = listed(flowers)
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0], *(row for row in rows if row.endswith(f",{split}"))]))
    for kind in (schema.Folder, schema.Unlabeled):
        with raised(OneSplit, place=path, given=split, missing=other):
            build_task(kind(str(path), size=16, shorter=20), CPU)


def test_copies_of_training_images_in_the_test_part_are_reported(flowers: Path) -> None:
    shutil.copy(flowers / "train" / "rose" / "1.png", flowers / "test" / "iris" / "copy.png")
    (flowers / "test" / "rose" / "link.png").symlink_to(flowers / "train" / "iris" / "0.png")
    short = "2 test images are byte copies of training images"
    for root in (flowers, listed(flowers)):
        for data in (
            schema.Folder(str(root), size=16, shorter=20, allow_shared=True),
            schema.Unlabeled(str(root), size=16, shorter=20),
        ):
            with pytest.warns(UserWarning) as caught:
                task = build_task(data, CPU)
            pair = f"{flowers}/test/iris/copy.png = {flowers}/train/rose/1.png"
            assert [str(one.message) for one in caught] == [f"{short}, e.g. {pair}"]
            assert "; ".join(task.notes) == short


def test_copies_are_reported_behind_what_is_left_out(flowers: Path) -> None:
    shutil.copy(flowers / "train" / "rose" / "1.png", flowers / "test" / "iris" / "copy.png")
    photograph(flowers / "train" / "rose" / "deeper" / "9.png")
    with pytest.warns(LeftOutWarning) as left, pytest.warns(CopiesWarning) as copied:
        task = build_task(schema.Folder(str(flowers), size=16, shorter=20, allow_shared=True), CPU)
    notes = [one.message.text for one in copied if isinstance(one.message, CopiesWarning)]
    notes = [*(one.message.text for one in left if isinstance(one.message, LeftOutWarning)), *notes]
    assert len(task.notes) == len(notes) == 2 and all(map(str.__contains__, notes, task.notes))


def test_images_left_out_are_in_the_runs_deviation(flowers: Path) -> None:
    photograph(flowers / "train" / "rose" / "deeper" / "9.png")
    with pytest.warns(LeftOutWarning) as caught:
        task = build_task(schema.Folder(str(flowers), size=16, shorter=20, allow_shared=True), CPU)
    assert [f"{flowers}: {note}" for note in task.notes] == [caught[0].message.text]


def test_validation_neither_trains_nor_tests(flowers: Path) -> None:
    photograph(flowers / "validation" / "rose" / "1.png")
    data = schema.Folder(str(flowers), size=16, shorter=20, allow_shared=True)
    for one in (data, schema.Unlabeled(str(flowers), size=16, shorter=20)):
        task = build_task(one, CPU)
        assert task.images.classes == task.evaluation.images.classes == ["iris", "rose"]
        assert list(task.given.paths) == [str(flowers / "validation" / "rose" / "1.png")] and not task.notes
        assert not {*task.given.paths} & {*task.images.paths, *task.evaluation.images.paths}


def test_a_folder_beside_what_macos_leaves_is_flat(tmp_path: Path) -> None:
    photograph(tmp_path / "1.png")
    (tmp_path / "__MACOSX").mkdir()
    assert len(open_images(str(tmp_path), flat=True)) == 1


def test_images_without_labels_may_lie_in_folders_in_folders(flowers: Path) -> None:
    photograph(flowers / "train" / "1.png")
    (flowers / "test").rename(flowers / "2019")
    (flowers / "train").rename(flowers / "2020")
    with pytest.warns(LeftOutWarning):
        task = build_task(schema.Unlabeled(str(flowers), size=16, shorter=20), CPU)
    assert len(task.images) == 13 and task.images.classes == ["flowers"] and task.evaluation.images is task.images
    with raised(EmptyClasses, classes=["2019"], total=2, deeper=12):
        build_task(schema.Folder(str(flowers), size=16, shorter=20), CPU)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    for person in range(4):
        for one in range(2):
            photograph(tmp_path / "people" / f"trained {person}" / f"{one}.png", 10 * person + one)
            photograph(tmp_path / "pairs" / f"tested {person}" / f"{one}.png", 100 + 10 * person + one)
    lines = [f"tested {n}/0.png\ttested {m % 4}/1.png\t{int(n == m)}" for n in range(4) for m in (n, n + 1)]
    (tmp_path / "pairs" / "mine_pair.txt").write_text("\n".join(lines))
    (tmp_path / "pairs" / "again_pair.txt").write_text("\n".join(lines))
    return tmp_path


def test_pairs_of_ones_own_are_cut_as_the_faces_trained_on(people: Path) -> None:
    places = {"data.root": str(people / "people"), "data.pairs_root": str(people / "pairs"), "data.pairs": "mine"}
    data = find("lfw-cosface-sec", places | {"data.fraction": "0.5", "data.min_images": "1"}).data
    assert square(0.5) == FaceView(fraction=0.5)
    for pairs, shares in (("mine",), (0.5,)), (("mine:0.3",), (0.3,)), (("mine", "again:1"), (0.5, 1.0)):
        task = build_task(replace(data, pairs=pairs), CPU)
        assert torch.equal(task.images[0], FaceView(fraction=0.5)(decode(task.images.paths[0])))
        assert [one.name for one in task.evaluation.pairs] == [name.split(":")[0] for name in pairs]
        for found, share in zip(task.evaluation.pairs, shares, strict=True):
            cut = FaceView(fraction=share, rise=0.033 if share < 1 else 0.0)
            wanted = torch.stack([cut(decode(path)) for path in found.images.paths])
            assert torch.equal(pixels_of(found.images), wanted), f"{pairs}: {found.name}"
    with pytest.raises(BadArgument) as caught:
        build_task(replace(data, pairs=("mine:1.5",)), CPU)
    assert (caught.value.name, caught.value.value) == (Option("data.pairs"), "mine:1.5")
    (people / "pairs" / "mine_pair.txt").rename(people / "pairs" / "lfw_pair.txt")
    lfw = build_task(replace(data, pairs=("lfw",), allow_missing=True, fraction=0.9), CPU).evaluation.pairs[0]
    assert lfw.view == FaceView(), "known sets keep their own share"
    files = sorted((people / "pairs").rglob("*.png"))
    held = [file.read_bytes() for file in files], [True, False] * 2
    (people / "pairs" / "mine.bin").write_bytes(pickle.dumps(held))
    packed = build_task(replace(data, pairs=("mine",)), CPU).evaluation.images.pixels
    assert torch.equal(packed, torch.stack([WHOLE(decode(file)) for file in files])), "packs are cut already"
    with pytest.raises(BadArgument) as caught:
        build_task(replace(data, pairs=("mine:0.5",)), CPU)
    assert (caught.value.name, caught.value.value) == (Option("data.pairs"), "mine:0.5")


def test_photographs_left_out_are_in_a_face_runs_deviation(people: Path) -> None:
    photograph(people / "people" / "trained 1" / "old" / "1.png")
    places = {"data.root": str(people / "people"), "data.pairs_root": str(people / "pairs"), "data.pairs": "mine"}
    with pytest.warns(LeftOutWarning) as caught:
        task = build_task(find("lfw-cosface-sec", places).data, CPU)
    assert len(task.notes) == 1 and caught[0].message.text.endswith(task.notes[0])


def test_copies_of_training_photographs_in_pairs_are_reported(people: Path) -> None:
    shutil.copy(people / "people" / "trained 1" / "0.png", people / "pairs" / "tested 2" / "1.png")
    places = {"data.root": str(people / "people"), "data.pairs_root": str(people / "pairs"), "data.pairs": "mine,again"}
    with warned({CopiesWarning: 1}) as caught:
        task = build_task(find("lfw-cosface-sec", places).data, CPU)
    copy, trained = caught[0].message.names
    assert copy.endswith("tested 2/1.png") and trained.endswith("trained 1/0.png")
    assert len(task.notes) == 1 and caught[0].message.text.startswith(task.notes[0])


def test_a_list_of_people_that_is_not_there_is_named(people: Path) -> None:
    places = {"data.root": str(people / "people"), "data.pairs_root": str(people / "pairs"), "data.pairs": "mine"}
    with raised(NotFound, path="nofile.txt"):
        build_task(find("lfw-cosface-sec", places | {"data.exclude": "nofile.txt"}).data, CPU)


@pytest.mark.parametrize("count, use", [(2, "train"), (3, "test")])
def test_one_class_to_train_or_to_test_on_is_refused(count: int, use: str, tmp_path: Path) -> None:
    """Its loss would be nothing, and its R@1 100 %."""
    for number in range(count):
        (tmp_path / f"{number}").mkdir()
        for index in range(4):
            Image.new("RGB", (8, 8), (60 * number, 20 * index, 0)).save(tmp_path / f"{number}" / f"{index}.png")
    with pytest.raises(TooFewClasses) as caught:
        build_task(find("photos", {"data.root": str(tmp_path)}).data, torch.device("cpu"))
    assert (caught.value.place, caught.value.use, caught.value.found) == (str(tmp_path), use, 1)


def test_single_images_of_the_classes_to_test_on_are_refused(tmp_path: Path) -> None:
    """Nothing can be found: R@1 would be 0 and NMI 100 %."""
    for seed, place in enumerate(("0/0", "0/1", "1/0", "1/1", "2/0", "3/0")):
        photograph(tmp_path / f"{place}.png", seed)
    data = schema.Folder(str(tmp_path), size=16, shorter=20)
    with pytest.raises(SingleImages) as caught:
        build_task(data, CPU)
    assert (caught.value.place, caught.value.classes) == (str(tmp_path), 2)
    photograph(tmp_path / "3" / "1.png", 9)
    assert len(build_task(data, CPU).evaluation.images) == 3
