import os
import signal
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from isosphere.data.decoding import decode
from isosphere.data.feed import loader
from isosphere.data.images import ImageSet
from isosphere.data.transforms import ShiftView, TestView, TrainView, shift, uniforms
from isosphere.data.workers import received
from isosphere.errors import Option, UnreadableImage, WorkerDied
from isosphere.samplers import ClassBatches, OrderedBatches, ShuffledBatches
from raised import raised


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Six classes of three photos of different sizes."""
    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for label in range(6):
        (root / f"class{label}").mkdir()
        for image in range(3):
            pixels = generator.integers(0, 256, (20 + 3 * label, 24 + 5 * image, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / f"class{label}" / f"{image}.png")
    return ImageSet.folder(root)


def small_pixels():
    pixels = torch.randint(0, 256, (30, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageSet.from_pixels(pixels, torch.arange(30) % 5, list("abcde"))


VIEW = TrainView(size=16, shorter=18)


def test_batches_follow_sampler_and_numbers(files):
    sampler = ClassBatches(files.labels, 8, 2, seed=3)
    batches = list(loader(files, sampler, VIEW, range(5, 8), seed=11))
    assert len(batches) == 3
    for step, batch in zip(range(5, 8), batches, strict=True):
        assert torch.equal(batch.indices, sampler.indices(step))
        assert torch.equal(batch.labels, files.labels[batch.indices])
        assert batch.images.shape == (8, 3, 16, 16) and batch.images.dtype == torch.uint8
        numbers = uniforms(11, step, torch.arange(8), VIEW.draws)
        for row, index in enumerate(batch.indices.tolist()):
            assert torch.equal(batch.images[row], VIEW(files[index], numbers[row]))


def test_workers_change_nothing(files):
    sampler = ClassBatches(files.labels, 8, 2, seed=0)
    alone = list(loader(files, sampler, VIEW, range(4), workers=0))
    state = torch.get_rng_state()
    for workers in (1, 2):
        for one, other in zip(alone, loader(files, sampler, VIEW, range(4), workers=workers), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("in_memory", [False, True])
def test_two_ranks_together_see_the_global_batch(files, in_memory):
    images, view = (small_pixels(), ShiftView(2)) if in_memory else (files, VIEW)
    for make in (
        lambda **kw: ClassBatches(images.labels, 8, 2, seed=4, **kw),
        lambda **kw: ShuffledBatches(len(images), 4, seed=4, views=2, **kw),
    ):
        whole = loader(images, make(), view, range(3))
        parts = [loader(images, make(rank=rank, world=2), view, range(3)) for rank in (0, 1)]
        for one, left, right in zip(whole, *parts, strict=True):
            for a, b, c in zip(one, left, right, strict=True):
                assert torch.equal(a, torch.cat([b, c]))


def test_views_of_an_image_differ(files):
    sampler = ShuffledBatches(len(files), 4, seed=0, views=2)
    batch = next(loader(files, sampler, VIEW, range(1)))
    assert torch.equal(batch.indices[::2], batch.indices[1::2])
    assert (batch.images[::2] != batch.images[1::2]).flatten(1).any(1).all()


@pytest.mark.parametrize("alike", [False, True])
def test_an_image_with_several_views_is_decoded_once(files, monkeypatch, alike):
    """Of different sizes, which are seen one by one, and of one size, which are seen at once."""
    chosen = files.subset(torch.tensor([0] if alike else [0, 3, 6, 9]))
    sampler = ShuffledBatches(len(chosen), len(chosen), seed=0, views=3)
    opened = []
    monkeypatch.setattr("isosphere.data.images.decode", lambda path: opened.append(path) or decode(path))
    batch = next(loader(chosen, sampler, VIEW, range(1), seed=5))
    assert sorted(opened) == sorted(chosen.paths) and len(batch.images) == 3 * len(opened)
    numbers = uniforms(5, 0, torch.arange(len(batch.images)), VIEW.draws)
    for row, index in enumerate(batch.indices.tolist()):
        assert torch.equal(batch.images[row], VIEW(chosen[index], numbers[row]))


def test_pixels_in_memory_are_gathered_and_shifted():
    images = small_pixels()
    sampler = ClassBatches(images.labels, 10, 2, seed=0)
    for step, batch in zip((4, 5), loader(images, sampler, ShiftView(1), range(4, 6), workers=3, seed=9), strict=True):
        indices = sampler.indices(step)
        expected = shift(images.pixels[indices], uniforms(9, step, torch.arange(10), 2), 1)
        assert torch.equal(batch.images, expected) and torch.equal(batch.labels, images.labels[indices])


def test_evaluation_reads_everything_in_order(files):
    view = TestView(size=16, shorter=18)
    batches = list(loader(files, OrderedBatches(len(files), 7), view, range(3), workers=1))
    assert torch.cat([batch.indices for batch in batches]).tolist() == list(range(18))
    assert torch.equal(batches[2].images[3], view(files[17]))
    images = small_pixels()
    plain = list(loader(images, OrderedBatches(30, 16), None, range(2)))
    assert torch.equal(torch.cat([batch.images for batch in plain]), images.pixels)


class Stripes:
    """A source of one's own, by the protocol alone: image i has i everywhere."""

    classes, note, paths, device, on_disk = ["a", "b"], "", None, None, True
    labels = torch.arange(12) % 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.full((3, 20, 20), index, dtype=torch.uint8)


@pytest.mark.parametrize("workers", [0, 1])
def test_any_source_of_images_will_do(workers):
    batches = loader(Stripes(), ClassBatches(Stripes.labels, 4, 2, seed=0), VIEW, range(2), workers=workers)
    for batch in batches:
        assert torch.equal(batch.images[:, 0, 0, 0].long(), batch.indices) and batch.images.shape == (4, 3, 16, 16)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_stops_the_loop_by_name(files, tmp_path, workers):
    bad = tmp_path / "cut.png"
    data = open(files.paths[4], "rb").read()
    bad.write_bytes(data[: len(data) // 2])
    paths = [*files.paths[:4], str(bad), *files.paths[5:]]
    broken = ImageSet(files.labels, files.classes, paths)
    feed = loader(broken, OrderedBatches(len(broken), 3), VIEW, range(6), workers=workers)
    assert len(next(feed).indices) == 3
    with pytest.raises(UnreadableImage) as caught:
        next(feed)
    assert caught.value.path == str(bad)


class Deadly:
    """A data set whose worker is killed at one item, as the system does when memory runs out."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(index)


def test_a_killed_worker_is_an_error_where_its_item_is_awaited():
    loader = DataLoader(Deadly(), batch_size=None, num_workers=2, generator=torch.Generator())
    handler, found = signal.getsignal(signal.SIGCHLD), received(loader)
    assert [len(next(found)) for _ in range(3)] == [0, 1, 2]
    time.sleep(0.3)  # it is dead by now, and nothing was raised here
    with raised(WorkerDied, cause="was killed by SIGKILL", option=Option("loop.workers", 1)):
        list(found)
    assert signal.getsignal(signal.SIGCHLD) == handler
