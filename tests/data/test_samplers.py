import time

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from isosphere.errors import BadArgument, Option, UnfillableBatch
from isosphere.samplers import ClassBatches, OrderedBatches, ShuffledBatches


def uneven_labels():
    """Thirty classes with 1 to 9 images each, shuffled, with gaps between the labels."""
    labels = torch.arange(30).repeat_interleave(torch.arange(30) % 9 + 1) * 7
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


def test_class_batches_are_a_batch_sampler():
    labels = torch.arange(40) // 4
    batches = ClassBatches(labels, batch=12, per_class=3, seed=0)
    data = torch.utils.data.TensorDataset(torch.arange(40), labels)
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
    assert len(loader) == len(batches) == 3
    for epoch in range(3):
        for step, (chosen, its) in enumerate(loader, start=3 * epoch):
            assert chosen.tolist() == batches.indices(step).tolist() and its.tolist() == labels[chosen].tolist()
        assert step == 3 * epoch + 2 == batches.step - 1
    next(iter(loader))  # a pass that is broken off counts as whole
    assert next(iter(loader))[0].tolist() == batches.indices(12).tolist()


@pytest.mark.parametrize("persistent", [False, True])
def test_class_batches_skip_nothing_where_workers_load_them(persistent):
    labels = torch.arange(40) // 4
    batches = ClassBatches(labels, batch=20, per_class=2, seed=0)
    loader = torch.utils.data.DataLoader(
        torch.arange(40), batch_sampler=batches, num_workers=1, persistent_workers=persistent
    )
    seen = [chosen.tolist() for _ in range(2) for chosen in loader]
    assert seen == [batches.indices(step).tolist() for step in range(4)]


def test_a_pass_has_a_batch_even_where_classes_are_too_small_to_fill_one():
    batches = ClassBatches([0, 1, 2], batch=12, per_class=4, seed=0)
    assert len(batches) == 1 and len(list(batches)) == 1


def test_class_batches_take_any_sequence_of_labels(tmp_path):
    numbers = uneven_labels()
    wanted = ClassBatches(numbers, 24, 3, seed=5).indices(3)
    names = [f"class{number:03d}" for number in numbers.tolist()]
    for labels in (
        numbers.tolist(), tuple(numbers.tolist()), numbers.numpy(), numbers.to(torch.int16), names, np.array(names),
        np.array(names, dtype=object), list(numbers),
    ):  # fmt: skip
        assert torch.equal(ClassBatches(labels, 24, 3, seed=5).indices(3), wanted)
    for name in "ba":
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.new("RGB", (4, 4)).save(tmp_path / name / f"{number}.png")
    images = torchvision.datasets.ImageFolder(tmp_path)
    assert {images[index][1] for index in ClassBatches(images.targets, 4, 2, seed=0).indices(0).tolist()} == {0, 1}
    with pytest.raises(BadArgument) as error:
        ClassBatches(images, 4, 2, seed=0)
    assert (error.value.name, error.value.value) == ("labels", "ImageFolder")


@pytest.mark.parametrize(
    "labels, value",
    [
        ([0.5, 1.5], "list of shape (2,) and float64"),
        (torch.eye(2, dtype=torch.long), "Tensor of shape (2, 2) and int64"),
        ([[0], [1, 2]], "list of unequal parts"),
        ([None, 1], "list of shape (2,) and object"),
        ([], "list of shape (0,) and float64"),
        ("cat", "str of shape () and <U3"),
        (iter([0, 1]), "list_iterator"),
        (3, "int"),
    ],
)
def test_what_are_no_labels_is_refused(labels, value):
    with pytest.raises(BadArgument) as error:
        ClassBatches(labels, 2, 1, seed=0)
    assert (error.value.name, error.value.value) == ("labels", value)


def test_class_batches_are_classes_times_images():
    labels = uneven_labels()
    counts = {int(label): int((labels == label).sum()) for label in labels.unique()}
    sampler = ClassBatches(labels, batch=40, per_class=4, seed=1)
    for step in range(200):
        indices = sampler.indices(step)
        assert indices.dtype == torch.long and indices.shape == (40,)
        groups = labels[indices].view(10, 4)
        assert (groups == groups[:, :1]).all() and len(groups[:, 0].unique()) == 10
        for group in indices.view(10, 4):
            if counts[int(labels[group[0]])] >= 4:
                assert len(group.unique()) == 4


def test_batches_are_pure_functions_of_seed_and_step():
    labels = uneven_labels()
    first, second = (ClassBatches(labels, 24, 3, seed=5) for _ in range(2))
    forwards = [first.indices(step) for step in range(20)]
    backwards = [second.indices(step) for step in reversed(range(20))][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forwards, backwards, strict=True))
    assert len({tuple(indices.tolist()) for indices in forwards}) == 20
    assert not torch.equal(forwards[0], ClassBatches(labels, 24, 3, seed=6).indices(0))


def test_classes_and_images_are_drawn_evenly():
    labels = torch.arange(40).repeat_interleave(6)
    sampler = ClassBatches(labels, 30, 3, seed=0)
    drawn = torch.cat([sampler.indices(step) for step in range(2000)])
    per_class = torch.bincount(labels[drawn], minlength=40) / 3  # each expects 500, deviation about 19
    assert (per_class - 500).abs().max() < 100
    per_image = torch.bincount(drawn, minlength=240)  # each expects 250, deviation about 15
    assert (per_image - 250).abs().max() < 75


def test_small_classes_show_all_their_images_before_one_again():
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 1, 2])
    sampler = ClassBatches(labels, 15, 5, seed=0)
    batches = [sampler.indices(step).tolist() for step in range(100)]
    small = {tuple(sorted(i for i in batch if i < 2)) for batch in batches}
    assert small == {(0, 0, 0, 1, 1), (0, 0, 1, 1, 1)}, "two of each, and one more"
    assert all(sorted(i for i in batch if i >= 2) == [2, 3, 4, 5, 6] + [7] * 5 for batch in batches)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_hold_contiguous_slices_of_the_global_batch(world):
    labels = uneven_labels()
    for make in (
        lambda **kw: ClassBatches(labels, 24, 3, seed=2, **kw),
        lambda **kw: ShuffledBatches(100, 24, seed=2, **kw),
        lambda **kw: ShuffledBatches(100, 24, seed=2, views=2, **kw),
    ):
        whole, ranks = make(), [make(rank=rank, world=world) for rank in range(world)]
        for step in range(9):
            assert torch.equal(torch.cat([rank.indices(step) for rank in ranks]), whole.indices(step))
        for rank in ranks:
            local = rank.indices(4)
            assert torch.equal(whole.indices(4)[rank.first : rank.first + len(local)], local)


LABELS = torch.arange(10).repeat(4)


@pytest.mark.parametrize(
    ("make", "arguments", "name"),
    [
        (ClassBatches, {"batch": 30, "per_class": 4}, "batch"),
        (ClassBatches, {"batch": 0, "per_class": 4}, "batch"),
        (ClassBatches, {"batch": 40, "per_class": 4, "world": 3}, "batch"),
        (ShuffledBatches, {"batch": 20, "world": 3}, "batch"),
        *(
            (make, {"batch": 40, "rank": rank, "world": world} | more, "rank")
            for rank, world in ((5, 2), (2, 2), (-1, 2), (0, 0))
            for make, more in ((ClassBatches, {"per_class": 4}), (ShuffledBatches, {}))
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused(make, arguments, name):
    data = LABELS if make is ClassBatches else 40
    with pytest.raises(BadArgument) as error:
        make(data, seed=0, **arguments)
    assert (error.value.name, error.value.value) == (name, arguments[name])


def test_what_cannot_be_filled_is_refused_with_the_most_that_can():
    for make, needed, found in (
        (lambda: ClassBatches(LABELS, 48, 4, seed=0), 12, 10),
        (lambda: ShuffledBatches(40, 50, seed=0), 50, 40),
    ):
        with pytest.raises(UnfillableBatch) as error:
            make()
        assert (error.value.needed, error.value.found) == (needed, found)
        assert error.value.most == Option("batch", 40)


def test_an_epoch_sees_every_image_once_and_epochs_differ():
    sampler = ShuffledBatches(50, 10, seed=3)
    assert sampler.per_epoch == 5
    epochs = [torch.cat([sampler.indices(5 * epoch + step) for step in range(5)]) for epoch in range(3)]
    for epoch in epochs:
        assert epoch.sort().values.tolist() == list(range(50))
    assert not torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[1], epochs[2])
    assert torch.equal(ShuffledBatches(50, 10, seed=3).indices(7), epochs[1][20:30])


def test_the_incomplete_batch_is_dropped_and_differs_between_epochs():
    sampler = ShuffledBatches(23, 5, seed=0)
    seen = [set(torch.cat([sampler.indices(4 * epoch + step) for step in range(4)]).tolist()) for epoch in range(30)]
    assert all(len(epoch) == 20 for epoch in seen) and set().union(*seen) == set(range(23))


def test_views_of_an_image_are_neighbors():
    single, double = ShuffledBatches(40, 8, seed=1), ShuffledBatches(40, 8, seed=1, views=2)
    for step in (0, 4, 5, 11):
        assert torch.equal(double.indices(step), single.indices(step).repeat_interleave(2))


def test_ordered_batches_cover_everything_once():
    sampler = OrderedBatches(11, 4)
    assert sampler.per_epoch == 3
    assert torch.cat([sampler.indices(step) for step in range(3)]).tolist() == list(range(11))


@pytest.mark.parametrize("classes", [100, 11_318])
def test_a_batch_takes_under_a_millisecond(classes):
    sampler = ClassBatches(torch.arange(classes).repeat(5), 120, 5, seed=0)
    times = []
    for step in range(200):
        start = time.perf_counter()
        sampler.indices(step)
        times.append(time.perf_counter() - start)
    assert np.median(times) < 1e-3
