"""What a face run says and does about photographs that cannot be read, and probes that are distractors too."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.errors import (
    Option,
    ProbesAmongDistractors,
    SinglePhotographs,
    TooFewClasses,
    UnreadableImages,
    UnreadableImagesWarning,
)
from isosphere.paper import find
from isosphere.recipes import schema
from isosphere.train.build import build_task
from raised import raised, warned

CPU = torch.device("cpu")
IGNORED = "ignore::isosphere.errors.UnreadableImagesWarning"


def photograph(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)


def spoil(*paths: Path) -> None:
    for path in paths:
        path.write_bytes(b"no image")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """people/ of A, B, C, D with 3 each, pairs/ of four others, probes/ of P, Q with 2 and R with 1, and more/ of 4."""
    for number, (place, name, count) in enumerate(
        [("people", name, 3) for name in "ABCD"] + [("probes", "P", 2), ("probes", "Q", 2), ("probes", "R", 1)]
    ):
        for one in range(count):
            photograph(tmp_path / place / name / f"{one}.png", 10 * number + one)
    for number in range(4):
        photograph(tmp_path / "more" / f"{number}.png", 200 + number)
        for one in range(2):
            photograph(tmp_path / "pairs" / f"T{number}" / f"{one}.png", 100 + 10 * number + one)
    lines = [f"T{n}/0.png T{m % 4}/1.png {int(n == m)}" for n in range(4) for m in (n, n + 1)]
    (tmp_path / "pairs" / "mine_pair.txt").write_text("\n".join(lines))
    return tmp_path


def data_of(root: Path, **changes: object) -> schema.Faces:
    data = find("lfw-cosface-sec", {}).data
    places = {"root": str(root / "people"), "pairs_root": str(root / "pairs"), "pairs": ("mine",)}
    return replace(data, **places | {"min_images": 2, "skip_unreadable": True} | changes)


@pytest.mark.filterwarnings(IGNORED)
def test_people_who_lost_too_many_photographs_go_as_well(root: Path) -> None:
    """A keeps 2 of 3, B 1, C none, D all."""
    people = root / "people"
    spoil(people / "A" / "1.png", people / "B" / "0.png", people / "B" / "2.png", *(people / "C").iterdir())
    with pytest.warns(UnreadableImagesWarning) as caught:
        task = build_task(data_of(root), CPU)
    assert ["B"] in [one.message.names for one in caught]
    assert task.images.classes == ["A", "D"] and task.images.labels.tolist() == [0, 0, 1, 1, 1]
    assert [Path(path).parent.name for path in task.images.paths] == list("AADDD")
    lost = "6 of 12 images are unreadable, all of 1 classes among them"
    few = "1 people have fewer than 2 readable images and are left out, 1 images with them"
    assert f"people: {lost}; {few}" in "; ".join(task.notes)
    alone = build_task(data_of(root, min_images=1), CPU)
    assert alone.images.classes == ["A", "B", "D"] and "fewer than" not in alone.notes


@pytest.mark.filterwarnings(IGNORED)
def test_two_people_must_be_left_to_train_on(root: Path) -> None:
    for name in "BCD":
        spoil(*(root / "people" / name).iterdir())
    for minimum in (1, 2):
        with raised(TooFewClasses, found=1, needed=2) as caught:
            build_task(data_of(root, min_images=minimum), CPU)
        assert "9 of 12 images" in caught.value.place
    spoil(root / "people" / "A" / "0.png", root / "people" / "A" / "1.png")
    with raised(TooFewClasses, found=0, needed=2):
        build_task(data_of(root), CPU)


def test_records_that_cannot_be_read_are_skipped_in_the_same_way(root: Path) -> None:
    """With their pack and number in the message, and how many in the note."""
    files = sorted((root / "people").glob("*/*.png"))
    out, index = bytearray(), ""
    for key, file in enumerate(files):
        image = b"no image" if key in (3, 4) else file.read_bytes()
        record = bytes(4) + np.array([key // 3], "<f4").tobytes() + bytes(16) + image
        index += f"{key}\t{len(out)}\n"
        out += np.array([0xCED7230A, len(record)], "<u4").tobytes() + record + bytes(-len(record) % 4)
    (root / "train.rec").write_bytes(out)
    (root / "train.idx").write_text(index)
    data = replace(data_of(root), root=str(root / "train.rec"))
    with raised(UnreadableImages, total=12, remedies=(Option("data.skip_unreadable", True),)) as caught:
        build_task(replace(data, skip_unreadable=False), CPU)
    records = [f"{root / 'train.rec'} record {key}" for key in (3, 4)]
    assert [failure.path for failure in caught.value.failures] == records
    assert "BytesIO" not in str(caught.value)
    with pytest.warns(UserWarning) as warned:
        task = build_task(data, CPU)
    assert not any("BytesIO" in str(one.message) for one in warned)
    assert task.images.classes == ["0", "2", "3"] and len(task.images) == 9
    assert "train.rec: 2 of 12 images are unreadable; 1 people have" in "; ".join(task.notes)


@pytest.mark.parametrize("skip", [False, True])
def test_advice_about_unreadable_photographs_helps(root: Path, skip: bool) -> None:
    data, pair = data_of(root, skip_unreadable=skip), root / "pairs" / "T1" / "0.png"
    spoil(pair)
    with raised(UnreadableImages, total=8, remedies=(Option("data.allow_missing", True),)) as caught:
        build_task(data, CPU)
    assert [failure.path for failure in caught.value.failures] == [str(pair)]
    pair.unlink()
    task = build_task(replace(data, allow_missing=True), CPU)
    assert len(task.evaluation.pairs[0]) == 6 and "mine has 6 pairs, not 8" in "; ".join(task.notes)


@pytest.mark.filterwarnings(IGNORED, "ignore::isosphere.errors.CroppedFacesWarning")
def test_advice_about_training_photographs_is_what_is_left_to_do(root: Path) -> None:
    broken = root / "people" / "A" / "1.png"
    spoil(broken)
    data = data_of(root, align=True)
    with raised(UnreadableImages, remedies=(Option("data.skip_unreadable", True),)) as caught:
        build_task(replace(data, skip_unreadable=False), CPU)
    assert [failure.path for failure in caught.value.failures] == [str(broken)]
    far = "9000 9000 8000 8000 7000 7000 6000 6000 5000 5000"
    (root / "people" / "landmarks.txt").write_text(f"B/0.png {far}\n")
    with raised(UnreadableImages, remedies=(Option("data.align", False),)) as caught:
        build_task(data, CPU)
    assert [failure.path for failure in caught.value.failures] == [str(root / "people" / "B" / "0.png")]


def test_probes_must_stay_identifiable(root: Path) -> None:
    data = data_of(root, probes=str(root / "probes"), distractors=(str(root / "more"),))
    spoil(root / "probes" / "P" / "0.png")
    with warned({UnreadableImagesWarning: 1}):
        assert len(build_task(data, CPU).evaluation.probes) == 4
    spoil(root / "probes" / "Q" / "0.png")
    with warned({UnreadableImagesWarning: 2}), pytest.raises(SinglePhotographs):
        build_task(data, CPU)


def test_probes_among_the_distractors_are_refused(root: Path) -> None:
    """But not a person's only photograph, which is not asked for."""
    (root / "link").symlink_to(root / "probes", target_is_directory=True)
    (root / "list.csv").write_text("path,label\nlink/P/0.png,x\nprobes/Q/1.png,y\nprobes/R/0.png,z\nmore/0.png,w\n")
    data = data_of(root, probes=str(root / "probes"))
    with raised(ProbesAmongDistractors, shared=2, distractors=8, probes=4) as caught:
        build_task(replace(data, distractors=(str(root / "more"), str(root / "list.csv"))), CPU)
    assert [path.removeprefix(f"{root}/") for path in caught.value.paths] == ["link/P/0.png", "probes/Q/1.png"]
    (root / "list.csv").write_text("path,label\nprobes/R/0.png,z\n")
    build_task(replace(data, distractors=(str(root / "more"), str(root / "list.csv"))), CPU)


def test_an_image_of_a_pack_is_named(root: Path) -> None:
    files = [file.read_bytes() for file in sorted((root / "more").iterdir())]
    (root / "pairs" / "own.bin").write_bytes(pickle.dumps(([*files[:3], b"no image"], [True, False])))
    with raised(UnreadableImages, total=4, remedies=()) as caught:
        build_task(data_of(root, pairs=("own",)), CPU)
    assert [failure.path for failure in caught.value.failures] == ["3 of own.bin"]
    assert not re.search("BytesIO|0x", str(caught.value))
