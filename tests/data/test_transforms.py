import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from isosphere.data.crops import sample_crops
from isosphere.data.fits import resize_shorter
from isosphere.data.transforms import (
    CROP_DRAWS,
    ShiftView,
    Staged,
    TestView,
    TrainView,
    apply_crop,
    center_crop,
    crop_boxes,
    flips,
    shift,
    uniforms,
)
from isosphere.data.two_views import ContrastiveView


def photo(height, width, seed=0):
    """A smooth random image, uint8 (3, H, W)."""
    coarse = torch.rand(1, 3, 9, 9, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
    return (smooth * 255).round().to(torch.uint8)


def scalar_uniform(seed, step, position, draw):
    """The hash in plain Python integers: one splitmix64 step for each part of the key."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(value, stage):
        value = (value + stage * golden) & mask
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        return value ^ (value >> 31)

    key = mixed(mixed(mixed(seed, 1) + step, 2) + position, 3)
    return (mixed(key + draw * golden, 4) >> 40) / 2**24


def test_uniforms_are_the_hash_in_plain_integers():
    positions = torch.tensor([0, 1, 17, 2**40])
    for seed, step in ((0, 0), (1, 2), (2**62, 123456)):
        numbers = uniforms(seed, step, positions, 3)
        expected = [[scalar_uniform(seed, step, p, d) for d in range(3)] for p in positions.tolist()]
        assert numbers.dtype == torch.float32 and numbers.tolist() == expected
        assert torch.equal(numbers, uniforms(seed, torch.tensor(step), positions, 3))


def test_uniforms_depend_on_nothing_but_their_key():
    whole = uniforms(5, 9, torch.arange(64), 8)
    assert torch.equal(whole[32:], uniforms(5, 9, torch.arange(32, 64), 8))
    assert torch.equal(whole[:, :3], uniforms(5, 9, torch.arange(64), 3))
    for other in (uniforms(6, 9, torch.arange(64), 8), uniforms(5, 10, torch.arange(64), 8)):
        assert not (whole == other).any()


def test_uniforms_are_uniform_and_independent():
    numbers = torch.stack([uniforms(3, step, torch.arange(500), 8) for step in range(50)]).double()  # (50, 500, 8)
    assert 0 <= numbers.min() and numbers.max() < 1
    counts = torch.histc(numbers.float(), 100, 0, 1)
    assert ((counts - 2000) ** 2 / 2000).sum() < 150  # chi-square with 99 degrees: mean 99, deviation 14
    # Correlations between neighboring steps, positions and draws, each of about 200,000 pairs: deviation 0.0023.
    centered = (numbers - 0.5) * 12**0.5
    for left, right in (
        (centered[1:], centered[:-1]),
        (centered[:, 1:], centered[:, :-1]),
        (centered[..., 1:], centered[..., :-1]),
    ):
        assert (left * right).mean().abs() < 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_uniforms_and_boxes_are_the_same_on_the_gpu_and_in_a_graph():
    positions, step = torch.arange(64, device="cuda"), torch.tensor(7, device="cuda")
    sizes = torch.randint(64, 512, (2, 64))
    uniforms(1, step, positions, CROP_DRAWS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        numbers = uniforms(1, step, positions, CROP_DRAWS)
    for value in (7, 8):
        step.fill_(value)
        graph.replay()
        expected = uniforms(1, value, positions.cpu(), CROP_DRAWS)
        assert torch.equal(numbers.cpu(), expected)
        assert torch.equal(crop_boxes(numbers, *sizes.cuda()).cpu(), crop_boxes(expected, *sizes))


def looped_box(numbers, height, width, scale, ratio):
    """RandomResizedCrop written as a loop over its attempts."""
    for attempt in range(10):
        area = (scale[0] + (scale[1] - scale[0]) * numbers[attempt]) * height * width
        aspect = np.exp(np.log(ratio[0]) + (np.log(ratio[1]) - np.log(ratio[0])) * numbers[10 + attempt])
        w, h = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return [int(numbers[20] * (height - h + 1)), int(numbers[21] * (width - w + 1)), h, w]
    if width / height < ratio[0]:
        h, w = round(width / ratio[0]), width
    elif width / height > ratio[1]:
        h, w = height, round(height * ratio[1])
    else:
        h, w = height, width
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize("scale", [(0.16, 1.0), (0.9, 1.0)])
def test_crop_boxes_are_the_loop_and_stay_inside(scale):
    generator = torch.Generator().manual_seed(0)
    heights, widths = torch.randint(2, 400, (2, 300), generator=generator)
    heights[:3], widths[:3] = torch.tensor([1, 10, 500]), torch.tensor([1, 500, 10])  # extremes need the fallback
    numbers = uniforms(0, 0, torch.arange(300), CROP_DRAWS)
    boxes = crop_boxes(numbers, heights, widths, scale)
    ratio = (3 / 4, 4 / 3)
    sizes = zip(heights.tolist(), widths.tolist(), strict=True)
    for box, row, (height, width) in zip(boxes.tolist(), numbers.tolist(), sizes, strict=True):
        assert box == looped_box(row, height, width, scale, ratio)
        assert min(box) >= 0 and box[2] > 0 < box[3] and box[0] + box[2] <= height and box[1] + box[3] <= width


@pytest.mark.parametrize(("height", "width"), [(256, 256), (256, 400), (100, 420)])
def test_crop_boxes_are_distributed_as_torchvision_draws_them(height, width):
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    oracle = v2.RandomResizedCrop.get_params
    drawn = torch.tensor([oracle(image, [0.16, 1.0], [3 / 4, 4 / 3]) for _ in range(2000)]).double()
    count = torch.full((4000,), 1)
    ours = crop_boxes(uniforms(0, 0, torch.arange(4000), CROP_DRAWS), count * height, count * width).double()
    for a, b in ((drawn, ours), (drawn[:, 2:].prod(1, True), ours[:, 2:].prod(1, True))):
        error = (a.var(0) / len(a) + b.var(0) / len(b)).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 4 * error + 1e-9).all()
        assert ((a.std(0) / b.std(0).clamp_min(1e-9)).log().abs()[b.std(0) > 0] < 0.08).all()


def test_flips_are_half():
    numbers = uniforms(0, 0, torch.arange(4000), 1)[:, 0]
    assert flips(numbers).dtype == torch.bool and abs(flips(numbers).double().mean() - 0.5) < 0.03


def test_crop_and_resize_are_torchvisions():
    image = photo(120, 200)
    box = torch.tensor([7, 31, 90, 111])
    expected = functional.resized_crop(image, 7, 31, 90, 111, [64, 64], antialias=False)
    assert torch.equal(apply_crop(image, box, False, 64), expected)
    assert torch.equal(apply_crop(image, box, torch.tensor(True), 64), functional.horizontal_flip(expected))
    assert torch.equal(resize_shorter(image, 96), v2.Resize(96, antialias=True)(image))
    assert resize_shorter(image, 96).shape == (3, 96, 160)
    assert torch.equal(center_crop(image, 80), v2.CenterCrop(80)(image))


def test_train_view_crops_the_resized_image():
    view, image = TrainView(size=48, shorter=64), photo(100, 150)
    numbers = uniforms(2, 5, torch.arange(12), view.draws)
    small = v2.Resize(64, antialias=True)(image)
    for row in numbers:
        box = looped_box(row.tolist(), 64, 96, (0.16, 1.0), (3 / 4, 4 / 3))
        expected = functional.resized_crop(small, *box, [48, 48], antialias=False)
        expected = expected.flip(-1) if row[22] < 0.5 else expected
        assert torch.equal(view(image, row), expected)
    assert {bool(row[22] < 0.5) for row in numbers} == {True, False}
    stacked = view(image.expand(12, -1, -1, -1), numbers)
    assert stacked.shape == (12, 3, 48, 48) and torch.equal(stacked[3], view(image, numbers[3]))
    plain = TrainView(size=48, shorter=64, flip=False)
    assert torch.equal(plain(image, numbers[0]), view(image, numbers[0]).flip(-1 if numbers[0, 22] < 0.5 else ()))


def test_test_view_is_resize_and_center_crop():
    image = photo(90, 130)
    expected = v2.Compose([v2.Resize(64, antialias=True), v2.CenterCrop(56)])(image)
    assert torch.equal(TestView(size=56, shorter=64)(image), expected)
    batch = TestView(size=56, shorter=64)(torch.stack([image, image]))
    assert torch.equal(batch[1], expected)


def test_shift_moves_pixels_and_repeats_edges():
    images = torch.randint(0, 256, (40, 2, 7, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    numbers = uniforms(0, 0, torch.arange(40), 2)
    shifted = shift(images, numbers, 2)
    moves = set()
    for image, moved, (down, right) in zip(images, shifted, numbers.tolist(), strict=True):
        dy, dx = int(down * 5) - 2, int(right * 5) - 2
        moves |= {dy, dx}
        padded = np.pad(image.numpy(), ((0, 0), (2, 2), (2, 2)), mode="edge")
        assert np.array_equal(moved.numpy(), padded[:, 2 + dy : 9 + dy, 2 + dx : 11 + dx])
    assert moves == {-2, -1, 0, 1, 2}
    assert torch.equal(ShiftView(2)(images, numbers), shifted)
    assert torch.equal(ShiftView(2)(images[3], numbers[3]), shifted[3])
    assert torch.equal(ShiftView(0)(images, numbers), images)


@pytest.mark.parametrize(
    "view",
    [TrainView(24, 30), TestView(24, 30), ContrastiveView(24, 30)],
    ids=lambda view: type(view).__name__,
)
@pytest.mark.parametrize("size", [(40, 50), (90, 31), (20, 70), (30, 30)])
def test_a_view_is_its_first_stage_and_the_rest(view: Staged, size: tuple[int, int]) -> None:
    image, numbers = photo(*size), uniforms(0, 1, torch.arange(3), view.draws)
    stored = view.stored(image)
    assert stored.dtype == torch.uint8 and min(stored.shape[1:]) == 30
    assert torch.equal(view.stored(stored), stored), "what is stored stays"
    whole = torch.stack([view(image, its) for its in numbers])
    assert torch.equal(whole, torch.stack([view.rest(stored, its) for its in numbers]))
    assert torch.equal(whole, view.rest(torch.stack([stored] * 3), numbers))
    assert torch.equal(whole, view(stored.expand(3, -1, -1, -1), numbers))
    sides = (torch.full((3,), side) for side in stored.shape[1:])
    boxes, flipped = view.boxes(numbers, *sides)
    pixels, starts = stored.permute(1, 2, 0).reshape(-1, 3), torch.zeros(3, dtype=torch.long)
    crops = sample_crops(pixels, starts, torch.full((3,), stored.shape[2]), boxes, flipped, view.size)
    if not isinstance(view, ContrastiveView):  # whose colors may carry a level further
        assert (view.finish(crops, numbers).int() - whole.int()).abs().max() <= 1
    else:
        assert torch.equal(view.finish(crops, numbers), whole)
