"""Folders as people have them: given splits, images in the wrong place, files of other kinds."""

import os
import warnings
from pathlib import Path

import pytest

from isosphere.data.decoding import decode
from isosphere.data.images import ImageSet
from isosphere.data.lists import nested
from isosphere.data.readable import readable_images
from isosphere.data.split import split_classes
from isosphere.errors import EmptyClasses, LeftOutWarning, NoImages, SharedClasses, UnreadableImage
from numbers_in import numbers
from raised import raised, warned


def fill(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"never decoded here")


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("Training", "Validation"), ("TRAIN", "val")])
def test_train_and_test_folders_are_a_split(tmp_path, train, test):
    fill(tmp_path, f"{train}/b/1.jpg", f"{train}/a/1.jpg", f"{train}/a/2.jpg", f"{test}/c/3.jpg", f"{test}/a/4.jpg")
    fill(tmp_path, "labels.txt", ".cache/x.jpg", "__MACOSX/train/._1.jpg")
    images = ImageSet.folder(tmp_path)
    found = [
        (images.paths[i].removeprefix(f"{tmp_path}/"), images.classes[images.labels[i]], images.splits[i])
        for i in range(len(images))
    ]
    assert images.classes == ["a", "b", "c"] and images.note == ""
    assert found == [
        (f"{train}/a/1.jpg", "a", "train"), (f"{train}/a/2.jpg", "a", "train"), (f"{train}/b/1.jpg", "b", "train"),
        (f"{test}/a/4.jpg", "a", "test"), (f"{test}/c/3.jpg", "c", "test"),
    ]  # fmt: skip
    with raised(SharedClasses, classes=["a"], option=("data.allow_shared", True)):
        split_classes(images)
    trained, tested = split_classes(images, allow_shared=True)
    assert trained.classes == ["a", "b"] and tested.classes == ["a", "c"] and len(trained) == 3 and len(tested) == 2


def test_other_folders_are_no_split(tmp_path):
    fill(tmp_path, "train/1.jpg", "test/2.jpg")  # classes of these names: locomotives, and tests
    assert ImageSet.folder(tmp_path).splits is None
    fill(tmp_path, "val/3.jpg")
    assert ImageSet.folder(tmp_path).splits is None
    fill(tmp_path / "three", "train/a/1.jpg", "more/a/2.jpg", "test/a/3.jpg")
    with raised(EmptyClasses, folder=tmp_path / "three", classes=["more", "test", "train"], total=3, deeper=3):
        ImageSet.folder(tmp_path / "three")


@pytest.mark.parametrize("name", ["Validation", "val", "valid", "dev"])
def test_validation_next_to_train_and_test_is_a_part_of_its_own(tmp_path, name):
    fill(tmp_path, "train/a/1.jpg", "train/a/2.jpg", "test/b/3.jpg", f"{name}/c/4.jpg", f"{name}/c/5.jpg")
    images = ImageSet.folder(tmp_path)
    assert images.splits == ["train"] * 2 + ["test"] + ["val"] * 2 and images.classes == ["a", "b", "c"]
    assert images.note == ""
    (tmp_path / "test").rename(tmp_path.parent / f"{tmp_path.name} test")
    images = ImageSet.folder(tmp_path)  # without a test it is one
    assert images.splits == ["train"] * 2 + ["test"] * 2 and images.classes == ["a", "c"]


def test_rows_of_validation_next_to_train_and_test_are_a_part_of_their_own(tmp_path):
    fill(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    rows = ["path,label,split", "1.jpg,a,train", "2.jpg,c,Val", "3.jpg,b,test"]
    (tmp_path / "all.csv").write_text("\n".join(rows))
    images = ImageSet.csv(tmp_path / "all.csv")
    assert images.splits == ["train", "val", "test"] and images.classes == ["a", "b", "c"] and images.note == ""
    (tmp_path / "some.csv").write_text("\n".join(rows[:3]))
    images = ImageSet.csv(tmp_path / "some.csv")
    assert images.splits == ["train", "test"] and images.classes == ["a", "c"] and images.note == ""


def test_runs_are_no_class(tmp_path):
    fill(tmp_path, "train/a/1.jpg", "test/b/2.jpg")
    (tmp_path / "runs" / "one").mkdir(parents=True)
    with raised(EmptyClasses, classes=["runs", "test", "train"], total=3, deeper=2):
        ImageSet.folder(tmp_path)
    (tmp_path / "runs" / "one" / "recipe.json").write_text("{}")
    assert ImageSet.folder(tmp_path).splits == ["train", "test"]


@pytest.mark.parametrize("place", ["run", "mine/run", "train/run", "runs/run"])
@pytest.mark.parametrize("files", [[".lock"], ["recipe.json", "run.json", "snapshots/step-0000000.npz"]], ids=str)
def test_run_folders_among_images_are_no_class(files, place, tmp_path):
    if place.startswith("runs"):
        files = [*files, "recipe.json"]
    fill(tmp_path, "train/a/1.jpg", "train/a/deep/2.jpg", "test/b/2.jpg", *(f"{place}/{name}" for name in files))
    with warned({LeftOutWarning: 0}):
        images = ImageSet.folder(tmp_path)
    assert images.classes == ["a", "b"] and images.splits == ["train", "test"]


def test_what_is_no_plain_file_is_left_out_by_name(tmp_path):
    fill(tmp_path, "a/1.jpg", "b/2.jpg", "b/more/3.jpg")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    os.mkfifo(tmp_path / "b" / "more" / "deep.png")
    (tmp_path / "b" / "null.png").symlink_to("/dev/null")
    (tmp_path / "b" / "linked.png").symlink_to("2.jpg")
    (tmp_path / "b" / "nothing.png").symlink_to("nowhere")  # which is an image that cannot be read
    with warned({LeftOutWarning: 0}) as caught:
        images = ImageSet.folder(tmp_path)
    found = [Path(path).name for path in images.paths]
    assert found == ["1.jpg", "2.jpg", "linked.png", "nothing.png"]
    assert all(name in str(caught[0].message) for name in ("pipe.png", "null.png"))
    with warned({LeftOutWarning: 0}) as caught:
        assert len(ImageSet.flat(tmp_path)) == 5
    assert all(name in str(caught[0].message) for name in ("pipe.png", "null.png", "deep.png"))


def test_a_pipe_in_a_list_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with raised(UnreadableImage, path=tmp_path / "pipe.png"):
        decode(tmp_path / "pipe.png")


def test_images_that_are_left_out_are_warned_of_once_and_noted(tmp_path):
    fill(tmp_path, "a/1.jpg", "a/more/2.jpg", "a/more/and/3.PNG", "b/4.jfif", "5.jpg", "b/6.HEIC", "b/7.avif", "8.heic")
    with pytest.warns(UserWarning) as caught:
        images = ImageSet.folder(tmp_path)
    left = "2 that end in .heic, 1 that end in .avif, 2 deeper than in a class folder"
    assert numbers(images.note) == ["6", "1", "2", "1", "2"] and left in images.note
    assert [str(one.message) for one in caught] == [f"{tmp_path}: {images.note}"]
    assert [path.rsplit("/", 1)[1] for path in images.paths] == ["1.jpg", "4.jfif"]
    assert images.of_classes([1]).note == images.note


def test_images_next_to_the_classes_of_a_split_are_noted(tmp_path):
    fill(tmp_path, "train/a/1.jpg", "train/2.jpg", "test/b/3.jpg", "test/b/deep/4.jpg", "5.jpg")
    with pytest.warns(UserWarning) as caught:
        images = ImageSet.folder(tmp_path)
    assert len(images) == 2 and len(caught) == 1
    assert numbers(images.note) == ["3", "2", "1"]


def test_what_is_no_image_needs_no_words(tmp_path):
    fill(tmp_path, "a/1.jpe", "a/Thumbs.db", "a/.hidden.jpg", "a/.thumbnails/1.jpg", "b/2.pbm", "b/box.xml", "list.csv")
    fill(tmp_path, "__MACOSX/a/._1.jpe", "a/__MACOSX/2.jpg", "a/@eaDir/1.jpe/SYNOPHOTO_THUMB_M.jpg")
    (tmp_path / "__MACOSX" / "void").mkdir()
    (tmp_path / "@eaDir").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = ImageSet.folder(tmp_path)
    assert images.classes == ["a", "b"] and len(images) == 2 and images.note == ""


def test_files_that_may_be_images_are_noted(tmp_path):
    fill(tmp_path, "a/1.jpg", "a/2.happy", "a/3.sad", "a/4", "b/5.jpg", "b/6.tga", "b/7.tga", "b/README", "b/8.mov")
    fill(tmp_path, "9")
    left = "2 without an ending, 1 that end in .happy, 1 that end in .sad, 2 that end in .tga"
    with pytest.warns(UserWarning):
        images = ImageSet.folder(tmp_path)
    assert images.note.startswith("6 ") and images.note.endswith(f": {left}") and len(images) == 2
    with pytest.warns(UserWarning):
        flat = ImageSet.flat(tmp_path / "a")
    assert len(flat) == 1 and numbers(flat.note) == ["3", "1", "1", "1"] and ".happy, " in flat.note
    fill(tmp_path, "readme/1.jpg", *(f"a/1.jpg~{number}" for number in range(20)))
    with pytest.warns(UserWarning):
        images = ImageSet.folder(tmp_path)
    assert images.classes == ["a", "b", "readme"] and images.note.startswith("26 images") and " 14 more" in images.note


@pytest.mark.parametrize("name", ["val", "Dev"])
def test_the_whole_is_all_parts_without_a_split(tmp_path, name):
    fill(tmp_path, "train/a/1.jpg", "test/b/2.jpg", f"{name}/c/3.jpg", f"{name}/a/4.jpg")
    images = ImageSet.folder(tmp_path, whole=True)
    assert len(images) == 4 and images.classes == ["a", "b", "c"] and images.splits is None and images.note == ""
    rows = ["path,label,split", "train/a/1.jpg,a,train", "test/b/2.jpg,b,test", f"{name}/c/3.jpg,c,{name}"]
    (tmp_path / "all.csv").write_text("\n".join([*rows, f"{name}/a/4.jpg,a,validation"]))
    images = ImageSet.csv(tmp_path / "all.csv", whole=True)
    assert len(images) == 4 and images.classes == ["a", "b", "c"] and images.splits is None and images.note == ""


def test_both_kinds_of_loss_are_in_the_note(tmp_path):
    from PIL import Image

    fill(tmp_path, "a/1.jpg", "b/deep/2.jpg")
    Image.new("RGB", (4, 4)).save(tmp_path / "b" / "3.png")
    with pytest.warns(UserWarning):
        kept = readable_images(ImageSet.folder(tmp_path), skip_unreadable=True)
    assert [numbers(note)[:2] for note in kept.note.split("; ")] == [["1", "1"], ["1", "2"]]


def test_files_of_other_endings_are_counted_where_there_is_no_image(tmp_path):
    """The Yale faces are GIFs that end in what they show."""
    fill(tmp_path, "yale/subject01.happy", "yale/subject01.sad", "yale/Readme.txt")
    with raised(NoImages, place=tmp_path / "yale", what="image", others=3):
        ImageSet.flat(tmp_path / "yale")
    with raised(EmptyClasses, classes=["yale"], total=1, deeper=0, others=3):
        ImageSet.folder(tmp_path)
    fill(tmp_path, "yale/1.jpg", "yale/2.heic")
    with pytest.warns(UserWarning):
        images = ImageSet.flat(tmp_path / "yale")
    assert len(images) == 1 and numbers(images.note) == ["3", "1", "1", "1"]
    assert all(ending in images.note for ending in (".happy", ".heic", ".sad"))


def test_images_in_folders_in_folders_are_one_class(tmp_path):
    fill(tmp_path, "2019/june/2.jpg", "2019/june/1.png", "2020/may/trip/3.jpg", "2020/4.heic", "0.jpg", ".cache/x.jpg")
    (tmp_path / "empty").mkdir()
    with pytest.warns(UserWarning):
        images = ImageSet.flat(tmp_path)
    assert numbers(images.note)[0] == "4" and images.note.endswith(": 1 that end in .heic")
    names = [path.removeprefix(f"{tmp_path}/") for path in images.paths]
    assert names == ["0.jpg", "2019/june/1.png", "2019/june/2.jpg", "2020/may/trip/3.jpg"]
    assert images.classes == [tmp_path.name]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("2019/june/1.jpg",), True),
        (("2019/1.jpg", "2020/may/2.jpg"), True),
        (("a/1.jpg", "b/2.jpg", "b/more/3.jpg"), False),  # class folders, which leave out what is deeper
        (("a/1.jpg", "b/notes.txt"), False),
        (("train/a/1.jpg", "test/a/2.jpg"), False),
        (("train/a/1.jpg", "val/a/2.jpg", "test/a/3.jpg"), False),  # or tests would be trained on
        (("1.jpg",), False),
    ],
)
def test_folders_in_folders_are_neither_classes_nor_splits(tmp_path, names, found):
    fill(tmp_path, *names)
    assert nested(tmp_path) == found
