"""RecordIO pairs against a writer that follows the format word by word: labels, parts, damage, workers."""

import io
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.feed import loader
from isosphere.data.images import ImageSet
from isosphere.data.readable import check_images, readable_images
from isosphere.data.recordio import RecordFile, RecordSet
from isosphere.data.transforms import TestView
from isosphere.errors import BadRecord, DamagedFile, NoImages, NotFound, OtherCounts, UnreadableImage, WrongIndex
from isosphere.samplers import OrderedBatches
from raised import raised

MAGIC = struct.pack("<I", 0xCED7230A)
VIEW = TestView(size=12, shorter=14)


def written(records: list[tuple[int, bytes]], path: Path) -> None:
    """Records (key, bytes) as MXNet writes them: cut where an aligned word is the magic number, padded to words."""
    out, index = bytearray(), []
    for key, data in records:
        index.append(f"{key}\t{len(out)}\n")
        pieces, begin = [], 0
        for at in range(0, len(data) // 4 * 4, 4):
            if data[at : at + 4] == MAGIC:
                pieces.append(data[begin:at])
                begin = at + 4
        pieces.append(data[begin:])
        for place, piece in enumerate(pieces):
            last = place == len(pieces) - 1
            part = 0 if len(pieces) == 1 else 1 if place == 0 else 3 if last else 2
            out += MAGIC + struct.pack("<I", part << 29 | len(piece)) + piece + b"\0" * (-len(piece) % 4)
    path.write_bytes(out)
    path.with_suffix(".idx").write_text("".join(index))


def packed(image: bytes, label: float | list[float], key: int = 0) -> bytes:
    if isinstance(label, list):
        return struct.pack("<IfQQ", len(label), 0.0, key, 0) + struct.pack(f"<{len(label)}f", *label) + image
    return struct.pack("<IfQQ", 0, label, key, 0) + image


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def pictures(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (16 + i % 3, 18, 3), dtype=np.uint8) for i in range(count)]


LABELS = [7, 7, 3, 3, 3, 12]


@pytest.fixture
def plain(tmp_path: Path) -> RecordSet:
    """Six images without a leading record, the numbers out of order, labels both in and after the header."""
    records = [
        (key, packed(png(image), [label, 0.5] if key % 2 else label, key))
        for key, image, label in zip((3, 0, 1, 5, 4, 2), pictures(6), LABELS, strict=True)
    ]
    written(records, tmp_path / "train.rec")
    return RecordSet.pair(tmp_path)


def test_images_and_labels_of_a_plain_pair(plain: RecordSet, tmp_path: Path) -> None:
    assert plain.classes == ["3", "7", "12"] and plain.labels.tolist() == [1, 1, 0, 0, 0, 2]
    assert len(plain) == 6 and plain.device is None and repr(plain) == "RecordSet(6 images of 3 classes)"
    for index, pixels in enumerate(pictures(6)):
        assert torch.equal(plain[index], torch.from_numpy(pixels).permute(2, 0, 1))
    same = RecordSet.pair(tmp_path / "train.rec")
    assert torch.equal(same.labels, plain.labels)


def test_insightface_layout_leaves_its_descriptions_out(tmp_path: Path) -> None:
    """Record 0: (first identity's record, end of these); each identity: the range of its images."""
    images = [(i, packed(png(pixels), LABELS[i - 1])) for i, pixels in enumerate(pictures(6), start=1)]
    ranges = [(7 + i, packed(b"", span)) for i, span in enumerate(([1.0, 3.0], [3.0, 6.0], [6.0, 7.0]))]
    written([(0, packed(b"", [7.0, 10.0])), *images, *ranges], tmp_path / "faces.rec")
    found = RecordSet.pair(tmp_path / "faces.rec")
    assert found.classes == ["3", "7", "12"] and found.labels.tolist() == [1, 1, 0, 0, 0, 2]
    assert torch.equal(found[5], torch.from_numpy(pictures(6)[5]).permute(2, 0, 1))
    written([(0, packed(b"", [1.0, 1.0]))], tmp_path / "none.rec")
    with raised(NoImages, place=tmp_path / "none.rec", others=1):
        RecordSet.pair(tmp_path / "none.rec")


def test_subsets_are_those_of_an_image_set(plain: RecordSet) -> None:
    other = ImageSet(plain.labels, plain.classes, [str(i) for i in range(6)])
    for mine, its in (
        (plain.of_classes([0, 2]), other.of_classes([0, 2])),
        (plain.subset([5, 0, 1]), other.subset([5, 0, 1])),
        (plain.subset(torch.tensor([4])), other.subset(torch.tensor([4]))),
    ):
        assert mine.classes == its.classes and torch.equal(mine.labels, its.labels)
        for index, path in enumerate(its.paths):
            assert torch.equal(mine[index], plain[int(path)])


def test_records_that_contain_the_magic_number_come_in_parts(tmp_path: Path) -> None:
    data = [
        packed(png(pictures(1)[0]), 1.0) + b"\0" * (-len(packed(png(pictures(1)[0]), 1.0)) % 4) + MAGIC + b"end",
        b"head" + MAGIC + MAGIC + b"middle.." + MAGIC,
        b"not" + MAGIC + b"aligned",
        b"x",
        b"",
    ]
    written(list(enumerate(data)), tmp_path / "parts.rec")
    file = RecordFile(tmp_path / "parts.rec")
    assert [file.read(place) for place in range(5)] == data
    words = struct.unpack_from("<II", (tmp_path / "parts.rec").read_bytes())
    assert words[1] >> 29 == 1  # else this would prove nothing
    written([(0, data[0]), (1, data[0])], tmp_path / "one.rec")  # where it ends is known, too
    assert torch.equal(RecordSet.pair(tmp_path / "one.rec")[0], torch.from_numpy(pictures(1)[0]).permute(2, 0, 1))


def test_workers_and_pickles_see_the_same_images(plain: RecordSet) -> None:
    copied = pickle.loads(pickle.dumps(plain))
    assert len(pickle.dumps(plain)) < 3000  # the map does not travel
    batches = OrderedBatches(6, 2)
    expected = torch.stack([VIEW(plain[index]) for index in range(6)])
    for images in (plain, copied):  # the first is mapped already and is shared by fork, the second is not
        for workers in (0, 2):
            found = list(loader(images, batches, VIEW, range(3), workers=workers))
            assert torch.equal(torch.cat([batch.images for batch in found]), expected)
            assert torch.equal(torch.cat([batch.labels for batch in found]), plain.labels)


def test_a_file_that_is_cut_off_is_named_with_its_record(plain: RecordSet, tmp_path: Path) -> None:
    whole, begins = (tmp_path / "train.rec").read_bytes(), plain.file.offsets
    index, lines = tmp_path / "train.idx", (tmp_path / "train.idx").read_text().splitlines(keepends=True)
    for length, key, count in (
        (len(whole) - 40, 2, 5), (begins[5] + 10, 2, 5), (begins[5], 2, 5), (begins[5] - 5, 4, 4),
        (begins[2] - 5, 0, 1), (begins[2] + 40, 1, 2), (30, 3, 0),
    ):  # fmt: skip
        (tmp_path / "train.rec").write_bytes(whole[:length])
        for order in (lines, lines[::-1]):  # records need not lie in the order of the index
            index.write_text("".join(order))
            with raised(BadRecord, path=tmp_path / "train.rec", record=key, whole=count) as caught:
                RecordSet.pair(tmp_path)
            assert f"byte {length}," in caught.value.reason


def test_a_record_that_lacks_its_filling_alone_is_whole(tmp_path: Path) -> None:
    """Then it is the next one that is named."""
    records = [(key, packed(png(pictures(1)[0]) + b"." * key, 1.0)) for key in range(5)]
    written(records, tmp_path / "train.rec")
    whole, begins = (tmp_path / "train.rec").read_bytes(), RecordFile(tmp_path / "train.rec").offsets
    place = next(place for place in range(1, 5) if len(records[place - 1][1]) % 4 == 2)
    (tmp_path / "train.rec").write_bytes(whole[: begins[place] - 2])
    with raised(BadRecord, record=place, byte=int(begins[place]), whole=place):
        RecordSet.pair(tmp_path)


def test_a_length_that_is_damaged_is_not_called_a_cut(plain: RecordSet, tmp_path: Path) -> None:
    data = bytearray((tmp_path / "train.rec").read_bytes())
    struct.pack_into("<I", data, int(plain.file.offsets[2]) + 4, 1 << 28)
    (tmp_path / "train.rec").write_bytes(data)
    with raised(BadRecord, record=1, whole=None):
        RecordSet.pair(tmp_path)


def test_an_index_that_is_cut_off_is_refused(plain: RecordSet, tmp_path: Path) -> None:
    index, size, begins = tmp_path / "train.idx", (tmp_path / "train.rec").stat().st_size, plain.file.offsets
    lines = index.read_text().splitlines(keepends=True)
    for kept, begin, end, owners in (
        (lines[:2], begins[2], size, 0),
        (lines[2:], 0, begins[2], 0),
        (lines[:3] + lines[4:], begins[3], begins[4], 0),
        ([*lines, lines[-1]], begins[5], size, 2),
    ):
        index.write_text("".join(kept[::-1]))  # in any order
        with raised(WrongIndex, path=index, records=len(kept), begin=begin, end=end, owners=owners):
            RecordSet.pair(tmp_path)


def test_an_index_of_insightface_has_as_many_records_as_the_first_shows(tmp_path: Path) -> None:
    images = [(i, packed(png(pixels), LABELS[i - 1])) for i, pixels in enumerate(pictures(6), start=1)]
    ranges = [(7 + i, packed(b"", span)) for i, span in enumerate(([1.0, 3.0], [3.0, 6.0], [6.0, 7.0]))]
    written([(0, packed(b"", [7.0, 10.0])), *images, *ranges], tmp_path / "train.rec")
    lines = (tmp_path / "train.idx").read_text().splitlines(keepends=True)
    for kept in (lines[:3], lines[:9], [*lines, lines[-1]]):
        (tmp_path / "train.idx").write_text("".join(kept))
        with raised(OtherCounts, found={"records": len(kept)}, expected={"records": 10}):
            RecordSet.pair(tmp_path)
    (tmp_path / "train.idx").write_text("".join(lines[1:4]))  # without record 0
    with raised(WrongIndex, records=3, begin=0, end=40, owners=0):
        RecordSet.pair(tmp_path)


def test_an_index_of_another_file_is_refused(plain: RecordSet, tmp_path: Path) -> None:
    index = tmp_path / "train.idx"
    lines = index.read_text().splitlines()
    index.write_text("\n".join([*lines[:2], "1\t12", *lines[3:]]))
    with raised(BadRecord, record=1, byte=12):
        RecordSet.pair(tmp_path)
    index.write_text("\n".join([*lines[:2], "1\tten"]))
    with raised(DamagedFile, path=index) as caught:
        RecordSet.pair(tmp_path)
    assert "ten" in caught.value.reason
    index.write_text("\n".join([*lines[:2], "1\t-8", *lines[3:]]))
    with raised(BadRecord, record=1, byte=-8):
        RecordSet.pair(tmp_path)
    index.write_text("1\n2\n")
    with raised(DamagedFile, path=index):
        RecordSet.pair(tmp_path)
    index.write_text("")
    with raised(DamagedFile, path=index):
        RecordSet.pair(tmp_path)
    index.unlink()
    with raised(NotFound, path=index):
        RecordSet.pair(tmp_path)


def test_labels_must_be_classes(tmp_path: Path) -> None:
    written([(0, packed(png(pictures(1)[0]), 1.0)), (9, packed(png(pictures(1)[0]), 0.25))], tmp_path / "a.rec")
    with raised(BadRecord, path=tmp_path / "a.rec", record=9) as caught:
        RecordSet.pair(tmp_path / "a.rec")
    assert "0.25" in caught.value.reason


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_images_are_named_by_record(tmp_path: Path, workers: int) -> None:
    good = packed(png(pictures(1)[0]), 1.0)
    cut = good + b"\0" * (-len(good) % 4) + MAGIC + b"rest"
    written([(0, good), (1, good[:60]), (2, good), (3, cut)], tmp_path / "a.rec")
    data = bytearray((tmp_path / "a.rec").read_bytes())
    data[-12:-8] = b"oops"  # the last part's magic number
    (tmp_path / "a.rec").write_bytes(data)
    images = RecordSet.pair(tmp_path / "a.rec")
    assert set(check_images(images)) == {1, 3}
    with raised(UnreadableImage, path=f"{tmp_path / 'a.rec'} record 3") as caught:
        images[3]
    assert "part 2" in caught.value.reason
    feed = loader(images, OrderedBatches(4, 1), None, range(4), workers=workers)
    assert next(feed).labels.tolist() == [0]
    with raised(UnreadableImage, path=f"{tmp_path / 'a.rec'} record 1") as caught:
        next(feed)
    assert "BytesIO" not in str(caught.value) and "0x" not in str(caught.value)
    with pytest.warns(UserWarning):
        kept = readable_images(images, skip_unreadable=True)
    assert len(kept) == 2 and kept.note.startswith("2 of 4 images are unreadable") and images.note == ""
