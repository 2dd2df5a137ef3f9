"""Which images of each class are set apart to be measured."""

import numpy as np
import torch
from torch import Tensor


def images_apart(labels: Tensor, share: float, seed: int | None = None, least: int = 1) -> Tensor:
    """A share of each class of labels (N,) as a mask (N,): by the seed, or evenly in order and never the first.

    A class gives at least so many, or none if it has fewer than twice as many.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    generator = None if seed is None else np.random.default_rng(seed)
    for label in range(int(labels.max()) + 1 if len(labels) else 0):
        members = (labels == label).nonzero().flatten()
        count = len(members)
        held = max(least, int(count * share + 1e-9)) if count >= 2 * least else 0
        if generator is not None:
            apart = torch.from_numpy(generator.permutation(count)) < held
        elif least > 1:
            place = torch.arange(count)
            apart = (place + 1) * held // count > place * held // count
        else:
            place = torch.arange(count, dtype=torch.float64)
            # Where the count of those apart grows by one; the slack keeps 5 * 0.2 from falling short of 1.
            apart = ((place + 1) * share + 1e-9).floor() > (place * share + 1e-9).floor()
        chosen[members[apart]] = True
    return chosen
