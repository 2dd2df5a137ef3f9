"""SimCLR's view, against torchvision's operators with the same parameters, image by image."""

from dataclasses import asdict
from itertools import permutations

import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from isosphere.data.colors import jitter_colors, to_gray, turn_hue
from isosphere.data.feed import Steps
from isosphere.data.images import ImageSet
from isosphere.data.transforms import TrainView, crop_boxes, uniforms
from isosphere.data.two_views import ContrastiveView
from isosphere.samplers import ShuffledBatches

CHANGES = (
    functional.adjust_brightness,
    functional.adjust_contrast,
    functional.adjust_saturation,
    functional.adjust_hue,
)


def photos(count, height=32, width=32, channels=3, seed=0):
    """Smooth random images with noise, some black, white and saturated pixels, uint8 (N, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    noisy = smooth + 0.2 * torch.randn(smooth.shape, generator=generator)
    noisy[:, 0, :2] = 1.0
    noisy[:, :, 2:4] = noisy[:, :1, 2:4]  # gray, whose hue is not defined
    return (noisy * 255).clamp(0, 255).round().to(torch.uint8)


def drawn(view, count, step=0):
    return uniforms(3, step, torch.arange(count), view.draws)


def torchvisions(image, row, view):
    """One image through torchvision's operators on floats, with parameters read off its numbers in a loop."""
    height, width = image.shape[-2:]
    box = crop_boxes(row[None, :22], torch.tensor([height]), torch.tensor([width]), view.scale, view.ratio)[0]
    # In floats: on uint8 torchvision interpolates with coarse weights, so that every sixth value is off by one.
    image = functional.resized_crop(image.float(), *box.tolist(), [view.size, view.size], antialias=False).round()
    image = functional.horizontal_flip(image) if row[22] < 0.5 else image
    image, row = image / 255, row.tolist()
    if row[23] < view.jitter_p:
        for change in sorted(range(4), key=lambda change: row[28 + change]):
            amount = (2 * row[24 + change] - 1) * view.jitter[change]
            image = CHANGES[change](image, amount if change == 3 else 1 + amount)
    if row[32] < view.gray_p:
        image = functional.rgb_to_grayscale(image, num_output_channels=image.shape[0])
    return image * 255


@pytest.mark.parametrize(("height", "width", "channels"), [(32, 32, 3), (40, 56, 3), (32, 32, 1)])
def test_a_view_is_torchvisions_up_to_the_rounding(height, width, channels):
    view, images = ContrastiveView(size=32, shorter=height), photos(200, height, width, channels)
    numbers = drawn(view, 200)
    views = view(images, numbers)
    expected = torch.stack([torchvisions(*both, view) for both in zip(images, numbers, strict=True)])
    assert views.dtype == torch.uint8 and views.shape == (200, channels, 32, 32)
    # Half a gray level is the last rounding; a few crops are rounded the other way and then jittered.
    difference = (views.float() - expected).abs()
    assert difference.quantile(0.999) < 0.51 and difference.max() < 2
    assert torch.equal(view(images[7], numbers[7]), views[7])
    assert torch.equal(view(images[100:], numbers[100:]), views[100:]), "an image does not depend on its neighbors"


def test_every_order_of_the_changes_is_torchvisions():
    orders = torch.tensor(list(permutations(range(4))))  # (24, 4)
    images = photos(24, 12, 12).float()
    numbers = uniforms(0, 0, torch.arange(24), 4)
    factors = torch.cat([0.6 + 0.8 * numbers[:, :3], 0.2 * numbers[:, 3:] - 0.1], 1)
    keys = orders.argsort(1) / 4  # when each change comes
    jittered = jitter_colors(images, keys, factors)
    for image, order, its, ours in zip(images, orders.tolist(), factors.tolist(), jittered, strict=True):
        expected = image / 255
        for change in order:
            expected = CHANGES[change](expected, its[change])
        torch.testing.assert_close(ours / 255, expected, rtol=0, atol=1e-4)
    reversed_order = jitter_colors(images, 1 - keys, factors)
    assert (reversed_order - jittered).abs().amax((1, 2, 3)).min() > 1, "the order matters, so this can fail"


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.03, 0.1, 0.5])
def test_hue_and_gray_are_torchvisions(turn):
    images = photos(8, 16, 16)
    floats = functional.to_dtype(images, torch.float32, scale=True)
    turned = turn_hue(images.float(), torch.full((8, 1, 1, 1), turn))
    torch.testing.assert_close(turned / 255, functional.adjust_hue(floats, turn), rtol=0, atol=1e-4)
    gray = functional.rgb_to_grayscale(floats, num_output_channels=1)
    torch.testing.assert_close(to_gray(images.float()) / 255, gray, rtol=0, atol=1e-5)


def test_parameters_are_distributed_as_torchvision_draws_them():
    # A flat gray image shows its brightness, a flat colored one its saturation, and contrast changes neither.
    flat = torch.full((3000, 3, 4, 4), 100, dtype=torch.uint8)
    crop = {"size": 4, "shorter": 4}
    bright = ContrastiveView(**crop, jitter=(0.4, 0, 0, 0), gray_p=0)
    level = bright(flat, drawn(bright, 3000))[:, 0, 0, 0].float()
    assert abs((level == 100).float().mean() - 0.2) < 0.03  # a fifth is left alone
    changed = level[level != 100]
    oracle = torch.stack([v2.ColorJitter(brightness=0.4)(flat[0])[0, 0, 0] for _ in range(500)]).float()
    assert changed.min() >= 60 and changed.max() <= 140
    assert abs(changed.mean() - oracle.mean()) < 4 and abs(changed.std() / oracle.std() - 1) < 0.12
    red = flat.clone()
    red[:, 1:] = 0
    gray = ContrastiveView(**crop, jitter_p=0, gray_p=0.2)
    channels = gray(red, drawn(gray, 3000))[:, :, 0, 0]
    assert abs((channels[:, 0] == channels[:, 2]).float().mean() - 0.2) < 0.03
    order = uniforms(0, 0, torch.arange(24000), ContrastiveView.draws)[:, 28:32].argsort(1)
    codes = (order * torch.tensor([64, 16, 4, 1])).sum(1).unique(return_counts=True)[1]
    assert len(codes) == 24 and ((codes - 1000.0) ** 2 / 1000).sum() < 60  # chi-square with 23 degrees


def test_the_defaults_are_those_of_appendix_b3():
    wanted = dict(size=32, shorter=32, scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3), flip=True)
    wanted |= dict(jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, gray_p=0.2, fit="crop", interpolation="bilinear")
    assert asdict(ContrastiveView()) == wanted


def test_without_colors_it_is_the_crop_of_a_train_view():
    view = ContrastiveView(size=24, shorter=32, jitter_p=0, gray_p=0)
    train, images = TrainView(size=24, shorter=32, scale=(0.2, 1.0)), photos(40, 50, 64)
    numbers = drawn(view, 40)
    difference = view(images, numbers).int() - train(images, numbers[:, : train.draws]).int()
    assert difference.abs().max() <= 1 and (difference == 0).float().mean() > 0.75  # its crops have coarse weights
    still = ContrastiveView(size=24, shorter=32, flip=False, jitter_p=0, gray_p=0)(images, numbers)
    mirrored = numbers[:, 22] < 0.5
    assert torch.equal(still[mirrored].flip(-1), view(images, numbers)[mirrored]) and 5 < mirrored.sum() < 35


def test_images_of_any_size_one_by_one():
    view = ContrastiveView(size=28, shorter=30)
    for height, width in ((90, 41), (30, 30), (17, 60)):
        image = photos(1, height, width)[0]
        numbers = drawn(view, 1)[0]
        expected = torchvisions(v2.Resize(30, antialias=True)(image), numbers, view)
        assert (view(image, numbers).float() - expected).abs().max() < 2


def test_two_views_of_an_image_stand_side_by_side_and_differ():
    images = ImageSet.from_pixels(photos(12), torch.zeros(12, dtype=torch.long), ["all"])
    view = ContrastiveView()
    steps = Steps(images, ShuffledBatches(12, 4, seed=0, views=2), view, seed=0)
    batch = steps[1]
    assert batch.images.shape == (8, 3, 32, 32) and batch.images.dtype == torch.uint8
    first, second = batch.indices.view(4, 2).T
    assert torch.equal(first, second) and len(first.unique()) == 4
    assert (batch.images[::2] != batch.images[1::2]).flatten(1).float().mean(1).min() > 0.5
    parts = [Steps(images, ShuffledBatches(12, 4, 0, 2, rank, 2), view, 0)[1].images for rank in range(2)]
    assert torch.equal(torch.cat(parts), batch.images), "two ranks together see what one process sees"


def test_one_graph_without_breaks():
    torch._dynamo.reset()
    view, images, positions = ContrastiveView(), photos(6), torch.arange(6)

    def augmented(images, step):
        return view(images, uniforms(5, step, positions, view.draws))

    compiled = torch.compile(augmented, backend="aot_eager", fullgraph=True)
    for step in (0, 7):
        assert torch.equal(compiled(images, torch.tensor(step)), augmented(images, torch.tensor(step)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_on_the_gpu_and_in_a_graph():
    view, images, positions = ContrastiveView(), photos(64), torch.arange(64, device="cuda")
    pixels, step = images.cuda(), torch.tensor(0, device="cuda")

    def augmented():
        return view(pixels, uniforms(5, step, positions, view.draws))

    augmented()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        views = augmented()
    for value in (0, 7):
        step.fill_(value)
        graph.replay()
        expected = view(images, uniforms(5, value, positions.cpu(), view.draws))
        difference = (views.cpu().int() - expected.int()).abs()
        assert difference.max() <= 2 and (difference == 0).float().mean() > 0.999
