"""Sizes of any shape: what is seen of an image, in every way that a view is computed."""

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.crops import sample_crops
from isosphere.data.fits import GRAY, Stored, contained, covering
from isosphere.data.images import ImageSet
from isosphere.data.transforms import TestView, TrainView, uniforms
from isosphere.data.two_views import ContrastiveView
from isosphere.errors import BadArgument
from isosphere.recipes import options, schema
from isosphere.recipes.retrieval import PHOTOS
from raised import raised

FITS = ("crop", "pad", "squash")
SHAPES = ((40, 20), (90, 30), (30, 90), (24, 24), (7, 5), (47, 24), (1, 60))


def picture(height, width, seed=0):
    """Soft colors, so that rounding and not the grain decides; corners are marked."""
    generator = torch.Generator().manual_seed(seed)
    soft = torch.rand(1, 3, 3, 3, generator=generator)
    image = torch.nn.functional.interpolate(soft, (height, width), mode="bilinear", align_corners=True)[0]
    return (image * 255).to(torch.uint8)


@pytest.mark.parametrize("size", [24, (24, 24), (32, 16), (16, 24), (30, 20)])
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("given", SHAPES)
def test_a_view_has_its_size_and_a_cache_and_a_gpu_see_the_same(size, fit, given):
    image, high, wide = picture(*given), *((size, size) if isinstance(size, int) else size)
    shorter = min(high, wide) + 4
    numbers = uniforms(0, 3, torch.arange(2), TrainView.draws)
    for view in (TestView(size, shorter, fit), TrainView(size, shorter, fit=fit)):
        whole = torch.stack([view(image, its) for its in numbers])
        assert whole.shape == (2, 3, high, wide) and whole.dtype == torch.uint8
        held = view.stored(image)
        assert torch.equal(view.stored(held), held), "what is stored already stays as it is"
        assert torch.equal(torch.stack([view(held, its) for its in numbers]), whole)
        if fit != "crop":
            assert held.shape[1:] == view.stored.frame
        sides = (torch.full((2,), side) for side in held.shape[1:])
        boxes, flipped = view.boxes(numbers, *sides)
        assert (boxes >= 0).all() and (boxes[:, 0] + boxes[:, 2] <= held.shape[1]).all()
        buffer, widths = held.permute(1, 2, 0).reshape(-1, 3), torch.full((2,), held.shape[2])
        batched = view.finish(sample_crops(buffer, torch.zeros_like(widths), widths, boxes, flipped, size), numbers)
        assert (batched.int() - whole.int()).abs().max() <= 1
    assert Stored.of(size, shorter, fit).holds(size) and not Stored.of(size, shorter, fit).holds((high, wide + 1))


def test_squares_are_as_before_and_share_their_cache_with_larger_ones():
    assert Stored.of(24, 32, "crop") == Stored.of((24, 24), 32, "crop") == Stored(32) == Stored.of(30, 32, "crop")
    assert Stored.of((32, 16), 20, "pad").frame == (40, 20) == Stored.of((2, 1), 20, "pad").frame
    assert not Stored(20).holds(24) and Stored(20).holds(20)


@pytest.mark.parametrize("fit", ["pad", "squash"])
@pytest.mark.parametrize("given", [(40, 20), (90, 30), (30, 90), (24, 24)])
def test_a_tall_image_is_seen_whole(fit, given):
    """Its four corners have colors of their own, which a crop would lose."""
    height, width = given
    image = torch.full((3, height, width), 128, dtype=torch.uint8)
    corners = {(0, 0): (255, 0, 0), (0, -1): (0, 255, 0), (-1, 0): (0, 0, 255), (-1, -1): (255, 255, 0)}
    for (row, column), color in corners.items():
        rows = slice(0, height // 4) if row == 0 else slice(-(height // 4), None)
        columns = slice(0, width // 4) if column == 0 else slice(-(width // 4), None)
        image[:, rows, columns] = torch.tensor(color, dtype=torch.uint8)[:, None, None]
    seen = TestView((64, 32), 36, fit)(image)
    for color in corners.values():
        near = (seen.int() - torch.tensor(color)[:, None, None]).abs().amax(0) < 40
        assert near.sum() >= 8
    lost = TestView((64, 32), 36, "crop")(image)
    if given in ((30, 90), (24, 24)):
        far = [(lost.int() - torch.tensor(color)[:, None, None]).abs().amax(0) for color in corners.values()]
        assert min(its.min() for its in far) >= 40


def test_padding_keeps_proportions_and_is_the_mean_color():
    seen = TestView((64, 32), 32, "pad")(torch.zeros(3, 10, 10, dtype=torch.uint8))
    assert (seen[:, 16:48] == 0).all()
    around = torch.cat([seen[:, :16], seen[:, 48:]], 1)
    assert (around == torch.tensor(GRAY, dtype=torch.uint8)[:, None, None]).all()
    assert TestView(8, 8, "pad")(torch.zeros(1, 4, 8, dtype=torch.uint8)).shape == (1, 8, 8)


FRAMED = [((40, 20), (64, 32)), ((90, 30), (20, 40)), ((3, 100), (30, 30)), ((7, 7), (9, 5))]


@pytest.mark.parametrize(("given", "frame"), FRAMED)
def test_sizes_by_the_definition(given, frame):
    cover, inside = covering(*given, *frame), contained(*given, *frame)
    assert cover[0] >= frame[0] and cover[1] >= frame[1] and (cover[0] == frame[0] or cover[1] == frame[1])
    assert inside[0] <= frame[0] and inside[1] <= frame[1] and (inside[0] == frame[0] or inside[1] == frame[1])
    scale = max(frame[0] / given[0], frame[1] / given[1])
    assert np.abs(np.array(cover) - np.array(given) * scale).max() <= 1
    scale = min(frame[0] / given[0], frame[1] / given[1])
    assert np.abs(np.array(inside) - np.array(given) * scale).max() <= 1


def test_training_crops_keep_the_proportions_of_the_frame():
    view = TrainView((64, 32), 36, scale=(0.5, 0.5), ratio=(1.0, 1.0), fit="squash")
    numbers = uniforms(0, 0, torch.arange(50), view.draws)
    boxes, _ = view.boxes(numbers, *(torch.full((50,), side) for side in view.stored.frame))
    assert ((boxes[:, 2] / boxes[:, 3] - 2).abs() < 0.1).all()


def test_two_views_have_any_size_too():
    view = ContrastiveView((24, 12), 16, fit="pad")
    numbers = uniforms(0, 0, torch.arange(2), view.draws)
    assert view(torch.stack([picture(30, 20), picture(30, 20, 1)]), numbers).shape == (2, 3, 24, 12)


@pytest.mark.parametrize(
    ("text", "sides", "shape"), [("64", (64, 64), 64), ("64x32", (64, 32), (64, 32)), ("48x48", (48, 48), 48)]
)
def test_sizes_on_the_command_line(text, sides, shape):
    data = options.override(PHOTOS, {"data.size": text}).data
    assert data.sides == sides and data.shape == shape
    assert options.from_dict(schema.Recipe, options.to_dict(options.override(PHOTOS, {"data.size": text}))).data == data


@pytest.mark.parametrize("size", ["64x", "x32", "64x0", "0x3", "axb", "64X32", "-1x4", "64x32x3"])
def test_sizes_that_cannot_be_are_refused(size):
    with raised(BadArgument, name="size"):
        schema.Folder(size=size)
    with raised(BadArgument, name="shorter"):
        schema.Folder(size="300x290")


def test_files_of_many_shapes_make_one_batch(tmp_path):
    for number, (height, width) in enumerate(SHAPES[:4]):
        Image.fromarray(picture(height, width).permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    images = ImageSet.flat(tmp_path)
    for fit in FITS:
        assert images.batch(torch.arange(4), TestView((20, 10), 12, fit)).shape == (4, 3, 20, 10)
