"""RandAugment, color jitter and random erasing of a batch, against torchvision's of one image at a time."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from isosphere.data import erasing
from isosphere.data.augmentation import AFTER_VIEWS, Augmentation
from isosphere.data.randaugment import DRAWS, OPERATIONS, augment, rand_augment
from isosphere.data.transforms import TrainView, uniforms
from isosphere.data.two_views import ContrastiveView


def pictures(count: int, height: int = 40, width: int = 48) -> Tensor:
    """Smooth colors with noise, each in a range of its own; the last one is flat."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 5, 6, generator=generator) * torch.linspace(0.3, 1, count).view(-1, 1, 1, 1)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear") * 230
    found = (smooth + 25 * torch.rand(count, 3, height, width, generator=generator)).to(torch.uint8)
    found[-1] = 77
    return found


def oracle(image: Tensor, name: str, magnitude: int, sign: float) -> Tensor:
    """torchvision's operation of that name."""
    policy = v2.RandAugment()
    steps, signed = policy._AUGMENTATION_SPACE[name]
    values = steps(31, *image.shape[1:])
    value = 0.0 if values is None else float(values[magnitude]) * (sign if signed else 1)
    fill = {torch.Tensor: None}
    return policy._apply_image_or_video_transform(image, name, value, interpolation="nearest", fill=fill)


@pytest.mark.parametrize("magnitude", [0, 9, 15, 30])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_torchvisions(name, magnitude):
    images = pictures(6)
    signs = torch.tensor([1.0, -1.0]).repeat(3)
    operations = torch.full((6,), OPERATIONS.index(name))
    found = augment(images, operations, signs * magnitude / 30)
    pairs = zip(images, signs.tolist(), strict=True)
    wanted = torch.stack([oracle(image, name, magnitude, sign) for image, sign in pairs])
    assert found.dtype == torch.uint8
    if name.startswith(("Shear", "Rotate")):  # a place between two pixels may go to either
        assert (found == wanted).double().mean() > 0.995
    else:
        assert (found.int() - wanted.int()).abs().max() <= (0 if name in ("Equalize", "Posterize", "Identity") else 1)
        assert (found == wanted).double().mean() > 0.98  # a value between two levels may go to either


def test_the_operations_are_those_of_torchvision_and_all_are_drawn():
    assert set(OPERATIONS) == set(v2.RandAugment._AUGMENTATION_SPACE)
    numbers = torch.zeros(len(OPERATIONS), DRAWS)
    numbers[:, 0] = (torch.arange(len(OPERATIONS)) + 0.5) / len(OPERATIONS)
    images = pictures(1).expand(len(OPERATIONS), -1, -1, -1)
    found = rand_augment(images, numbers, 9)  # the second round is the identity
    wanted = augment(images, torch.arange(len(OPERATIONS)), torch.full((len(OPERATIONS),), -0.3))
    assert torch.equal(found, wanted)


def test_images_of_a_batch_do_not_depend_on_one_another():
    images, numbers = pictures(9), uniforms(0, 0, torch.arange(9), Augmentation.draws)
    every = Augmentation(9, (0.4, 0.4, 0.4, 0.1), 0.5)
    whole = every(images, numbers)
    single = torch.cat([every(image[None], its[None]) for image, its in zip(images, numbers, strict=True)])
    assert (whole.int() - single.int()).abs().max() <= 1 and (whole == single).double().mean() > 0.999
    assert len({one.tobytes() for one in whole.numpy()}) == 9 and not torch.equal(whole, images)


# ---------------------------------------------------------------- erasing


def test_boxes_are_drawn_as_torchvisions(monkeypatch):
    """By the same uniform numbers, in the order in which torchvision asks for them."""
    count, height, width = 200, 20, 60
    numbers = torch.rand(count, erasing.DRAWS - 1, generator=torch.Generator().manual_seed(0))
    boxes = erasing.erase_boxes(numbers, height, width)
    policy, empty = v2.RandomErasing(p=1.0), 0
    for its, box in zip(numbers, boxes.tolist(), strict=True):
        areas, aspects, place = iter(its[:10].tolist()), iter(its[10:20].tolist()), iter(its[20:].tolist())
        log = policy._log_ratio.tolist()

        def uniform_(empty, low, high, areas=areas, aspects=aspects, log=log):
            chosen = aspects if low == pytest.approx(log[0]) else areas
            return torch.tensor([low + (high - low) * next(chosen)], dtype=torch.float64)

        monkeypatch.setattr(torch.Tensor, "uniform_", uniform_)
        monkeypatch.setattr(torch, "randint", lambda low, high, size, p=place: torch.tensor([int(next(p) * high)]))
        found = policy.make_params([torch.zeros(3, height, width)])
        monkeypatch.undo()
        if found["v"] is None:
            empty += 1
            assert box[2:] == [0, 0]
        else:
            assert box == [found["i"], found["j"], found["h"], found["w"]]
    assert empty < count // 2


def test_a_box_is_filled_in_its_share_of_the_images():
    images = pictures(400, 16, 16)
    numbers = uniforms(3, 1, torch.arange(400), erasing.DRAWS)
    found = erasing.erase(images, numbers, 0.25, (1, 2, 3))
    boxes = erasing.erase_boxes(numbers[:, 1:], 16, 16)
    erased = 0
    for image, before, (top, left, height, width), its in zip(found, images, boxes.tolist(), numbers, strict=True):
        if float(its[0]) < 0.25:
            erased += 1
            before = before.clone()
            fill = torch.tensor([1, 2, 3], dtype=torch.uint8).view(3, 1, 1)
            before[:, top : top + height, left : left + width] = fill
        assert torch.equal(image, before)
    assert 70 < erased < 130


# ---------------------------------------------------------------- the whole


def test_jitter_is_torchvisions_within_a_gray_level():
    images = pictures(8)
    augmentation = Augmentation(jitter=(0.4, 0.3, 0.2, 0.1))
    numbers = uniforms(0, 5, torch.arange(8), augmentation.draws)
    found = augmentation(images, numbers)
    changes = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation,
               functional.adjust_hue]  # fmt: skip
    for image, its, seen in zip(images, numbers[:, DRAWS : DRAWS + 8].tolist(), found, strict=True):
        pixels = image.double() / 255
        for place in sorted(range(4), key=lambda place: its[4 + place]):
            limit = augmentation.jitter[place]
            pixels = changes[place](pixels, (place < 3) + (2 * its[place] - 1) * limit)
        assert (pixels * 255 - seen).abs().max() < 0.51 + 1e-3


def test_numbers_begin_where_those_of_views_end():
    whole = uniforms(1, 7, torch.arange(8), AFTER_VIEWS + 6)
    assert torch.equal(uniforms(1, 7, torch.arange(8), 6, AFTER_VIEWS), whole[:, AFTER_VIEWS:])
    assert max(TrainView.draws, ContrastiveView.draws) < AFTER_VIEWS


def test_a_batch_is_one_graph():
    """So a GPU is never waited for, and compiling leaves few kernels."""
    images, numbers = pictures(4), uniforms(0, 0, torch.arange(4), Augmentation.draws)
    every = Augmentation(9, (0.4, 0.4, 0.4, 0.1), 0.5)
    compiled = torch.compile(every.__call__, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(images, numbers), every(images, numbers))


def test_nothing_is_done_by_default():
    images = pictures(3)
    assert not Augmentation().active and torch.equal(Augmentation()(images, torch.rand(3, Augmentation.draws)), images)
    assert all(replace(Augmentation(), **{name: value}).active
               for name, value in {"randaugment": 1, "jitter": (0, 0, 0, 0.1), "erasing": 0.1}.items())  # fmt: skip
