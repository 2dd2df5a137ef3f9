"""Identities and verification pairs on miniature copies of each layout."""

import io
import pickle
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.alignment import framed
from isosphere.data.faces import FlipView, identities
from isosphere.data.feed import loader
from isosphere.data.pairs import SETS, Pairs, read_pairs
from isosphere.data.transforms import uniforms
from isosphere.errors import (
    BadArgument,
    BadList,
    DamagedFile,
    EmptyClasses,
    NoDataSet,
    NotFound,
    NotText,
    Option,
    OtherCounts,
    TooFewClasses,
    UnknownName,
)
from isosphere.samplers import ShuffledBatches
from raised import raised

ALLOW = (Option("data.allow_missing", True),)


def image(path: Path, number: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (number % 256, number // 256, 20)).save(path)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


PEOPLE = {"Ann": 4, "Bob_Lee": 3, "Cruz_Díaz": 2, "Dan_O'Hara": 1}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name, count in PEOPLE.items():
        for index in range(1, count + 1):
            image(tmp_path / "people" / name / f"{name}_{index:04d}.png", index)
    return tmp_path / "people"


def test_people_of_a_folder(folders: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = identities(folders)
    assert found.classes == list(PEOPLE) and torch.bincount(found.labels).tolist() == [4, 3, 2, 1]
    assert identities(folders, minimum=3).classes == ["Ann", "Bob_Lee"]


def test_names_are_left_out_whatever_their_punctuation(folders: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = identities(folders, ["bob lee", "Dan OHara", "Cruz Diaz"])
    assert found.classes == ["Ann"] and found.labels.tolist() == [0] * 4
    assert identities(folders, iter(["Ann"]), minimum=2).classes == ["Bob_Lee", "Cruz_Díaz"]
    with pytest.warns(UserWarning) as warned:
        found = identities(folders, ["An", "Eve", "Bob Lee"])
    assert len(warned) == 1 and str(warned[0].message).endswith("people: An, Eve")
    assert found.classes == ["Ann", "Cruz_Díaz", "Dan_O'Hara"]
    with raised(TooFewClasses, use="train", found=0):
        identities(folders, ["Ann", "Bob Lee", "Cruz Diaz"], minimum=2)


def test_people_without_images_are_counted_but_for_those_left_out(folders: Path) -> None:
    for name in ("Eve_Void", "Zoe", "Adam"):
        (folders / name).mkdir()
    with raised(EmptyClasses, folder=folders, classes=["Adam", "Zoe"], total=7):
        identities(folders, ["Eve Void", "Ann"])
    assert identities(folders, ["Eve Void", "Zoe", "Adam", "Ann"]).classes == list(PEOPLE)[1:]


def test_people_of_a_record_pair(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (7, 112, 112, 3), dtype=np.uint8)
    labels = [5, 5, 5, 8, 8, 11, 11]
    out, index = bytearray(), ""
    for key, (label, encoded) in enumerate(zip(labels, map(png, pixels), strict=True)):
        data = struct.pack("<IfQQ", 0, label, key, 0) + encoded
        index += f"{key}\t{len(out)}\n"
        out += struct.pack("<II", 0xCED7230A, len(data)) + data + b"\0" * (-len(data) % 4)
    (tmp_path / "train.rec").write_bytes(out)
    (tmp_path / "train.idx").write_text(index)
    for source in (tmp_path, tmp_path / "train.rec"):
        found = identities(source, ["8"], minimum=2)
        assert found.classes == ["5", "11"] and found.labels.tolist() == [0, 0, 0, 1, 1]
        assert torch.equal(found[3], torch.from_numpy(pixels[5]).permute(2, 0, 1))
    faces = framed(found, workers=0)
    assert torch.equal(faces.pixels, torch.from_numpy(pixels[[0, 1, 2, 5, 6]]).permute(0, 3, 1, 2))


def test_the_training_view_mirrors_by_its_numbers() -> None:
    images = torch.randint(0, 256, (40, 3, 4, 5), dtype=torch.uint8)
    numbers = uniforms(3, 1, torch.arange(40), FlipView.draws)
    seen = FlipView()(images, numbers)
    mirrored = 0
    for before, after, number in zip(images, seen, numbers, strict=True):
        flipped = number.item() < 0.5
        mirrored += flipped
        assert torch.equal(after, before.flip(-1) if flipped else before)
        assert torch.equal(FlipView()(before, number), after)
    assert 10 < mirrored < 30


def test_the_loader_feeds_faces_in_memory(folders: Path) -> None:
    faces = framed(identities(folders), workers=0)
    batches = ShuffledBatches(len(faces), 5, seed=0)
    for batch in loader(faces, batches, FlipView(), range(2), seed=4):
        assert batch.images.shape == (5, 3, 112, 112) and torch.equal(batch.labels, faces.labels[batch.indices])


def sized(monkeypatch: pytest.MonkeyPatch, name: str, pairs: int) -> None:
    monkeypatch.setitem(SETS, name, SETS[name]._replace(pairs=pairs))


LFW = """2\t2
Ann\t1\t4
Bob_Lee\t3\t2
Ann\t2\tBob_Lee\t1
Ann\t1\tDan_O'Hara\t1
Ann\t1\t3
Cruz_Díaz\t1\t2
Cruz_Díaz\t2\tAnn\t4
Bob_Lee\t3\tAnn\t4
"""


def transcribed(text: str, folder: Path, per_kind: int, suffix: str) -> list[tuple[str, str, bool, int]]:
    """README of LFW: `name n1 n2` is a matched pair, `name1 n1 name2 n2` a mismatched one; files are name_%04d."""
    found = []
    for number, line in enumerate(text.strip().split("\n")[1:]):
        part = line.split("\t")
        names = (part[0], part[0]) if len(part) == 3 else (part[0], part[2])
        numbers = (part[1], part[2]) if len(part) == 3 else (part[1], part[3])
        files = [str(folder / n / (n + "_" + i.zfill(4) + suffix)) for n, i in zip(names, numbers, strict=True)]
        found.append((*files, names[0] == names[1], number // (2 * per_kind)))
    return found


def rows(pairs: Pairs) -> list[tuple[str, str, bool, int]]:
    paths = pairs.images.paths
    columns = (pairs.left.tolist(), pairs.right.tolist(), pairs.same.tolist(), pairs.fold.tolist())
    return [(paths[left], paths[right], same, fold) for left, right, same, fold in zip(*columns, strict=True)]


@pytest.mark.parametrize("inner", ["", "lfw", "lfw_funneled"])
def test_lfw_against_a_direct_transcription(folders: Path, tmp_path: Path, monkeypatch, inner: str) -> None:
    sized(monkeypatch, "lfw", 8)
    root = folders.parent / "faces"
    (root / inner).parent.mkdir(parents=True, exist_ok=True)
    folders.rename(root / inner)
    (root / "pairs.txt").write_text(LFW)
    pairs = read_pairs("lfw", root)
    assert len(pairs) == 8 and pairs.name == "lfw" and pairs.note == ""
    assert rows(pairs) == transcribed(LFW, root / inner, 2, ".png")
    assert len(set(pairs.images.paths)) == len(pairs.images) == 10
    labels = pairs.images.labels
    assert torch.equal(labels[pairs.left] == labels[pairs.right], pairs.same)
    assert pairs.left.dtype == pairs.fold.dtype == torch.long and pairs.same.dtype == torch.bool


def test_lfw_view_1_has_one_fold(folders: Path, monkeypatch) -> None:
    sized(monkeypatch, "lfw_dev", 4)
    text = "2\n" + "".join(LFW.splitlines(keepends=True)[1:5])
    (folders / "pairsDevTest.txt").write_text(text)
    pairs = read_pairs("lfw_dev", folders)
    assert rows(pairs) == transcribed(text, folders, 2, ".png") and pairs.fold.tolist() == [0] * 4


@pytest.mark.parametrize(
    "old, new, kind, fields",
    [
        ("2\t2\n", "2\t3\n", OtherCounts, {"found": {"pairs": 8}, "expected": {"pairs": 12}}),
        ("2\t2\n", "", BadList, {"line": 1, "value": "Ann\t1\t4"}),
        ("Ann\t1\t4", "Ann\t1", BadList, {"line": 2, "value": "Ann\t1"}),
        ("Ann\t1\t4", "Ann\t1\tBob_Lee\t1", BadList, {"line": 2, "value": "Ann\t1\tBob_Lee\t1"}),
        ("Ann\t2\tBob_Lee\t1", "Ann\t2\t3", BadList, {"line": 4, "value": "Ann\t2\t3"}),
        ("Ann\t2\tBob_Lee\t1", "4\t2", BadList, {"line": 4, "value": "4\t2"}),
        (LFW, "\n", DamagedFile, {}),
    ],
)
def test_a_wrong_list_is_named(folders: Path, monkeypatch, old: str, new: str, kind: type, fields: dict) -> None:
    sized(monkeypatch, "lfw", 8)
    (folders / "pairs.txt").write_text(LFW.replace(old, new, 1))
    with raised(kind, **({} if kind is OtherCounts else {"path": folders / "pairs.txt"}), **fields):
        read_pairs("lfw", folders)


def test_a_list_is_read_whatever_wrote_it(folders: Path, monkeypatch) -> None:
    sized(monkeypatch, "lfw", 8)
    (folders / "pairs.txt").write_bytes(b"\xef\xbb\xbf" + LFW.replace("\n", "\r\n").encode())
    assert rows(read_pairs("lfw", folders)) == transcribed(LFW, folders, 2, ".png")
    (folders / "pairs.txt").write_bytes(LFW.encode("latin-1"))
    with raised(NotText, path=folders / "pairs.txt"):
        read_pairs("lfw", folders)


def test_a_missing_image_is_an_error_or_recorded(folders: Path, monkeypatch) -> None:
    sized(monkeypatch, "lfw", 8)
    (folders / "pairs.txt").write_text(LFW)
    (folders / "Ann" / "Ann_0004.png").unlink()
    absent, counts = ("Ann/Ann_0004.png",), {"found": {"pairs": 5}, "expected": {"pairs": 8}}
    with raised(OtherCounts, title="LFW", absent=absent, remedies=ALLOW, **counts):
        read_pairs("lfw", folders)
    pairs = read_pairs("lfw", folders, allow_missing=True)
    assert pairs.note == "LFW has 5 pairs, not 8; 1 images are absent: Ann/Ann_0004.png"
    assert rows(pairs) == [row for row in transcribed(LFW, folders, 2, ".png") if "Ann_0004" not in row[0] + row[1]]
    sized(monkeypatch, "lfw", 6_000)
    with raised(OtherCounts, found={"pairs": 5}, expected={"pairs": 6_000}):
        read_pairs("lfw", folders)
    for file in folders.glob("*/*.png"):
        file.unlink()
    with raised(OtherCounts, found={"pairs": 0}, expected={"pairs": 6_000}, remedies=()):  # no leave helps
        read_pairs("lfw", folders, allow_missing=True)


@pytest.fixture
def cfp(tmp_path: Path, monkeypatch) -> Path:
    """Three people with 4 frontal and 2 profile images; each fold one same and one different pair."""
    for name in ("cfp_fp", "cfp_ff"):
        sized(monkeypatch, name, 20)
    protocol, lists = tmp_path / "Protocol", {"F": [], "P": []}
    for person in (1, 2, 3):
        for kind, folder, count in (("F", "frontal", 4), ("P", "profile", 2)):
            for index in range(1, count + 1):
                path = f"Data/Images/{person:03d}/{folder}/{index:02d}.jpg"
                image(tmp_path / path)
                lists[kind].append(f"{len(lists[kind]) + 1} ../{path}\n")
    for fold in range(1, 11):
        for kinds, same, diff in (("FF", "1,2", "3,9"), ("FP", "6,4", f"{fold},{1 if fold > 4 else 5}")):
            folder = protocol / "Split" / kinds / f"{fold:02d}"
            folder.mkdir(parents=True)
            (folder / "same.txt").write_text(same)
            (folder / "diff.txt").write_text(diff + "\n")
    for kind, lines in lists.items():
        (protocol / f"Pair_list_{kind}.txt").write_text("".join(lines))
    return tmp_path


def test_cfp_by_its_protocol(cfp: Path) -> None:
    frontal, profile = read_pairs("cfp_ff", cfp), read_pairs("cfp_fp", cfp)
    assert frontal.images.paths == profile.images.paths and len(frontal.images) == 18
    assert frontal.images.classes == ["001", "002", "003"]
    assert torch.bincount(frontal.images.labels).tolist() == [6, 6, 6]
    root = cfp / "Data" / "Images"
    for fold in range(10):
        same, different = rows(frontal)[2 * fold : 2 * fold + 2]
        assert same == (str(root / "001/frontal/01.jpg"), str(root / "001/frontal/02.jpg"), True, fold)
        assert different == (str(root / "001/frontal/03.jpg"), str(root / "003/frontal/01.jpg"), False, fold)
        same, different = rows(profile)[2 * fold : 2 * fold + 2]
        assert same == (str(root / "002/frontal/02.jpg"), str(root / "002/profile/02.jpg"), True, fold)
        left = root / f"{fold // 4 + 1:03d}/frontal/{fold % 4 + 1:02d}.jpg"
        right = root / ("001/profile/01.jpg" if fold + 1 > 4 else "003/profile/01.jpg")
        assert different == (str(left), str(right), False, fold)
    for pairs in (frontal, profile):
        labels = pairs.images.labels
        assert torch.equal(labels[pairs.left] == labels[pairs.right], pairs.same)


def test_cfp_that_is_incomplete(cfp: Path) -> None:
    (cfp / "Data/Images/002/profile/02.jpg").unlink()
    assert read_pairs("cfp_ff", cfp).note == ""  # no pair of this protocol needs it
    with raised(OtherCounts, found={"pairs": 10}, absent=("Data/Images/002/profile/02.jpg",)):
        read_pairs("cfp_fp", cfp)
    assert len(read_pairs("cfp_fp", cfp, allow_missing=True)) == 10
    split = cfp / "Protocol/Split/FP/07/diff.txt"
    split.write_text("1,99\n")
    with raised(BadList, path=split, line=1, value="1,99"):
        read_pairs("cfp_fp", cfp)
    split.write_text("1;2\n")
    with raised(BadList, path=split, line=1, value="1;2"):
        read_pairs("cfp_fp", cfp)
    split.unlink()
    with raised(NotFound, path=split):
        read_pairs("cfp_fp", cfp)


@pytest.mark.parametrize("inner", ["", "agedb30_align_112"])
def test_agedb_by_a_list(tmp_path: Path, monkeypatch, inner: str) -> None:
    sized(monkeypatch, "agedb_30", 23)
    lines = []
    for index in range(23):
        for side in "ab":
            image(tmp_path / inner / f"{index % 5}" / f"{index}{side}.jpg")
        lines.append(f"{index % 5}/{index}a.jpg {index % 5}/{index}b.jpg {('1', '0', '-1')[index % 3]}\n")
    (tmp_path / "agedb_30_pair.txt").write_text("".join(lines))
    pairs = read_pairs("agedb_30", tmp_path)
    assert pairs.same.tolist() == [index % 3 == 0 for index in range(23)]
    assert pairs.fold.tolist() == [fold for fold in range(10) for _ in range(3 if fold < 3 else 2)]
    assert rows(pairs)[7][:2] == tuple(str(tmp_path / inner / "2" / f"7{side}.jpg") for side in "ab")


def test_packs(tmp_path: Path, monkeypatch) -> None:
    sized(monkeypatch, "agedb_30", 20)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
    same = [index % 3 == 0 for index in range(20)]
    (tmp_path / "agedb_30.bin").write_bytes(pickle.dumps((list(map(png, pixels)), same), protocol=2))
    for root in (tmp_path, tmp_path / "agedb_30.bin"):
        pairs = read_pairs("agedb_30", root)
        assert pairs.name == "agedb_30" and pairs.same.tolist() == same
        assert pairs.fold.tolist() == [index // 2 for index in range(20)]
        for index in range(20):
            for side, place in ((pairs.left, 2 * index), (pairs.right, 2 * index + 1)):
                assert torch.equal(pairs.images[int(side[index])], torch.from_numpy(pixels[place]).permute(2, 0, 1))
    sized(monkeypatch, "agedb_30", 6_000)
    with raised(OtherCounts, found={"pairs": 20}, expected={"pairs": 6_000}, absent=(), remedies=ALLOW):
        read_pairs("agedb_30", tmp_path)
    pairs = read_pairs("agedb_30", tmp_path, allow_missing=True)
    assert pairs.note == "AgeDB-30 has 20 pairs, not 6,000" and pairs.same.tolist() == same


@pytest.mark.parametrize("ones", [40, 9])
def test_a_sorted_list_has_both_kinds_in_every_fold(tmp_path: Path, ones: int) -> None:
    for name in ("a", "b"):
        image(tmp_path / f"{name}.png")
    lines = [f"a.png b.png {kind}\n" for kind in [1] * ones + [0] * 60]
    (tmp_path / "mine_pair.txt").write_text("".join(lines))
    pairs = read_pairs("mine", tmp_path)
    if ones == 9:  # cannot be in ten folds
        assert pairs.fold.tolist() == sorted(pairs.fold.tolist())
    else:
        assert pairs.fold.tolist() == [place % 10 for place in [*range(40), *range(60)]]
    assert pairs.same.tolist() == [True] * ones + [False] * 60


def test_pairs_of_your_own_have_any_number(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (14, 12, 12, 3), dtype=np.uint8)
    same = [index % 2 == 0 for index in range(7)]
    for name in ("lfw.bin", "calfw.bin"):
        (tmp_path / name).write_bytes(pickle.dumps((list(map(png, pixels)), same)))
    pairs = read_pairs("calfw", tmp_path)
    assert (pairs.name, pairs.note, pairs.same.tolist()) == ("calfw", "", same)
    assert torch.equal(pairs.images.pixels, torch.from_numpy(pixels).permute(0, 3, 1, 2))
    with raised(OtherCounts, title="LFW", found={"pairs": 7}):
        read_pairs("lfw", tmp_path)

    lines = [f"{person}/a.png {person}/b.png 1\n{person}/a.png {(person + 1) % 6}/b.png 0\n" for person in range(6)]
    for folder in (tmp_path, tmp_path / "mine"):  # in the root or a folder of its own
        for person in range(6):
            image(folder / f"{person}" / "a.png", person)
            image(folder / f"{person}" / "b.png", person)
        (folder / "mine_pair.txt").write_text("".join(lines))
        pairs = read_pairs("mine", tmp_path)
        assert (pairs.name, pairs.note, pairs.home) == ("mine", "", folder)
        assert pairs.same.tolist() == [True, False] * 6 and len(pairs.images) == 12
        assert rows(pairs)[1][:2] == (str(folder / "0" / "a.png"), str(folder / "1" / "b.png"))
        (folder / "5" / "b.png").unlink()
        with raised(OtherCounts, found={"pairs": 10}, expected={"pairs": 12}, absent=("5/b.png",)):
            read_pairs("mine", tmp_path)
        note = read_pairs("mine", tmp_path, allow_missing=True).note
        assert note == "mine has 10 pairs, not 12; 1 images are absent: 5/b.png"
        (folder / "mine_pair.txt").unlink()


def test_a_list_may_name_files_anywhere(tmp_path: Path) -> None:
    for person in range(3):
        for name in "ab":
            image(tmp_path / "people" / f"{person}" / f"{name}.png", person)
    (tmp_path / "own").mkdir()
    people, listed = tmp_path / "people", tmp_path / "own" / "mine_pair.txt"
    lines = [f"{people}/{n}/a.png {people}/{m}/b.png {int(n == m)}" for n in range(3) for m in range(3)]
    listed.write_text("\n".join(lines))
    found = read_pairs("mine", tmp_path / "own")
    assert found.note == "" and rows(found)[1][:2] == (f"{people}/0/a.png", f"{people}/1/b.png")
    (people / "2" / "b.png").unlink()
    with raised(OtherCounts, found={"pairs": 6}, expected={"pairs": 9}, absent=(".../2/b.png",), remedies=ALLOW):
        read_pairs("mine", tmp_path / "own")
    found = read_pairs("mine", tmp_path / "own", allow_missing=True)
    assert found.note.endswith(": .../2/b.png") and len(found) == 6 and len(found.images) == 5


@pytest.mark.parametrize("again", ["a.png", "./a.png", "../own/a.png", "{root}/a.png"])
def test_an_image_is_not_paired_with_itself(tmp_path: Path, again: str) -> None:
    for name in "abc":
        image(tmp_path / "own" / f"{name}.png")
    again = again.format(root=tmp_path / "own")
    lines = ["", "a.png b.png 1", "", f"a.png {again} 1", "c.png c.png 0", "b.png c.png 0"]
    (tmp_path / "own" / "mine_pair.txt").write_text("\n".join(lines))
    for allow_missing in (False, True):
        with raised(BadList, path=tmp_path / "own" / "mine_pair.txt", line=4, value=f"a.png {again} 1"):
            read_pairs("mine", tmp_path / "own", allow_missing)


def test_nor_do_the_lists_of_benchmarks(folders: Path, cfp: Path) -> None:
    (folders / "pairs.txt").write_text(LFW.replace("Bob_Lee\t3\t2", "Bob_Lee\t3\t3"))
    with raised(BadList, path=folders / "pairs.txt", line=3, value="Bob_Lee\t3\t3"):
        read_pairs("lfw", folders, allow_missing=True)
    (cfp / "Protocol/Split/FF/07/same.txt").write_text("5,6\n5,5\n")
    with raised(BadList, path=cfp / "Protocol/Split/FF/07/same.txt", line=2, value="5,5"):
        read_pairs("cfp_ff", cfp)


@pytest.mark.parametrize("between", ["\t", ",", " , ", " \t "])
def test_names_in_a_list_may_have_spaces(tmp_path: Path, between: str) -> None:
    names = ["Ann Lee/1 a.png", "Ann Lee/2.png", "Bo/3.png", "plain.png"]
    for number, name in enumerate(names):
        image(tmp_path / name, number)
    pairs = [(names[0], names[1], "1"), (names[1], names[2], "-1"), (names[2], names[0], "0")]
    lines = [between.join(pair) for pair in pairs] + ["Bo/3.png plain.png 0"]
    (tmp_path / "mine_pair.txt").write_text("\n".join(lines))
    found = read_pairs("mine", tmp_path)
    assert found.same.tolist() == [True, False, False, False] and found.note == ""
    wanted = [*[pair[:2] for pair in pairs], ("Bo/3.png", "plain.png")]
    assert [row[:2] for row in rows(found)] == [tuple(str(tmp_path / name) for name in pair) for pair in wanted]
    (tmp_path / "mine_pair.txt").write_text("Ann Lee/1 a.png Ann Lee/2.png 1\n")
    with raised(BadList, line=1, value="Ann Lee/1 a.png Ann Lee/2.png 1"):
        read_pairs("mine", tmp_path)


def test_people_in_train_and_test_folders_are_not_all_trained_on(folders: Path) -> None:
    (folders.parent / "both").mkdir()
    folders.rename(folders.parent / "both" / "train")
    image(folders.parent / "both" / "test" / "Eve" / "1.png", 0)
    with raised(BadArgument, name="source", value=str(folders.parent / "both")):
        identities(folders.parent / "both")


def test_what_is_not_there_is_reported(tmp_path: Path) -> None:
    with raised(UnknownName, name="cfp", known=[*SETS, tmp_path / "cfp.bin", tmp_path / "cfp_pair.txt"]):
        read_pairs("cfp", tmp_path)
    with raised(NoDataSet, folder=tmp_path, title="LFW", expected="one of pairs.txt, lfw.bin, lfw_pair.txt"):
        read_pairs("lfw", tmp_path)
    with raised(NoDataSet, title="AgeDB-30", expected="one of agedb_30.bin, agedb_30_pair.txt"):
        read_pairs("agedb_30", tmp_path)


def test_the_sizes_are_those_of_the_benchmarks() -> None:
    sizes = {"lfw": 6_000, "lfw_dev": 1_000, "cfp_fp": 7_000, "cfp_ff": 7_000, "agedb_30": 6_000}
    assert {name: source.pairs for name, source in SETS.items()} == sizes
