"""Looks of images: what keeps them, what does not, and the nearest by a loop."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.cache import cached
from isosphere.data.decoding import in_memory
from isosphere.data.fits import Stored
from isosphere.data.images import ImageSet
from isosphere.data.looks import BITS, NEAR, alike, look
from isosphere.data.readable import readable_images
from isosphere.data.rendered import rendered


def photo(seed, height=150, width=200):
    """Soft shapes with some grain."""
    generator = torch.Generator().manual_seed(seed)
    soft = torch.rand(1, 3, 6, 7, generator=generator)
    image = torch.nn.functional.interpolate(soft, (height, width), mode="bicubic")[0].clamp(0, 1)
    grain = torch.rand(3, height, width, generator=generator)
    return Image.fromarray((230 * image + 20 * grain).to(torch.uint8).permute(1, 2, 0).numpy())


def again(image, quality):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


CHANGED = {
    "itself": lambda image: image,
    "saved again": lambda image: again(image, 40),
    "half as large": lambda image: image.resize((100, 75)),
    "twice as large": lambda image: image.resize((400, 300)),
    "brighter": lambda image: image.point(lambda value: min(255, round(1.15 * value))),
    "a little cropped": lambda image: image.crop((1, 1, 199, 149)),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_image_looks_nearly_the_same_and_another_does_not(change):
    ours = torch.stack([look(in_memory(photo(seed))) for seed in range(30)])
    theirs = torch.stack([look(in_memory(CHANGED[change](photo(seed)))) for seed in range(15, 40)])
    assert ours.shape == (30, 2) and ours.dtype == torch.int64
    assert alike(theirs, ours) == {row: 15 + row for row in range(15)}


def test_a_cropped_or_mirrored_image_is_another():
    ours = torch.stack([look(in_memory(photo(seed))) for seed in range(10)])
    for change in (lambda image: image.crop((40, 30, 200, 150)), lambda image: image.transpose(Image.FLIP_LEFT_RIGHT)):
        assert alike(torch.stack([look(in_memory(change(photo(seed)))) for seed in range(10)]), ours) == {}


@pytest.mark.parametrize("fit", ["crop", "pad"])
def test_a_cache_keeps_the_looks_of_its_files_whatever_it_stores(tmp_path, fit):
    (tmp_path / "photos").mkdir()
    for seed in range(5):
        photo(seed, 40 + 7 * seed, 60).save(tmp_path / "photos" / f"{seed}.png")
    images = ImageSet.flat(tmp_path / "photos")
    wanted = torch.stack([look(images[index]) for index in range(5)])
    for _ in range(2):  # made, then found
        held = cached(images, Stored.of((24, 16), 16, fit), tmp_path / "photos", str(tmp_path / "cache"))
        assert torch.equal(held.looks, wanted) and torch.equal(held.subset([3, 1]).looks, wanted[[3, 1]])
    assert torch.equal(readable_images(images).looks, wanted) and torch.equal(images.subset([4]).looks, wanted[[4]])


def test_plain_images_are_like_none():
    plain = torch.stack([look(torch.full((3, 40, 30), gray, dtype=torch.uint8)) for gray in (0, 200, 255)])
    assert alike(plain, plain) == {}
    assert look(torch.zeros(1, 1, 1, dtype=torch.uint8)).tolist() == [0, 0]


def test_characters_on_plain_paper_are_told_apart():
    images = rendered(120, 1, size=48)
    looks = torch.stack([look(image) for image in images.pixels])
    assert len(alike(looks[:60], looks[60:])) <= 1


def test_the_nearest_is_that_of_a_loop(monkeypatch):
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2, (40, BITS), dtype=np.uint8)
    others = bits[generator.integers(0, 40, 70)].copy()
    for row in others:  # from none to 19 bits of each are turned
        row[generator.permutation(BITS)[: generator.integers(0, 20)]] ^= 1
    bits[0], others[0] = 0, 0
    bits[0, :9] = others[0, :9] = 1  # one that says little
    bits[1], others[1] = 0, 0
    bits[1, :7] = others[1, :7] = 1  # and one that says nothing
    packed = [torch.from_numpy(np.packbits(one, axis=1).view("<i8").copy()) for one in (bits, others)]
    wanted = {}
    for number, one in enumerate(bits):
        distances = (one != others).sum(1)
        rare = np.minimum(one.sum(), BITS - one.sum()), np.minimum(others.sum(1), BITS - others.sum(1))
        limits = np.minimum(NEAR, np.minimum(*rare) // 5)
        near = np.flatnonzero((distances <= limits) & (np.minimum(*rare) > NEAR))
        if len(near):
            wanted[number] = near[distances[near].argmin()]
    monkeypatch.setattr("isosphere.data.looks.PAIRS", 7)
    assert alike(*packed) == wanted and 10 < len(wanted) < 40 and wanted[0] == 0 and 1 not in wanted
    assert alike(packed[0], packed[1][:0]) == alike(packed[0][:0], packed[1]) == {}
