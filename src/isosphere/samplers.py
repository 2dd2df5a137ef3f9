"""Which images a step sees: pure functions of (seed, step). Resumed and distributed runs see the same batches.

Every sampler has `indices(step)` and `first`. The first is the rank's contiguous slice of the global batch, a long
tensor. `first` is the position of that slice in the global batch.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument, Option, UnfillableBatch


class ClassBatches:
    """`batch / per_class` random classes, `per_class` images of each, neighbors in the batch.

    Classes are drawn without replacement, and so are images. If a class has fewer than `per_class`, all of them come
    before one comes again. Labels are whole numbers or names, one an image, in any sequence.

    As a DataLoader's `batch_sampler` a pass has images // batch batches, at least one. The next pass goes on with the
    step where it ended, which is `step`. So passes differ, and a seed gives the same ones again. A pass that was broken
    off counts as whole.
    """

    def __init__(
        self,
        labels: Sequence[int] | Sequence[str] | np.ndarray | Tensor,
        batch: int,
        per_class: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if min(batch, per_class) < 1 or batch % per_class:
            raise BadArgument("batch", batch, f"a multiple of per_class, {per_class}")
        array = _array(labels)
        order = array.argsort(kind="stable")
        _, starts = np.unique(array[order], return_index=True)
        self.members = np.split(order, starts[1:])  # the indices of each class
        most = len(self.members) * per_class
        if most < batch:
            raise UnfillableBatch(batch, batch // per_class, "classes", len(self.members), Option("batch", most))
        self.step, self.length = 0, max(1, len(array) // batch)
        self.batch, self.per_class, self.seed = batch, per_class, seed
        self.first, self.local = _slice(batch, rank, world)

    def indices(self, step: int) -> Tensor:
        """The rank's images of this step, long (batch / world,)."""
        numbers = _generator(self.seed, step).random((self.batch // self.per_class, 1 + self.per_class))
        chosen = []
        for label, draws in zip(_distinct(numbers[:, 0], len(self.members)), numbers[:, 1:], strict=True):
            members = self.members[label]
            rounds = np.split(draws, range(len(members), self.per_class, len(members)))  # one, if they are enough
            chosen += [members[_distinct(part, len(members))] for part in rounds]
        return torch.from_numpy(np.concatenate(chosen)[self.first : self.first + self.local])

    def __len__(self) -> int:
        """Batches in a pass."""
        return self.length

    def __iter__(self) -> Iterator[list[int]]:
        # When its first batch is asked for: a DataLoader with workers begins two passes and uses one.
        start, self.step = self.step, self.step + self.length
        for step in range(start, start + self.length):
            yield self.indices(step).tolist()


class ShuffledBatches:
    """Every image once an epoch, in a new order each; an incomplete last batch is dropped.

    With `views` each image stands that many times in a row. So the global batch has batch * views positions.
    """

    def __init__(self, count: int, batch: int, seed: int, views: int = 1, rank: int = 0, world: int = 1) -> None:
        if not 0 < batch <= count:
            raise UnfillableBatch(batch, max(1, batch), "images", count, Option("batch", count))
        self.count, self.batch, self.seed, self.views = count, batch, seed, views
        self.per_epoch = count // batch  # steps in an epoch
        self.first, self.local = (views * part for part in _slice(batch, rank, world))

    def indices(self, step: int) -> Tensor:
        """The rank's images of this step, long (batch * views / world,), the views of an image side by side."""
        epoch, part = divmod(step, self.per_epoch)
        images = _shuffled(self.count, self.seed, epoch)[part * self.batch : (part + 1) * self.batch]
        return torch.from_numpy(images.repeat(self.views)[self.first : self.first + self.local])


class OrderedBatches:
    """All images once in order, for evaluation. The last batch may be smaller, and ranks share out the steps."""

    first = 0

    def __init__(self, count: int, batch: int) -> None:
        self.count, self.batch = count, batch
        self.per_epoch = -(-count // batch)

    def indices(self, step: int) -> Tensor:
        """The images of this step, long (at most batch,)."""
        return torch.arange(step * self.batch, min((step + 1) * self.batch, self.count))


def _array(labels: object) -> np.ndarray:
    """Labels (N,) of whole numbers or names as an array."""
    found = type(labels).__name__
    if isinstance(labels, Sequence) or hasattr(labels, "__array__"):  # not a data set, which would be read whole
        try:
            array = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
            array = np.asarray(array.tolist()) if array.dtype == object else array  # names from pandas
        except ValueError:
            found += " of unequal parts"
        else:
            if array.ndim == 1 and len(array) and array.dtype.kind in "iubUS":
                return array
            found += f" of shape {array.shape} and {array.dtype}"
    raise BadArgument("labels", found, "a sequence of whole numbers or names, one an image")


def _slice(batch: int, rank: int, world: int) -> tuple[int, int]:
    """First position and length of a rank's part of the global batch."""
    if not 0 <= rank < world:
        raise BadArgument("rank", rank, f"from 0 to below world, {world}")
    if batch % world:
        raise BadArgument("batch", batch, f"a multiple of world, {world} ranks that share it")
    return rank * (batch // world), batch // world


def _generator(seed: int, counter: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, counter]))


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch, by sorting random numbers: the same with every version of numpy."""
    return _generator(seed, epoch).random(count).argsort(kind="stable")


def _distinct(numbers: np.ndarray, count: int) -> list[int]:
    """Distinct integers below `count`, one for each number in [0, 1): the first swaps of a Fisher-Yates shuffle."""
    swapped: dict[int, int] = {}
    chosen = []
    for place, number in enumerate(numbers.tolist()):
        other = place + int(number * (count - place))
        chosen.append(swapped.get(other, other))
        swapped[other] = swapped.get(place, place)
    return chosen
