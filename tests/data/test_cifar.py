"""CIFAR from its layouts on disk: tiny sets of the same form, with numpy and PIL as the oracles."""

import hashlib
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data import cifar
from isosphere.data.feed import loader
from isosphere.errors import (
    DamagedFile,
    DownloadFailed,
    NoDataSet,
    NotFound,
    OtherCounts,
    UnknownName,
    UnreadableImage,
    UnsafeFile,
)
from isosphere.samplers import OrderedBatches
from raised import raised

TRAIN, TEST = 200, 100


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The originals have 60,000 images; here they have 300, and everything else is as it is."""
    assert cifar.COUNTS == {"train": 50_000, "test": 10_000}
    monkeypatch.setattr(cifar, "COUNTS", {"train": TRAIN, "test": TEST})
    monkeypatch.setattr(cifar, "CHUNK", 32)


def python2_pickle(value):
    """The value as Python 2 with its numpy wrote it, by its opcodes: strings are bytes, an array is rebuilt."""
    if isinstance(value, dict):
        pairs = (python2_pickle(key) + python2_pickle(its) + b"s" for key, its in value.items())
        return b"}" + b"".join(pairs)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2_pickle, value)) + b"e"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, (str, bytes)):
        raw = value.encode() if isinstance(value, str) else value
        return b"T" + struct.pack("<i", len(raw)) + raw
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"".join(map(python2_pickle, value.shape)) + b"\x86"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + python2_pickle(value.tobytes()) + b"tb"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x80\x02" + python2_pickle(value) + b".")


def made(count, classes, seed):
    """Random images (N, 32, 32, 3) and shuffled labels with as many of each class."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 32, 32, 3), np.uint8), random.permutation(np.arange(count) % classes)


def rows(images):
    """Images (N, 32, 32, 3) as the python files hold them: all red, all green, all blue."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))


def python_files(root, name):
    """The standard files of one set, and what they hold by part."""
    classes = 10 if name == "cifar10" else 100
    parts = {"train": made(TRAIN, classes, 0), "test": made(TEST, classes, 1)}
    names = [f"class {number:02d}" for number in range(classes)]
    if name == "cifar10":
        folder, key = root / "cifar-10-batches-py", "labels"
        write(folder / "batches.meta", {"label_names": names, "num_vis": 3072})
        files = {f"data_batch_{i + 1}": [part[i * 40 : (i + 1) * 40] for part in parts["train"]] for i in range(5)}
        files["test_batch"] = parts["test"]
    else:
        folder, key, files = root / "cifar-100-python", "fine_labels", parts
        write(folder / "meta", {"fine_label_names": names, "coarse_label_names": ["all"]})
    for file, (images, labels) in files.items():
        extra = {"coarse_labels": [0] * len(labels)} if name == "cifar100" else {"batch_label": file}
        write(folder / file, {**extra, key: labels.tolist(), "data": rows(images)})
    return folder, parts, names


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_python_files_give_pixels_labels_and_classes(tmp_path, name):
    folder, parts, names = python_files(tmp_path, name)
    for root in (tmp_path, folder):
        for images, (expected, labels) in zip(cifar.load(name, root), parts.values(), strict=True):
            assert images.pixels.dtype == torch.uint8 and images.classes == names
            assert np.array_equal(images.pixels.permute(0, 2, 3, 1).numpy(), expected)
            assert images.labels.tolist() == labels.tolist()
    last = list(loader(images, OrderedBatches(len(images), 64), None, range(2)))[1]
    assert torch.equal(last.images, images.pixels[64:]) and torch.equal(last.labels, images.labels[64:])


def test_files_written_by_python_3_are_read_too(tmp_path):
    folder, parts, _ = python_files(tmp_path, "cifar100")
    images, labels = parts["train"]
    (folder / "train").write_bytes(pickle.dumps({"data": rows(images), "fine_labels": labels.tolist()}, protocol=4))
    assert np.array_equal(cifar.load("cifar100", tmp_path)[0].pixels.permute(0, 2, 3, 1).numpy(), images)


class Harmful:
    """A pickle of this would make a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, protocol):
    folder, _, _ = python_files(tmp_path, "cifar100")
    (folder / "test").write_bytes(pickle.dumps({"data": Harmful(tmp_path / "harm")}, protocol))
    with raised(UnsafeFile, path=folder / "test") as caught:
        cifar.load("cifar100", tmp_path)
    assert "posix.mkdir" in caught.value.reason
    assert not (tmp_path / "harm").exists()
    for name in ("numpy.core.multiarray\nfromfile", "numpy\nload", "numpy.testing\nrundocs", "builtins\neval"):
        (folder / "test").write_bytes(b"c" + name.encode() + b"\n.")
        with raised(UnsafeFile, path=folder / "test") as caught:
            cifar.load("cifar100", tmp_path)
        assert name.replace("\n", ".") in caught.value.reason


def test_damaged_files_are_named(tmp_path):
    folder, parts, _ = python_files(tmp_path, "cifar10")
    whole = (folder / "data_batch_3").read_bytes()
    (folder / "data_batch_3").write_bytes(whole[:1000])
    with raised(DamagedFile, path=folder / "data_batch_3"):
        cifar.load("cifar10", tmp_path)
    write(folder / "data_batch_3", {"data": rows(parts["train"][0][:40])})
    with raised(DamagedFile, path=folder / "data_batch_3"):
        cifar.load("cifar10", tmp_path)
    write(folder / "data_batch_3", {"data": np.zeros((40, 30), np.uint8), "labels": [0] * 40})
    with raised(DamagedFile, path=folder / "data_batch_3") as caught:
        cifar.load("cifar10", tmp_path)
    assert "3072" in caught.value.reason
    (folder / "data_batch_3").unlink()
    with raised(NotFound, path=folder / "data_batch_3"):
        cifar.load("cifar10", tmp_path)


@pytest.mark.parametrize("damage", [
    lambda labels: ["7", *labels[1:]], lambda labels: [10, *labels[1:]], lambda labels: [-1, *labels[1:]],
    lambda labels: labels[1:], lambda labels: [1.0, *labels[1:]], lambda labels: [[0], *labels[1:]], lambda labels: 3,
])  # fmt: skip
def test_damaged_labels_are_reported_with_their_file(tmp_path, damage):
    folder, parts, _ = python_files(tmp_path, "cifar10")
    images, labels = (part[40:80] for part in parts["train"])
    held = {"data": rows(images), "labels": damage(labels.tolist())}
    (folder / "data_batch_2").write_bytes(pickle.dumps(held, protocol=4))
    with raised(DamagedFile, path=folder / "data_batch_2") as caught:
        cifar.load("cifar10", tmp_path)
    assert "40 labels" in caught.value.reason


@pytest.mark.parametrize("one, other", [("data_batch_1", "data_batch_4"), ("data_batch_5", "test_batch")])
def test_a_file_that_was_copied_over_another_is_refused(tmp_path, one, other):
    folder, *_ = python_files(tmp_path, "cifar10")
    (folder / other).write_bytes((folder / one).read_bytes())
    with raised(DamagedFile, path=folder / other) as caught:
        cifar.load("cifar10", tmp_path)
    assert one in caught.value.reason


def class_folders(root, parts, names):
    for part, (images, labels) in parts.items():
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = root / part / names[label] / f"{number:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


@pytest.mark.parametrize("below", ["", "cifar10"])
def test_class_folders_give_the_same_images_class_by_class(tmp_path, below):
    folder, parts, names = python_files(tmp_path / "python", "cifar10")
    class_folders(tmp_path / "png" / below, parts, names)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    found = cifar.load("cifar10", tmp_path / "png")
    assert torch.equal(torch.get_rng_state(), before)
    for images, reference in zip(found, cifar.load("cifar10", folder), strict=True):
        order = reference.labels.argsort(stable=True)
        assert images.classes == reference.classes and torch.equal(images.labels, reference.labels[order])
        assert torch.equal(images.pixels, reference.pixels[order])


def test_incomplete_and_wrong_folders_are_refused(tmp_path):
    parts = {"train": made(TRAIN, 10, 0), "test": made(TEST, 10, 1)}
    class_folders(tmp_path, parts, [f"class {number}" for number in range(10)])
    one = next((tmp_path / "test" / "class 3").iterdir())
    Image.new("RGB", (40, 32)).save(one)
    with raised(UnreadableImage, path=one) as caught:
        cifar.load("cifar10", tmp_path)
    assert "40 x 32" in caught.value.reason
    one.write_bytes(b"nothing")
    with raised(UnreadableImage, path=one):
        cifar.load("cifar10", tmp_path)
    one.rename(one.parent.parent / "class 4" / "moved.png")
    counts = {"found": {"of class 3": 9, "of class 4": 11}, "expected": {"of class 3": 10, "of class 4": 10}}
    with raised(OtherCounts, **counts):
        cifar.load("cifar10", tmp_path)
    with raised(OtherCounts, found={"images": 200, "classes": 10}, expected={"images": 200, "classes": 100}):
        cifar.load("cifar100", tmp_path)
    (one.parent.parent / "class 4" / "moved.png").rename(one)
    (tmp_path / "test" / "class 9").rename(tmp_path / "test" / "other")
    with raised(OtherCounts, found={"classes in both parts": 9}, absent=("class 9", "other")):
        cifar.load("cifar10", tmp_path)


def test_nothing_there_says_what_to_do(tmp_path):
    with raised(NoDataSet, folder=tmp_path, title="CIFAR-100", option=("data.download", True)):
        cifar.load("cifar100", tmp_path)
    with raised(UnknownName, name="cifar", known=["cifar10", "cifar100"]):
        cifar.load("cifar", tmp_path)


def test_download_is_checked_and_used_once(tmp_path, monkeypatch):
    folder, parts, _ = python_files(tmp_path / "server", "cifar100")
    archive = tmp_path / "server" / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder, folder.name)
    source = cifar.SOURCES["cifar100"]
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setitem(cifar.SOURCES, "cifar100", source._replace(archive=archive.as_uri()))
    with raised(DownloadFailed, url=archive.as_uri()) as caught:
        cifar.load("cifar100", tmp_path / "data", download=True)
    assert md5 in caught.value.reason and source.md5 in caught.value.reason
    assert not (tmp_path / "data").exists()
    monkeypatch.setitem(cifar.SOURCES, "cifar100", source._replace(archive=archive.as_uri(), md5=md5))
    train, _ = cifar.load("cifar100", tmp_path / "data", download=True)
    assert np.array_equal(train.pixels.permute(0, 2, 3, 1).numpy(), parts["train"][0])
    archive.unlink()
    assert len(cifar.load("cifar100", tmp_path / "data", download=True)[1]) == TEST


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pixels_live_on_the_device(tmp_path):
    python_files(tmp_path, "cifar10")
    train, test = cifar.load("cifar10", tmp_path, device="cuda")
    assert train.device.type == test.device.type == "cuda" and train.labels.device.type == "cpu"
