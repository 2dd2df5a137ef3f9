"""Labels and groups from the names of files, roles from folders and columns."""

import warnings

import pytest

from isosphere.data.columns import Naming
from isosphere.data.images import ImageSet, open_images
from isosphere.data.split import split_classes
from isosphere.errors import BadArgument, BadList, LeftOutWarning, NoMatch, Option
from isosphere.recipes import schema
from raised import raised, warned

MARKET = Naming(r"^(\d+)_", r"c(\d)")


def fill(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return str(root)


def labels_of(images, root):
    """{path below the root: class name}."""
    names = [images.classes[label] for label in images.labels.tolist()]
    return dict(zip([path.removeprefix(f"{root}/") for path in images.paths], names, strict=True))


def test_labels_and_groups_are_in_the_names_of_files_however_deep(tmp_path):
    market = "0002_c1s1_000451_03.jpg"
    root = fill(tmp_path, market, "x/0002_c3s1.jpg", "x/y/0010_c1s1.png", "x/y/-1_c1s1.jpg", "x/a.txt")
    with warned({LeftOutWarning: 0}):
        images = open_images(root, naming=MARKET)
    assert labels_of(images, root) == {market: "0002", "x/0002_c3s1.jpg": "0002", "x/y/0010_c1s1.png": "0010"}
    assert "1 without a match" in images.note and "-1_c1s1.jpg" in images.note
    assert images.groups[0] == images.groups[2] != images.groups[1] and images.splits is images.is_query is None
    part = images.subset([2, 1])
    assert part.groups.tolist() == images.groups[[2, 1]].tolist() and part.classes == ["0002", "0010"]


def test_a_pattern_with_a_slash_is_searched_in_the_path(tmp_path):
    root = fill(tmp_path, "ann/front/1.jpg", "ann/side/2.jpg", "bob/side/3.jpg", "4.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = open_images(root, naming=Naming("^([a-z]+)/", "([a-z]+)/[^/]+$"))
    assert labels_of(images, root) == {"ann/front/1.jpg": "ann", "ann/side/2.jpg": "ann", "bob/side/3.jpg": "bob"}
    assert images.groups.tolist() == [0, 1, 1]


def test_a_file_without_a_group_shares_its_group_with_none(tmp_path):
    root = fill(tmp_path, "a/c1.jpg", "a/x.jpg", "a/y.jpg", "b/c1.jpg")
    groups = open_images(root, naming=Naming(group_regex=r"c(\d)")).groups.tolist()
    assert groups[0] == groups[3] and len(set(groups)) == 3


@pytest.mark.parametrize(
    ("naming", "option", "pattern", "example"),
    [
        (Naming(r"(\d+)_"), "data.label_regex", r"(\d+)_", "1.jpg"),
        (Naming(r"z/(\d+)"), "data.label_regex", r"z/(\d+)", "a/1.jpg"),
        (Naming(group_regex=r"c(\d)"), "data.group_regex", r"c(\d)", "1.jpg"),
    ],
)
def test_no_match_is_named_with_an_example(tmp_path, naming, option, pattern, example):
    root = fill(tmp_path, "a/1.jpg", "b/2.jpg")
    with raised(NoMatch, place=root, pattern=pattern, files=2, example=example, option=Option(option)):
        open_images(root, naming=naming)
    (tmp_path / "list.csv").write_text("path,label\na/1.jpg,a\n")
    with raised(NoMatch, pattern=pattern, files=1):
        open_images(str(tmp_path / "list.csv"), naming=naming)


def test_where_no_class_is_needed_all_files_are_taken(tmp_path):
    root = fill(tmp_path, "7_a.jpg", "more/b.jpg")
    images = open_images(root, flat=True, whole=True, naming=Naming(r"(\d+)_"))
    assert labels_of(images, root) == {"7_a.jpg": "7", "more/b.jpg": tmp_path.name} and images.note == ""
    assert open_images(root, flat=True, naming=Naming(r"(x+)_")).classes == [tmp_path.name]


def test_the_folders_of_market_1501_are_a_split_with_queries(tmp_path):
    names = ["bounding_box_train/0001_c1_1.jpg", "bounding_box_train/0001_c2_2.jpg", "query/0002_c1_3.jpg"]
    names += ["bounding_box_test/0002_c2_4.jpg", "bounding_box_test/-1_c2_5.jpg", "gt_bbox/0002_c1_6.jpg"]
    root = fill(tmp_path, *names)
    with warned({LeftOutWarning: 0}):
        images = open_images(root, naming=MARKET)
    assert labels_of(images, root) == {name: name.split("/")[1][:4] for name in names[:4]}
    train, test = split_classes(images)
    assert train.classes == ["0001"] and test.classes == ["0002"]
    found = dict(zip(labels_of(test, root), test.is_query.tolist(), strict=True))
    assert found == {"query/0002_c1_3.jpg": True, "bounding_box_test/0002_c2_4.jpg": False}
    every = open_images(root, flat=True, whole=True, naming=MARKET)
    assert len(every) == 6 and every.splits is None


def test_class_folders_may_be_in_query_and_gallery(tmp_path):
    root = fill(tmp_path, "train/a/1.jpg", "query/b/2.jpg", "gallery/b/3.jpg", "gallery/c/4.jpg", "val/d/5.jpg")
    images = ImageSet.folder(root)
    train, test = split_classes(images)
    assert train.classes == ["a"] and test.classes == ["b", "c"] and train.note == ""
    assert images.splits == ["train", "test", "test", "test", "val"]
    assert dict(zip(labels_of(test, root), test.is_query.tolist(), strict=True)) == {
        "query/b/2.jpg": True, "gallery/b/3.jpg": False, "gallery/c/4.jpg": False,
    }  # fmt: skip


ROWS = ["1.jpg,a,train", "2.jpg,b,query", "3.jpg,b,gallery", "4.jpg,c,gallery"]


@pytest.mark.parametrize(
    ("head", "extra"),
    [
        ("path,label,role", ["", "", "", ""]),
        ("path,label,split", ["", "", "", ""]),
        ("path,label,role,split", [",train", ",test", ",test", ",test"]),
        ("path,label,role,group", [",1", ",1", ",", ","]),
        ("file,who,what,other,camera", [",x,1", ",x,1", ",x,", ",x,"]),
    ],
)
def test_roles_groups_and_names_of_columns(tmp_path, head, extra):
    fill(tmp_path, *(f"{number}.jpg" for number in range(1, 5)))
    (tmp_path / "list.csv").write_text("\n".join([head, *map("".join, zip(ROWS, extra, strict=True))]))
    chosen = ("path=file", "label=Who", "role=what", "group=camera") if "who" in head else ()
    images = open_images(str(tmp_path / "list.csv"), naming=Naming(columns=chosen))
    train, test = split_classes(images)
    assert train.classes == ["a"] and test.classes == ["b", "c"] and test.is_query.tolist() == [True, False, False]
    if "group" in head or chosen:
        assert images.groups[0] == images.groups[1] and len(set(images.groups.tolist())) == 3
    else:
        assert images.groups is None


@pytest.mark.parametrize(
    ("text", "chosen", "line", "value"),
    [
        ("path,label,role\n1.jpg,a,probe\n", (), 2, "probe"),
        ("path,label,split,role\n1.jpg,a,train,query\n2.jpg,b,test,gallery\n", (), 2, "query"),
        ("path,label\n1.jpg,a\n", ("label=who",), None, ["path", "label"]),
        ("path,label,role,Role\n1.jpg,a,query,query\n", (), None, ["path", "label", "role", "Role"]),
    ],
)
def test_columns_that_cannot_be_are_refused(tmp_path, text, chosen, line, value):
    fill(tmp_path, "1.jpg", "2.jpg")
    (tmp_path / "list.csv").write_text(text)
    with raised(BadList, line=line, value=value):
        open_images(str(tmp_path / "list.csv"), naming=Naming(columns=chosen))


def test_labels_of_a_list_may_be_in_its_paths(tmp_path):
    fill(tmp_path, "7_a.jpg", "8_b.jpg", "x.jpg")
    (tmp_path / "list.csv").write_text("path,split\n7_a.jpg,train\nx.jpg,train\n8_b.jpg,test\n")
    with warned({LeftOutWarning: 0}):
        images = open_images(str(tmp_path / "list.csv"), naming=Naming(r"(\d)_"))
    assert images.classes == ["7", "8"] and images.splits == ["train", "test"] and "x.jpg" in images.note


@pytest.mark.parametrize(
    "fields",
    [
        {"label_regex": "(x"},
        {"label_regex": r"\d+"},
        {"group_regex": "c"},
        {"columns": ("label",)},
        {"columns": ("name=x",)},
        {"columns": ("label=",)},
        {"columns": ("label=a", "label=b")},
    ],
)
def test_patterns_and_columns_that_cannot_be_are_refused(fields):
    with raised(BadArgument, name=next(iter(fields))):
        schema.Folder(**fields)
