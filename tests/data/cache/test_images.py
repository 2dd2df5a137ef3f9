"""Images of a cache: their pixels against decoding one by one, crops against torchvision, where they live, damage."""

import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

from caches import opened, photographs, stored_of
from isosphere.data import CachedSet, ImageSet
from isosphere.data.cache import images as cached_images
from isosphere.data.crops import sample_crops
from isosphere.data.feed import Steps
from isosphere.data.transforms import TestView, TrainView, central_boxes, uniforms
from isosphere.errors import DamagedCacheWarning, DamagedFile, UnreadableImage
from isosphere.samplers import OrderedBatches
from raised import raised


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return photographs(tmp_path / "photos")


@pytest.fixture
def images(folder: Path) -> ImageSet:
    return ImageSet.folder(folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_image_is_there_as_torchvision_resizes_it(images: ImageSet, tmp_path: Path, workers: int) -> None:
    store = opened(images, tmp_path / "cache", 64, workers)
    assert len(store) == 10 and store.classes == ["class0", "class1", "class2"]
    assert torch.equal(store.labels, images.labels) and store.paths == images.paths
    for index in range(10):
        assert torch.equal(store[index], stored_of(images, index, 64)) and store[index].is_contiguous()
        assert store.sides[index].tolist() == list(images[index].shape[1:])


def test_subsets_share_the_pixels_and_are_relabeled(images: ImageSet, tmp_path: Path) -> None:
    store = opened(images, tmp_path, 32)
    part, plain = store.of_classes([1, 2]), images.of_classes([1, 2])
    assert part.classes == plain.classes and torch.equal(part.labels, plain.labels)
    assert part.buffer.data_ptr() == store.buffer.data_ptr()
    assert all(torch.equal(part[i], stored_of(plain, i, 32)) for i in range(len(plain)))
    assert torch.equal(store.subset([9, 0]).subset([1])[0], store[0])


def test_a_worker_that_was_not_forked_maps_the_file_again(images: ImageSet, tmp_path: Path) -> None:
    store = opened(images, tmp_path, 32).subset([9, 0, 4])
    view, how = TestView(size=24, shorter=32), {"num_workers": 1, "multiprocessing_context": "spawn", "timeout": 60}
    steps = Steps(store, OrderedBatches(3, 2), view, seed=0)
    seen = [batch.images for batch in DataLoader(steps, batch_size=None, sampler=range(2), **how)]
    assert torch.equal(torch.cat(seen), store.batch(torch.arange(3), view))
    assert len(pickle.dumps(store)) < store.buffer.numel() / 2, "pixels are not copied"


def test_crops_equal_torchvision_for_the_same_boxes_within_one_gray_level(images: ImageSet, tmp_path: Path) -> None:
    store = opened(images, tmp_path, 64)
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


@pytest.mark.parametrize("where", ["mapped", "in memory"])
def test_batches_equal_the_views_of_the_worker_path(images: ImageSet, tmp_path: Path, where: str) -> None:
    store = on_cpu(opened(images, tmp_path, 64)) if where == "mapped" else opened(images, tmp_path, 64).to("cpu")
    indices = torch.tensor([7, 0, 0, 3, 9])
    train, test = TrainView(size=57, shorter=64), TestView(size=57, shorter=64)
    numbers = uniforms(5, 11, torch.arange(5), train.draws)
    crops = store.batch(indices, train, numbers)
    assert crops.shape == (5, 3, 57, 57) and crops.dtype == torch.uint8
    assert crops.is_contiguous(memory_format=torch.channels_last)
    plain = torch.stack([train(images[i], its) for i, its in zip(indices.tolist(), numbers, strict=True)])
    assert (crops.int() - plain.int()).abs().max() <= 1
    assert not torch.equal(crops[1], crops[2])  # one image, two positions, two crops
    centers = store.batch(indices, test)
    assert torch.equal(centers, torch.stack([test(images[i]) for i in indices.tolist()]))
    assert torch.equal(store.read(indices, train, numbers), plain), "image by image they have the bits of files"


def test_chunks_change_nothing_and_the_batch_compiles_to_one_graph(
    images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, indices, view = opened(images, tmp_path, 32).to("cpu"), torch.arange(10), TrainView(size=24, shorter=32)

    def step(indices: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return store.batch(indices, view, uniforms(0, step, torch.arange(len(indices)), view.draws))

    whole = step(indices, torch.tensor(3))
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(indices, torch.tensor(3)), whole)
    monkeypatch.setattr(cached_images, "CHUNK", 4)
    assert torch.equal(step(indices, torch.tensor(3)), whole)


def test_central_boxes_of_odd_and_even_remainders() -> None:
    for side in range(64, 72):
        image = torch.arange(side * 70).view(1, side, 70)
        top, left, height, width = central_boxes(torch.tensor([side]), torch.tensor([70]), 57)[0].tolist()
        crop = image[:, top : top + height, left : left + width]
        assert torch.equal(crop, functional.center_crop(image, [57, 57]))


def test_fused_crops_are_the_plain_ones(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(images, tmp_path, 16).to("cpu")
    view, indices = TrainView(8, 16), torch.arange(len(store))
    numbers = uniforms(0, 1, indices, view.draws)
    plain = store.batch(indices, view, numbers)
    compiled = torch.compile(sample_crops, backend="aot_eager")
    monkeypatch.setattr(cached_images, "compiled_crops", lambda: compiled)
    store.fuse_crops()
    assert store.crops is compiled
    assert (store.batch(indices, view, numbers).int() - plain.int()).abs().max() <= 1


# ---------------------------------------------------------------- where the pixels live


def on_cpu(store: CachedSet) -> CachedSet:
    """With batches made at once, on the CPU, from the mapped file."""
    store.device = torch.device("cpu")
    return store


def test_on_a_device_the_set_is_the_same(images: ImageSet, tmp_path: Path) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    store = opened(images, tmp_path, 64).subset([8, 2, 5, 5, 0])
    assert store.fits(device)
    moved, view, indices = store.to(device), TrainView(size=57, shorter=64), torch.arange(5)
    assert moved.buffer.numel() == store.nbytes and moved.device.type == device and not moved.on_disk
    assert all(torch.equal(moved[index].cpu(), store[index]) for index in range(5))
    numbers = uniforms(0, 0, indices, view.draws)
    crops = moved.batch(indices, view, numbers.to(device))
    assert crops.device.type == device
    assert (crops.cpu().int() - on_cpu(store).batch(indices, view, numbers).int()).abs().max() <= 1
    assert store.placed("cpu") is store


def test_a_share_of_a_devices_free_memory(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(images, tmp_path, 32)
    free = 2 * store.nbytes
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10 * free))
    assert store.fits("cuda") and not store.fits("cuda", 0.49) and store.fits("cpu", 0.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 2, 10 * free))
    placed = store.placed("cuda")
    assert placed.device == torch.device("cuda") and not placed.resident and not placed.on_disk


# ---------------------------------------------------------------- pixels that have changed


def flip(store: CachedSet, index: int) -> None:
    """Another value of one byte of an image, in the file."""
    with open(store.file, "r+b") as file:
        file.seek(3 * int(store.starts[index]) + 5)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def images_of(store: CachedSet, way: str) -> list[torch.Tensor]:
    """All images after they were used in a way."""
    if way == "a batch":
        on_cpu(store).batch(torch.arange(10), TestView(16, 16))
    used = store.to("cpu") if way == "in memory" else store
    return [used[index] for index in range(10)]


@pytest.mark.parametrize("way", ["one image", "a batch", "in memory"])
def test_a_changed_byte_is_seen_when_its_image_is_used(images: ImageSet, tmp_path: Path, way: str) -> None:
    opened(images, tmp_path, 16)
    flip(opened(images, tmp_path, 16), 4)
    store = opened(images, tmp_path, 16)  # opening reads no pixels
    with pytest.warns(DamagedCacheWarning) as caught:
        found = images_of(store, way)
    assert [warning.message.names for warning in caught] == [[images.paths[4]]]
    assert all(torch.equal(found[index], stored_of(images, index, 16)) for index in range(10))
    again = opened(images, tmp_path, 16)  # which has decoded it again, for good
    assert all(torch.equal(again[index], stored_of(images, index, 16)) for index in range(10))


def test_checksums_are_compared_once_by_all_workers(images: ImageSet, tmp_path: Path) -> None:
    store = opened(images, tmp_path, 32)
    steps = Steps(store, OrderedBatches(10, 5), TestView(24, 32), seed=0)
    assert not store.origin.checked.any()
    list(DataLoader(steps, batch_size=None, sampler=range(2), num_workers=2))
    assert store.origin.checked.all() and store.subset([1, 2]).origin.checked is store.origin.checked


@pytest.mark.filterwarnings("ignore::isosphere.errors.DamagedCacheWarning")
def test_a_changed_byte_of_an_image_whose_file_is_gone_or_another(images: ImageSet, tmp_path: Path) -> None:
    opened(images, tmp_path, 16)
    store = opened(images, tmp_path, 16)
    flip(store, 4)
    flip(store, 7)
    Path(images.paths[7]).unlink()
    Path(images.paths[4]).write_bytes(Path(images.paths[5]).read_bytes())
    with raised(DamagedFile, path=store.origin.folder):
        store[4]
    with raised(UnreadableImage, path=images.paths[7]):
        store[7]
    assert torch.equal(store[5], stored_of(images, 5, 16))
