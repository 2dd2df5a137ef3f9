import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.decoding import decode
from isosphere.data.images import ImageSet
from isosphere.data.readable import check_images, readable_images
from isosphere.data.text_lists import lines
from isosphere.errors import (
    BadArgument,
    BadList,
    EmptyClasses,
    NoImages,
    NotFound,
    NotText,
    Option,
    OtherCounts,
    UnreadableImage,
    UnreadableImages,
)
from raised import raised


def save(path, color=(10, 20, 30), size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


@pytest.fixture
def folder(tmp_path):
    """Four classes (b, a, d, c as written) with two images each, and things that are not images."""
    for number, name in enumerate("badc"):
        save(tmp_path / name / "two.png", (number, 0, 0))
        save(tmp_path / name / "one.JPG", (number, 0, 0))
        (tmp_path / name / "notes.txt").write_text("not an image")
        (tmp_path / name / ".hidden.png").write_bytes(b"not an image")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "readme.txt").write_text("not a class")
    return tmp_path


def truncate(path):
    """A photo-like JPEG with its second half cut off."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_folder_is_sorted_and_ignores_what_is_no_image(folder):
    images = ImageSet.folder(folder)
    assert images.classes == ["a", "b", "c", "d"]
    assert images.labels.dtype == torch.long and images.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [path.rsplit("/", 1)[1] for path in images.paths[:2]] == ["one.JPG", "two.png"]
    assert len(images) == 8 and images[1].shape == (3, 6, 8) and images[1].dtype == torch.uint8
    assert images[1][:, 0, 0].tolist() == [1, 0, 0]  # class a was written second


def test_folder_names_that_are_numbers_are_in_numeric_order(tmp_path):
    for name in ("10", "9", "100"):
        save(tmp_path / name / "x.png")
    assert ImageSet.folder(tmp_path).classes == ["9", "10", "100"]


def test_folder_errors_name_the_culprit(folder):
    (folder / "hollow").mkdir()
    (folder / "hollow" / "notes.txt").write_text("")
    (folder / "void").mkdir()
    with raised(EmptyClasses, folder=folder, classes=["hollow", "void"], total=6, others=1):
        ImageSet.folder(folder)
    with raised(EmptyClasses, classes=["void"], total=6, others=0):
        ImageSet.folder(folder, may_be_empty=lambda name: name == "hollow")
    found = ImageSet.folder(folder, may_be_empty=lambda name: name in ("hollow", "void"))
    assert found.classes == ["a", "b", "c", "d", "hollow", "void"] and torch.bincount(found.labels).tolist() == [2] * 4
    with raised(NoImages, place=folder / "hollow", what="class folder", others=1):
        ImageSet.folder(folder / "hollow")
    with raised(NotFound, path=folder / "nowhere"):
        ImageSet.folder(folder / "nowhere")


def test_lines_of_a_text_file(tmp_path):
    (tmp_path / "names.txt").write_bytes("\ufeffJosé\r\n\n  Ann Lee \n\t\nBob".encode())
    assert lines(tmp_path / "names.txt") == [(1, "José"), (3, "Ann Lee"), (5, "Bob")]
    (tmp_path / "names.txt").write_bytes("José\n".encode("latin-1"))
    with raised(NotText, path=tmp_path / "names.txt"):
        lines(tmp_path / "names.txt")
    with raised(NotFound, path=tmp_path / "nofile.txt"):
        lines(tmp_path / "nofile.txt")


def test_csv_reads_paths_relative_to_itself(folder):
    (folder / "list.csv").write_text("label,path\nhen,a/one.JPG\ncat,b/two.png\nhen,c/two.png\n")
    images = ImageSet.csv(folder / "list.csv")
    assert images.classes == ["cat", "hen"] and images.labels.tolist() == [1, 0, 1] and images.splits is None
    assert torch.equal(images[1], decode(folder / "b" / "two.png"))


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        ("", None, []),
        ("path,color\na/one.JPG,red\n", None, ["path", "color"]),
        ("filename,image,label\na/one.JPG,b/one.JPG,x\n", None, ["filename", "image", "label"]),
        ("path\na/one.JPG\n", None, ["path"]),
        ("path;label\na/one.JPG;x\n", None, ["path;label"]),
        ("path,label,split\na/one.JPG,x,val\nb/one.JPG,y,test\n", None, ["val", "test"]),
        ("path,label,split\na/one.JPG,x,val\nb/one.JPG,y,dev\nc/one.JPG,y,train\n", None, ["val", "dev", "train"]),
        ("path,label\na/one.JPG\n", 2, ["a/one.JPG", ""]),
        ("path,label\na/one.JPG,x,y\n", 2, ["y"]),
        ("path,label\na/one.JPG,x\n,y\n", 3, ["", "y"]),
        ("path,label,label\na/one.JPG,x,y\n", None, ["path", "label", "label"]),
        ("path,label\n\n\na/one.JPG,x\n\n,y\n", 6, ["", "y"]),
        ('path,label\n\n\n"a/one\n.JPG",x\n,y\n', 6, ["", "y"]),
        ("path,label,split\na/one.JPG,x,rest\n", 2, "rest"),
        ("path,label\na/one.JPG,x\na/two.png,x\n\na/one.JPG,x\n", 5, "a/one.JPG"),
        ("path,label\na/one.JPG,x\nb/../a/./one.JPG,y\n", 3, "b/../a/one.JPG"),
    ],
)
def test_csvs_that_say_what_cannot_be(folder, text, line, value):
    (folder / "list.csv").write_text(text)
    with raised(BadList, path=folder / "list.csv", line=line, value=value):
        ImageSet.csv(folder / "list.csv")


@pytest.mark.parametrize(
    ("text", "total", "absent", "windows"),
    [
        ("path,label\na/one.JPG,x\na/gone.png,x\nb/lost.png,y\n", 3, ("a/gone.png", "b/lost.png"), False),
        ("path,label\na\\one.JPG,x\nb\\one.JPG,y\n", 2, ("a\\one.JPG", "b\\one.JPG"), True),
        ("path,label\na/one.JPG,x\nb\\one.JPG,y\n", 2, ("b\\one.JPG",), False),
        ("path,label\na/gone.png,x\n", 1, ("a/gone.png",), False),
    ],
)
def test_files_that_a_csv_lists_and_that_are_absent(folder, text, total, absent, windows):
    (folder / "list.csv").write_text(text)
    counts = {"found": {"files": total - len(absent)}, "expected": {"files": total}}
    with raised(OtherCounts, absent=[f"{folder}/{name}" for name in absent], **counts) as caught:
        ImageSet.csv(folder / "list.csv")
    assert ("backslash" in caught.value.repair) == windows


def test_a_csv_without_a_row_is_refused(folder):
    (folder / "list.csv").write_text("path,label\n")
    with raised(NoImages, place=folder / "list.csv"):
        ImageSet.csv(folder / "list.csv")


def test_a_csv_may_have_no_labels_where_none_are_needed(folder):
    (folder / "list.csv").write_text("path\na/one.JPG\nb/two.png\n")
    images = ImageSet.csv(folder / "list.csv", labeled=False)
    assert images.classes == ["list"] and images.paths == [str(folder / "a/one.JPG"), str(folder / "b/two.png")]
    with raised(BadList, path=folder / "list.csv", value=["path"], line=None):
        ImageSet.csv(folder / "list.csv")
    (folder / "list.csv").write_text("path,split\na/one.JPG,train\nb/two.png,test\n")  # which would be trained on
    with raised(BadList, path=folder / "list.csv", value=["path", "split"], line=None):
        ImageSet.csv(folder / "list.csv", labeled=False)


def test_csv_may_have_spaces(folder):
    (folder / "list.csv").write_text("path, label ,split\n a/one.JPG,x y, test \na/two.png, x y , test\n")
    images = ImageSet.csv(folder / "list.csv")
    assert images.classes == ["x y"] and images.splits == ["test"] * 2 and len(images) == 2


def test_a_csv_that_cannot_be_parsed_is_named(folder):
    (folder / "endless.csv").write_text("path,label\n" + "x" * 200_000 + ",y\n")  # more than the parser's limit
    (folder / "latin.csv").write_bytes("path,label\na/one.JPG,Käfer\n".encode("latin-1"))
    for name in ("latin.csv", "endless.csv"):
        with raised(NotText, path=folder / name):
            ImageSet.csv(folder / name)
    (folder / "a" / "two.png").rename(folder / "two.npz")
    with raised(BadList, path=folder / "two.npz", value="no text"):
        ImageSet.csv(folder / "two.npz")


def test_a_csv_that_is_not_there_is_named(tmp_path):
    with raised(NotFound, path=tmp_path / "absent.csv"):
        ImageSet.csv(tmp_path / "absent.csv")


def test_an_image_in_place_of_a_csv_is_named(folder):
    with raised(BadList, path=folder / "a" / "one.JPG", value="one image"):
        ImageSet.csv(folder / "a" / "one.JPG")


def test_a_csv_may_have_capitals_other_columns_and_other_words(folder):
    """As pandas and other tools write them: an index without a name, an empty remark."""
    text = ",Filename,Class,remark,Split\n0,a/one.JPG,x,,Train\n1,b/one.JPG,y,blurred,val\n2,c/one.JPG,y,,VAL\n"
    (folder / "list.csv").write_text(text)
    images = ImageSet.csv(folder / "list.csv")
    assert images.classes == ["x", "y"] and images.splits == ["train", "test", "test"]
    assert images.paths == [str(folder / name / "one.JPG") for name in "abc"]
    (folder / "list.csv").write_text("path,file,LABEL,class\na/one.JPG,gone.png,x,y\n")  # the plain names win
    images = ImageSet.csv(folder / "list.csv")
    assert images.classes == ["x"] and images.paths == [str(folder / "a" / "one.JPG")]


def test_every_kind_of_file_becomes_rgb(tmp_path):
    red = Image.new("RGB", (5, 4), (255, 0, 0))
    deep = Image.fromarray(np.full((4, 5), 128 * 256 + 7, np.uint16))
    palette = red.convert("P")
    palette.info["transparency"] = bytes([0, 255])
    kinds = {
        "palette.png": (palette, (255, 0, 0)),
        "gray.png": (Image.new("L", (5, 4), 77), (77, 77, 77)),
        "alpha.png": (Image.new("RGBA", (5, 4), (9, 8, 7, 128)), (9, 8, 7)),
        "bit.png": (Image.new("1", (5, 4), 1), (255, 255, 255)),
        "deep.png": (deep, (128, 128, 128)),
        "deep.tif": (deep, (128, 128, 128)),
        "deep.pgm": (deep, (128, 128, 128)),
        "print.tif": (Image.new("CMYK", (5, 4), (0, 255, 255, 0)), (255, 0, 0)),
    }
    for name, (image, color) in kinds.items():
        image.save(tmp_path / name)
        pixels = decode(tmp_path / name)
        assert pixels.shape == (3, 4, 5), name
        assert (pixels == torch.tensor(color, dtype=torch.uint8)[:, None, None]).all(), name


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_what_is_white_in_32_bits_is_not_guessed(tmp_path, kind):
    Image.fromarray(np.full((4, 5), 1, kind)).save(tmp_path / "depth.tif")
    with raised(UnreadableImage, path=tmp_path / "depth.tif"):
        decode(tmp_path / "depth.tif")


def test_exif_orientation_is_applied(tmp_path):
    image = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6) * 10)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by a quarter clockwise
    image.save(tmp_path / "turned.png", exif=exif)
    expected = np.rot90(np.asarray(image), k=-1)
    assert np.array_equal(decode(tmp_path / "turned.png")[0].numpy(), expected)


def test_pixels_subset_and_classes():
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 1, 2, 2)
    images = ImageSet.from_pixels(pixels, torch.tensor([2, 0, 1, 2, 0, 1]), ["x", "y", "z"])
    assert images[3].shape == (1, 2, 2) and int(images[3][0, 0, 0]) == 3
    part = images.subset([3, 1, 0])
    assert part.classes == ["x", "z"] and part.labels.tolist() == [1, 0, 1]
    assert part.pixels[:, 0, 0, 0].tolist() == [3, 1, 0]
    of = images.of_classes([2, 1])
    assert of.classes == ["y", "z"] and of.labels.tolist() == [1, 0, 1, 0]
    assert of.pixels[:, 0, 0, 0].tolist() == [0, 2, 3, 5]


@pytest.mark.parametrize(
    ("pixels", "labels", "name"),
    [
        (torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]), "pixels"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), "pixels"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0.0, 1.0]), "labels"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 1]), "labels"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]), "labels"),
    ],
)
def test_pixels_that_do_not_fit_are_refused(pixels, labels, name):
    with raised(BadArgument, name=name):
        ImageSet.from_pixels(pixels, labels, ["x", "y"])


def test_unreadable_images_are_named(folder):
    truncate(folder / "a" / "one.JPG")
    (folder / "c" / "two.png").write_bytes(b"not an image at all")
    images = ImageSet.folder(folder)
    with raised(UnreadableImage, path=folder / "a" / "one.JPG") as caught:
        images[0]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.path == caught.value.path and str(copy) == str(caught.value)
    failures = check_images(images, workers=2)
    assert {index: error.path for index, error in failures.items()} == {0: images.paths[0], 5: images.paths[5]}
    with raised(UnreadableImages, total=8, remedies=(Option("data.skip_unreadable", True),)) as caught:
        readable_images(images)
    assert [failure.path for failure in caught.value.failures] == [images.paths[0], images.paths[5]]


def test_unreadable_images_are_skipped_only_by_leave(folder):
    truncate(folder / "a" / "one.JPG")
    truncate(folder / "a" / "two.png")
    images = ImageSet.folder(folder)
    with pytest.warns(UserWarning):
        kept = readable_images(images, skip_unreadable=True)
    assert kept.note == "2 of 8 images are unreadable, all of 1 classes among them" and images.note == ""
    assert kept.classes == ["b", "c", "d"] and kept.paths == images.paths[2:]
    assert kept.labels.tolist() == [0, 0, 1, 1, 2, 2]
    pixels = ImageSet.from_pixels(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.arange(2), ["x", "y"])
    assert readable_images(kept) is kept and check_images(pixels) == {}
    with raised(UnreadableImages, total=2, remedies=()):  # no leave helps
        readable_images(images.subset([0, 1]), skip_unreadable=True)
