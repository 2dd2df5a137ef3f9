"""One contract for every source of images and every view; tests/user_script.py holds its types."""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data import Images, ImageSet, View, cifar
from isosphere.data.alignment import WHOLE, FaceView, framed
from isosphere.data.cache import cached
from isosphere.data.faces import FlipView
from isosphere.data.feed import loader
from isosphere.data.fits import Stored
from isosphere.data.recordio import RecordSet
from isosphere.data.rendered import rendered
from isosphere.data.transforms import ShiftView, TestView, TrainView, uniforms
from isosphere.data.two_views import ContrastiveView
from isosphere.errors import BadArgument
from isosphere.samplers import OrderedBatches
from raised import raised


def folder(root: Path) -> ImageSet:
    """Nine photographs of three classes, of several sizes."""
    random = np.random.default_rng(0)
    for index in range(9):
        path = root / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (30 + index, 40, 3), dtype=np.uint8)).save(path)
    return ImageSet.folder(root)


def records(root: Path) -> RecordSet:
    images = folder(root / "photos")
    out, index = bytearray(), ""
    for key, (path, label) in enumerate(zip(images.paths or (), images.labels.tolist(), strict=True)):
        record = struct.pack("<IfQQ", 0, label, key, 0) + Path(path).read_bytes()
        index += f"{key}\t{len(out)}\n"
        out += struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4)
    (root / "train.rec").write_bytes(out)
    (root / "train.idx").write_text(index)
    return RecordSet.pair(root)


def cifar10(root: Path) -> ImageSet:
    for part, count in cifar.COUNTS.items():
        for index in range(count):
            path = root / part / f"class{index % 10}" / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (index, 2 * index, 0)).save(path)
    return cifar.load("cifar10", root)[0]


LABELS = torch.arange(9) % 3
SOURCES: dict[str, Callable[[Path], Images]] = {
    "files": folder,
    "pixels": lambda root: ImageSet.from_pixels(torch.randint(0, 256, (9, 1, 30, 30)).byte(), LABELS, ["a", "b", "c"]),
    "cached": lambda root: cached(folder(root / "photos"), Stored(30), root / "photos", str(root / "cache")),
    "cached, in memory": lambda root: SOURCES["cached"](root).to("cpu"),
    "records": records,
    "faces": lambda root: framed(folder(root), WHOLE, workers=0),
    "CIFAR": cifar10,
    "rendered": lambda root: rendered(classes=3, per_class=3, size=30),
}
VIEWS: list[View] = [
    TrainView(size=24, shorter=30), TestView(size=24, shorter=30), ShiftView(2), FlipView(), FaceView(size=24),
    ContrastiveView(size=24, shorter=30),
]  # fmt: skip


@pytest.fixture(params=SOURCES)
def images(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Images:
    monkeypatch.setattr(cifar, "COUNTS", {"train": 20, "test": 10})
    return SOURCES[request.param](tmp_path)


def test_what_a_source_says_of_itself(images: Images) -> None:
    assert images.labels.dtype == torch.long and images.labels.shape == (len(images),)
    assert images.labels.unique().tolist() == list(range(len(images.classes)))
    assert isinstance(images.classes, list) and all(isinstance(name, str) for name in images.classes)
    assert images.note == "" and isinstance(images.on_disk, bool)
    assert images.paths is None or (len(images.paths) == len(images) and all(isinstance(p, str) for p in images.paths))
    assert images.device in (None, torch.device("cpu")) and (images.device is not None or images.on_disk)


def test_images_are_uint8_and_travel_to_other_processes(images: Images) -> None:
    copy = pickle.loads(pickle.dumps(images))
    for index in (0, len(images) - 1):
        assert images[index].dtype == torch.uint8 and images[index].ndim == 3
        assert torch.equal(copy[index], images[index])


def test_parts_keep_their_images_labels_and_note(images: Images) -> None:
    images.note = "3 images are left out"
    indices = [len(images) - 1, 0, 1]
    for part in (images.subset(indices), images.subset(torch.tensor(indices))):
        assert type(part) is type(images) and part.note == images.note and len(part) == 3
        for place, index in enumerate(indices):
            assert torch.equal(part[place], images[index])
            assert part.classes[part.labels[place]] == images.classes[images.labels[index]]
    chosen = images.of_classes([2, 0])
    assert chosen.classes == [images.classes[0], images.classes[2]] and chosen.note == images.note
    kept = [index for index, label in enumerate(images.labels.tolist()) if label in (0, 2)]
    assert len(chosen) == len(kept) and all(torch.equal(chosen[i], images[index]) for i, index in enumerate(kept))


@pytest.mark.parametrize("view", VIEWS[:2], ids=lambda view: type(view).__name__)
def test_a_batch_is_its_images_seen_through_the_view(images: Images, view: View) -> None:
    if images[0].shape[-2:] == (112, 112) or images[0].shape[-2:] == (32, 32):
        view = type(view)(size=24, shorter=images[0].shape[-1])  # type: ignore[call-arg]
    indices = torch.tensor([5, 0, 5, 7])
    numbers = uniforms(0, 3, torch.arange(4), view.draws)
    found = images.batch(indices, view, numbers)
    expected = torch.stack([view(images[int(i)], its) for i, its in zip(indices, numbers, strict=True)])
    assert found.dtype == torch.uint8 and found.shape == expected.shape
    assert (found.int() - expected.int()).abs().max() <= 1  # of a cache's batches; the others have the same bits
    batch = next(loader(images, OrderedBatches(len(images), 4), view, range(1), seed=2))
    numbers = uniforms(2, 0, torch.arange(4), view.draws)
    assert torch.equal(batch.images, images.batch(torch.arange(4), view, numbers))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
def test_views_take_one_image_or_a_batch(view: View) -> None:
    images = torch.randint(0, 256, (4, 3, 30, 30), dtype=torch.uint8)
    numbers = uniforms(0, 0, torch.arange(4), view.draws)
    together = view(images, numbers)
    assert together.dtype == torch.uint8 and together.shape[:2] == (4, 3)
    for image, its, found in zip(images, numbers, together, strict=True):
        assert torch.equal(view(image, its), found)


def test_a_cache_refuses_what_it_cannot_give(tmp_path: Path) -> None:
    store = SOURCES["cached"](tmp_path)
    for images in (store, store.to("cpu")):
        for view in (None, ShiftView(2), TestView(24, 60), TestView(40, 30)):
            with raised(BadArgument, name="view", value=view):
                images.batch(torch.tensor([0]), view)
    with raised(BadArgument, name="numbers"):
        store.to("cpu").batch(torch.tensor([0]), VIEWS[0])
