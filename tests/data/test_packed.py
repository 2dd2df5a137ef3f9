"""The packed store: its pixels against decoding one by one, crops against torchvision, interruption and damage."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

from isosphere.data import packed, packing
from isosphere.data.crops import sample_crops
from isosphere.data.feed import Steps
from isosphere.data.images import ImageSet
from isosphere.data.packed import PackedSet
from isosphere.data.packing import pack
from isosphere.data.transforms import TestView, TrainView, central_boxes, uniforms
from isosphere.errors import BadArgument, DamagedFile, UnreadableImages
from isosphere.samplers import OrderedBatches
from raised import raised


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten images of three classes, wide and tall, smooth and noisy, large and small."""
    rng = np.random.default_rng(0)
    for index in range(10):
        height, width = rng.integers(40, 120, 2)
        image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        path = tmp_path / "photos" / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((int(width) * 2, int(height) * 2), Image.BILINEAR).save(path)
    return tmp_path / "photos"


def expected(image_set: ImageSet, index: int, shorter: int) -> torch.Tensor:
    return functional.resize(image_set[index], [shorter], antialias=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_image_is_there_as_torchvision_resizes_it(folder: Path, tmp_path: Path, workers: int) -> None:
    image_set = ImageSet.folder(folder)
    store = pack(image_set, tmp_path / "cache" / "all", shorter=64, workers=workers)
    assert len(store) == 10 and store.classes == ["class0", "class1", "class2"]
    assert torch.equal(store.labels, image_set.labels)
    for index in range(10):
        assert torch.equal(store[index], expected(image_set, index, 64))
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["all"]


def test_subsets_share_the_buffer_and_are_relabeled(folder: Path, tmp_path: Path) -> None:
    image_set = ImageSet.folder(folder)
    store = pack(image_set, tmp_path / "store", shorter=32, workers=0)
    part, plain = store.of_classes([1, 2]), image_set.of_classes([1, 2])
    assert part.classes == plain.classes and torch.equal(part.labels, plain.labels)
    assert part.buffer.data_ptr() == store.buffer.data_ptr()
    assert all(torch.equal(part[i], expected(plain, i, 32)) for i in range(len(plain)))
    assert torch.equal(store.subset([9, 0])[1], store[0])


def test_a_worker_that_was_not_forked_maps_the_file_again(folder: Path, tmp_path: Path) -> None:
    store = pack(ImageSet.folder(folder), tmp_path / "store", shorter=32, workers=0).subset([9, 0, 4])
    view, how = TestView(size=24, shorter=32), {"num_workers": 1, "multiprocessing_context": "spawn", "timeout": 60}
    steps = Steps(store, OrderedBatches(3, 2), view, seed=0)
    seen = [batch.images for batch in DataLoader(steps, batch_size=None, sampler=range(2), **how)]
    assert torch.equal(torch.cat(seen), store.batch(torch.arange(3), view))
    assert len(pickle.dumps(store)) < store.buffer.numel() / 2, "pixels are not copied"


def test_crops_equal_torchvision_for_the_same_boxes_within_one_gray_level(folder: Path, tmp_path: Path) -> None:
    store = pack(ImageSet.folder(folder), tmp_path / "store", shorter=64, workers=0)
    generator = torch.Generator().manual_seed(3)
    indices = torch.arange(10).repeat(8)
    heights, widths = store.heights[indices], store.widths[indices]
    height = (heights * torch.rand(80, generator=generator)).long().clamp(min=1)
    width = (widths * torch.rand(80, generator=generator)).long().clamp(min=1)
    top = ((heights - height + 1) * torch.rand(80, generator=generator)).long()
    left = ((widths - width + 1) * torch.rand(80, generator=generator)).long()
    boxes, flipped = torch.stack((top, left, height, width), 1), torch.rand(80, generator=generator) < 0.5
    crops = sample_crops(store.buffer, store.starts[indices], widths, boxes, flipped, 51)
    for crop, index, box, flip in zip(crops, indices, boxes, flipped, strict=True):
        oracle = functional.resized_crop(store[index], *box.tolist(), [51, 51], antialias=False)
        oracle = oracle.flip(-1) if flip else oracle
        assert (crop.int() - oracle.int()).abs().max() <= 1
        exact = functional.resized_crop(store[index].double(), *box.tolist(), [51, 51], antialias=False)
        assert (crop - (exact.flip(-1) if flip else exact)).abs().max() <= 0.5 + 1e-3


def test_batches_equal_the_views_of_the_worker_path(folder: Path, tmp_path: Path) -> None:
    image_set = ImageSet.folder(folder)
    store = pack(image_set, tmp_path / "store", shorter=64, workers=0)
    indices = torch.tensor([7, 0, 0, 3, 9])
    train, test = TrainView(size=57, shorter=64), TestView(size=57, shorter=64)
    numbers = uniforms(5, 11, torch.arange(5), train.draws)
    crops = store.batch(indices, train, numbers)
    assert crops.shape == (5, 3, 57, 57) and crops.dtype == torch.uint8
    assert crops.is_contiguous(memory_format=torch.channels_last)
    plain = torch.stack([train(image_set[i], its) for i, its in zip(indices.tolist(), numbers, strict=True)])
    assert (crops.int() - plain.int()).abs().max() <= 1
    assert not torch.equal(crops[1], crops[2])  # one image, two positions, two crops
    centers = store.batch(indices, test)
    assert torch.equal(centers, torch.stack([test(image_set[i]) for i in indices.tolist()]))


def test_chunks_change_nothing_and_the_batch_compiles_to_one_graph(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pack(ImageSet.folder(folder), tmp_path / "store", shorter=32, workers=0)
    indices, view = torch.arange(10), TrainView(size=24, shorter=32)

    def step(indices: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return store.batch(indices, view, uniforms(0, step, torch.arange(len(indices)), view.draws))

    whole = step(indices, torch.tensor(3))
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(indices, torch.tensor(3)), whole)
    monkeypatch.setattr(packed, "CHUNK", 4)
    assert torch.equal(step(indices, torch.tensor(3)), whole)


def test_central_boxes_of_odd_and_even_remainders() -> None:
    for side in range(64, 72):
        image = torch.arange(side * 70).view(1, side, 70)
        top, left, height, width = central_boxes(torch.tensor([side]), torch.tensor([70]), 57)[0].tolist()
        crop = image[:, top : top + height, left : left + width]
        assert torch.equal(crop, functional.center_crop(image, [57, 57]))


def test_a_store_that_does_not_serve_the_view_is_refused(folder: Path, tmp_path: Path) -> None:
    store = pack(ImageSet.folder(folder), tmp_path / "store", shorter=32, workers=0)
    with raised(BadArgument, name="view", value=TestView(size=24, shorter=64)):
        store.batch(torch.tensor([0]), TestView(size=24, shorter=64))
    in_memory = ImageSet.from_pixels(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.tensor([0]), ["a"])
    with raised(BadArgument, name="image_set", value=in_memory):
        pack(in_memory, tmp_path / "no")


def reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are decoded from now on."""
    seen, decode = [], packing.decode
    monkeypatch.setattr(packing, "decode", lambda path: (seen.append(Path(path).name), decode(path))[1])
    return seen


def test_nothing_is_decoded_twice_and_a_changed_file_is_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_set = ImageSet.folder(folder)
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    seen = reading(monkeypatch)
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    os.utime(folder / "class0" / "0.png", (1, 1))  # touched, not changed
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    pack(ImageSet.folder(copy), tmp_path / "store", shorter=32, workers=0)
    assert seen == []
    read, read_bytes = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), read_bytes(path))[1])
    pack(image_set, tmp_path / "store", shorter=32, workers=0)  # of other times than the copy: read, once
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    assert seen == [] and len(read) == 10
    Image.new("RGB", (50, 60), (200, 100, 50)).save(folder / "class1" / "4.png")
    store = pack(image_set, tmp_path / "store", shorter=32, workers=0)
    assert len(seen) == 10
    assert store[image_set.paths.index(str(folder / "class1" / "4.png"))][:, 5, 5].tolist() == [200, 100, 50]
    pack(image_set, tmp_path / "store", shorter=24, workers=0)
    assert len(seen) == 20


def test_unreadable_images_are_all_named_and_the_old_store_stays(folder: Path, tmp_path: Path) -> None:
    image_set = ImageSet.folder(folder)
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    (folder / "class1" / "4.png").write_bytes(b"nothing")
    cut = folder / "class2" / "8.png"
    cut.write_bytes(cut.read_bytes()[:300])
    with raised(UnreadableImages, total=10) as caught:
        pack(image_set, tmp_path / "store", shorter=32, workers=2)
    assert [failure.path for failure in caught.value.failures] == [str(folder / "class1" / "4.png"), str(cut)]
    assert (tmp_path / "store" / "pixels.bin").is_file()


@pytest.mark.parametrize("damage", ["tail", "flipped byte", "half a record", "empty"])
def test_an_interrupted_store_is_repaired_from_its_whole_images(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    image_set = ImageSet.folder(folder)
    whole = pack(image_set, tmp_path / "whole", shorter=32, workers=0)
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    partial = (tmp_path / "store").rename(tmp_path / "store.partial")
    pixels, records = partial / "pixels.bin", partial / "records.bin"
    start = 3 * int(whole.starts[6])
    if damage == "tail":
        os.truncate(pixels, start + 10)
    elif damage == "flipped byte":
        data = bytearray(pixels.read_bytes())
        data[start + 10] ^= 1
        pixels.write_bytes(data)
    elif damage == "half a record":
        os.truncate(records, 6 * packing.RECORD.itemsize + 5)
    else:
        pixels.unlink()
        records.unlink()
    seen = reading(monkeypatch)
    store = pack(image_set, tmp_path / "store", shorter=32, workers=0)
    assert len(seen) == (10 if damage == "empty" else 4)
    assert torch.equal(store.buffer, whole.buffer) and torch.equal(store.starts, whole.starts)


def test_a_finished_store_that_lost_its_tail_is_repaired(folder: Path, tmp_path: Path) -> None:
    image_set = ImageSet.folder(folder)
    whole = pack(image_set, tmp_path / "whole", shorter=32, workers=0)
    pack(image_set, tmp_path / "store", shorter=32, workers=0)
    os.truncate(tmp_path / "store" / "pixels.bin", 1000)
    assert torch.equal(pack(image_set, tmp_path / "store", shorter=32, workers=0).buffer, whole.buffer)


SCRIPT = """
import sys, time
from isosphere.data import packing
from isosphere.data.images import ImageSet
decode = packing.decode
packing.decode = lambda path: (time.sleep(0.2), decode(path))[1]
packing.pack(ImageSet.folder(sys.argv[1]), sys.argv[2], shorter=32, workers=0)
"""


def test_pixels_that_changed_since_they_were_packed_are_refused(folder: Path, tmp_path: Path) -> None:
    images = ImageSet.folder(folder)
    pack(images, tmp_path / "store", 16)
    data = bytearray((tmp_path / "store" / "pixels.bin").read_bytes())
    data[-1] ^= 1
    (tmp_path / "store" / "pixels.bin").write_bytes(data)
    with raised(DamagedFile, path=tmp_path / "store") as caught:
        pack(images, tmp_path / "store", 16)
    assert images.paths[-1] in caught.value.reason and images.paths[0] not in caught.value.reason


def test_fused_crops_are_the_plain_ones(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pack(ImageSet.folder(folder), tmp_path / "store", 16)
    view, indices = TrainView(8, 16), torch.arange(len(store))
    numbers = uniforms(0, 1, indices, view.draws)
    plain = store.batch(indices, view, numbers)
    monkeypatch.setattr(packed, "compiled_crops", lambda: torch.compile(sample_crops, backend="aot_eager"))
    store.fuse_crops()
    assert store.crops is not sample_crops
    fused = store.batch(indices, view, numbers)
    assert (fused.int() - plain.int()).abs().max() <= 1


def test_killed_while_packing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / "store")])
    records = tmp_path / "store.partial" / "records.bin"
    deadline = time.monotonic() + 60
    while not records.is_file() or records.stat().st_size < 3 * packing.RECORD.itemsize:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "store").exists()
    seen = reading(monkeypatch)
    store = pack(ImageSet.folder(folder), tmp_path / "store", shorter=32, workers=0)
    assert 0 < len(seen) <= 7  # it went on where the other was stopped
    whole = pack(ImageSet.folder(folder), tmp_path / "whole", shorter=32, workers=0)
    assert isinstance(store, PackedSet) and torch.equal(store.buffer, whole.buffer)


def test_on_a_device_the_set_is_the_same(folder: Path, tmp_path: Path) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    store = pack(ImageSet.folder(folder), tmp_path / "store", shorter=64, workers=0)
    assert store.fits(device)
    moved, view, indices = store.to(device), TrainView(size=57, shorter=64), torch.arange(10)
    numbers = uniforms(0, 0, indices, view.draws)
    crops = moved.batch(indices.to(device), view, numbers.to(device))
    assert crops.device.type == device
    assert (crops.cpu().int() - store.batch(indices, view, numbers).int()).abs().max() <= 1
