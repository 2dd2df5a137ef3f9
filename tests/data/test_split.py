"""Training and test classes: disjoint, complete, repeatable, and the same again from a file."""

import json

import pytest
import torch

from isosphere.data.images import ImageSet
from isosphere.data.split import class_order, described, split_classes
from isosphere.errors import (
    BadArgument,
    DamagedFile,
    LeftOutWarning,
    NotFound,
    OneSplit,
    Option,
    OtherCounts,
    SharedClasses,
)
from isosphere.recipes import schema
from isosphere.runs.versions import translate_recipe
from raised import raised, warned


def pixel_set(classes, per_class=3):
    labels = torch.arange(classes).repeat(per_class)
    pixels = labels.to(torch.uint8).view(-1, 1, 1, 1)
    return ImageSet.from_pixels(pixels, labels, [f"class {c}" for c in range(classes)])


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("fraction", [0.5, 0.2, 0.75])
def test_split_is_disjoint_complete_and_relabeled(fraction, seed):
    images = pixel_set(20)
    train, test = split_classes(images, fraction, seed)
    assert len(train.classes) == round(20 * fraction) and not set(train.classes) & set(test.classes)
    assert set(train.classes) | set(test.classes) == set(images.classes)
    assert len(train) + len(test) == len(images)
    for part in (train, test):
        assert part.labels.unique().tolist() == list(range(len(part.classes)))
        for pixel, label in zip(part.pixels.flatten().tolist(), part.labels.tolist(), strict=True):
            assert part.classes[label] == f"class {pixel}"
    if seed is None:
        assert train.classes == images.classes[: len(train.classes)]
    else:
        assert train.classes != images.classes[: len(train.classes)]
        assert split_classes(images, fraction, seed)[0].classes == train.classes
        assert split_classes(images, fraction, seed + 1)[0].classes != train.classes


@pytest.mark.parametrize(("fraction", "apart"), [(0.7, 3), (0.5, 5), (0.95, 2)])
def test_split_by_images_takes_a_share_of_each_class_at_random(fraction, apart):
    images = pixel_set(4, 10)
    train, test = split_classes(images, fraction, 0, by="images")
    assert train.classes == test.classes == images.classes
    assert torch.bincount(test.labels).tolist() == [apart] * 4 and len(train) == 40 - 4 * apart
    both = [split_classes(ImageSet(images.labels, images.classes, paths=list(map(str, range(40)))), 0.7, seed,
                          by="images") for seed in (0, 0, 1)]  # fmt: skip
    held = [set(test.paths) for _, test in both]
    assert held[0] == held[1] != held[2] and not held[0] & set(both[0][0].paths)
    train, test = split_classes(images, fraction, None, by="images")
    assert torch.bincount(test.labels).tolist() == [apart] * 4 and len(train) == 40 - 4 * apart
    with raised(BadArgument, name=Option("data.train_fraction")):
        split_classes(pixel_set(4, 3), 0.5, 0, by="images")  # two of three cannot be set apart


def test_split_that_leaves_a_side_empty_is_refused():
    with raised(BadArgument, name="fraction", value=0.1):
        split_classes(pixel_set(3), 0.1)


def listed(tmp_path, *rows):
    """Images of a CSV with these rows of path,label,split; the files are empty."""
    for row in rows:
        (tmp_path / row.split(",")[0]).touch()
    (tmp_path / "list.csv").write_text("\n".join(["path,label,split", *rows]))
    return ImageSet.csv(tmp_path / "list.csv")


def test_split_column_wins_and_shared_classes_need_leave(tmp_path):
    rows = "1.jpg,x,test", "2.jpg,y,train", "3.jpg,z,train"
    train, test = split_classes(listed(tmp_path, *rows), fraction=0.9, seed=3)
    assert train.classes == ["y", "z"] and test.classes == ["x"]
    images = listed(tmp_path, *rows, "4.jpg,z,test")
    with raised(SharedClasses, classes=["z"], option=Option("data.allow_shared", True)):
        split_classes(images)
    train, test = split_classes(images, allow_shared=True)
    assert train.classes == ["y", "z"] and test.classes == ["x", "z"]
    with raised(OneSplit, given="test", missing="train"):
        split_classes(listed(tmp_path, "1.jpg,x,test"))


def test_a_new_class_hardly_moves_the_others():
    names = [f"class {c}" for c in range(100)]
    before, after = ({names[c] for c in class_order(those, 7)[:50]} for those in (names, names[:99]))
    assert len(before - after) <= 1
    assert names[0] in before or names[0] in {names[c] for c in class_order(names, 7)[50:]}


def test_each_class_is_in_one_fold_and_folds_are_of_one_size():
    images = pixel_set(11)
    for seed in (None, 0):
        folds = [split_classes(images, folds=3, fold=fold, seed=seed) for fold in (1, 2, 3)]
        tested = [name for _, test in folds for name in test.classes]
        assert sorted(tested) == sorted(images.classes) and [len(test.classes) for _, test in folds] == [4, 4, 3]
        assert all(sorted(train.classes + test.classes) == sorted(images.classes) for train, test in folds)
    with raised(BadArgument, name=Option("data.folds"), value=12):
        split_classes(images, folds=12)


@pytest.mark.parametrize("values", [{"folds": 1}, {"folds": 3, "fold": 4}, {"fold": 2}, {"folds": 2, "split": "x"}])
def test_ways_to_split_that_cannot_be_are_refused(values):
    for kind in (schema.Folder, schema.OwnData):
        with raised(BadArgument):
            kind(**values)


def test_a_split_is_the_same_again_from_its_file(tmp_path):
    images, file = pixel_set(10), tmp_path / "split.json"
    parts = split_classes(images, 0.3, seed=5)
    held = parts[0].of_classes([0])  # a validation part is of the training classes
    rest = parts[0].of_classes([1, 2])
    for named in ({"train": parts[0], "test": parts[1]}, {"train": rest, "validation": held, "test": parts[1]}):
        file.write_text(json.dumps(described(named)))
        again = split_classes(images, 0.9, seed=1, folds=2, file=str(file))
        assert [part.classes for part in again] == [part.classes for part in parts]
        assert all(torch.equal(one.pixels, two.pixels) for one, two in zip(again, parts, strict=True))
    with warned({LeftOutWarning: 3}):
        train, _ = split_classes(pixel_set(11), file=str(file))
    assert train.note.startswith("3 images") and train.classes == parts[0].classes
    with raised(OtherCounts, absent=["class 9"], found={"classes": 9}, expected={"classes": 10}):
        split_classes(pixel_set(9), file=str(file))


def test_a_split_of_shared_classes_is_of_files_wherever_they_are(tmp_path):
    (tmp_path / "here").mkdir()
    rows = "1.jpg,x,test", "2.jpg,x,train", "3.jpg,y,train", "4.jpg,y,test"
    listed(tmp_path / "here", *rows)
    root = str(tmp_path / "here" / "list.csv")
    train, test = split_classes(ImageSet.csv(root), allow_shared=True)
    held = described({"train": train, "test": test}, root)
    assert held["train"]["files"] == ["2.jpg", "3.jpg"] and held["test"]["classes"] == ["x", "y"]
    (tmp_path / "split.json").write_text(json.dumps(held))
    (tmp_path / "here").rename(tmp_path / "there")
    root = str(tmp_path / "there" / "list.csv")
    images = ImageSet.csv(root, whole=True)
    again = split_classes(images, file=str(tmp_path / "split.json"), root=root)
    assert [[path[-5:] for path in part.paths] for part in again] == [["2.jpg", "3.jpg"], ["1.jpg", "4.jpg"]]
    with raised(BadArgument, name=Option("data.split")):
        split_classes(pixel_set(2), file=str(tmp_path / "split.json"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (None, NotFound),
        ("{", DamagedFile),
        ("[]", DamagedFile),
        ('{"train": {"classes": []}}', DamagedFile),
        ('{"train": {"classes": 3}, "test": {"classes": []}}', DamagedFile),
        ('{"train": {"classes": ["class 0"]}, "test": {"classes": []}}', OneSplit),
    ],
)
def test_a_file_that_is_no_split_is_refused(tmp_path, text, kind):
    if text is not None:
        (tmp_path / "split.json").write_text(text)
    with raised(kind):
        split_classes(pixel_set(2), file=str(tmp_path / "split.json"))


def test_recipes_of_before_are_split_by_name():
    for kind in ("Folder", "OwnData"):
        assert translate_recipe({"data": {"kind": kind}})["data"]["seed"] is None
        assert translate_recipe({"data": {"kind": kind, "seed": 3}})["data"]["seed"] == 3
    assert "seed" not in translate_recipe({"data": {"kind": "Benchmark"}})["data"]
