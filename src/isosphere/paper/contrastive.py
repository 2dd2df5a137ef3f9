"""Recipes for self-supervision: the rows of the paper's Tables 5 and 12.

Claim: SimCLR's projections have norms that spread; the paper gains 1 to 3 points of linear accuracy with SEC.
Command: `isosphere train simclr-cifar10-sec --data.root data --data.download true --loop.compile true`.

The authors' code multiplies NT-Xent by 0.5 / 0.07 = 7.143 and halves all gradients by its gather over two GPUs. So its
step is lr (3.571 g + wd w + eta / 2 g_sec) = 3.571 lr (g + wd / 3.571 w + eta / 7.143 g_sec).

| | plain, as our recipes have it | `paper-` before a name |
|---|---|---|
| learning rate | 3.571 times theirs | theirs |
| weight decay | theirs / 3.571 | theirs |
| weight of the loss | 1 | 3.571 |
| eta | theirs / 7.143 | half of theirs |

Both train the same. Their cosine sets the learning rate once an epoch, counted from 1. Ours sets it at every step,
counted from 0.
"""

from dataclasses import replace

from isosphere.paper import published
from isosphere.recipes.contrastive import WEIGHT, constraints
from isosphere.recipes.data import Cifar
from isosphere.recipes.losses import NTXent
from isosphere.recipes.retrieval import variants
from isosphere.recipes.schema import SGD, Cosine, Loop, Model, Recipe, Shuffled

DATA: dict[str, Cifar] = {"cifar10": Cifar(name="cifar10"), "cifar100": Cifar(name="cifar100")}
LR, WEIGHT_DECAY = 0.5, 1e-4
"""The authors'."""

SIMCLR = Recipe(
    data=Cifar(),
    model=Model(backbone="resnet50_cifar", head="mlp", dim=128),
    loss=NTXent(),
    batches=Shuffled(size=256, views=2),
    optimizer=SGD(lr=WEIGHT * LR, weight_decay=WEIGHT_DECAY / WEIGHT, decay_batch_norm=True),
    schedule=Cosine(final=0.001),
    loop=Loop(unit="epochs", steps=100, eval_every=25, save_every=10, log_every=50),
)
"""App. B.3 in the plain scale."""


def plain(dataset: str, epochs: int) -> Recipe:
    """A cell of Table 5 in the plain scale."""
    data, loop = DATA[dataset], replace(SIMCLR.loop, steps=epochs)
    return replace(SIMCLR, data=data, model=replace(SIMCLR.model, preprocessing=data.name), loop=loop)


def authors(dataset: str, epochs: int) -> Recipe:
    """The same in the authors' scale."""
    recipe = plain(dataset, epochs)
    optimizer = replace(recipe.optimizer, lr=LR, weight_decay=WEIGHT_DECAY)
    return replace(recipe, loss=NTXent(weight=WEIGHT), optimizer=optimizer)


def named(dataset: str, epochs: int) -> str:
    """simclr-cifar10 has 100 epochs, simclr-cifar10-200 has 200."""
    return f"simclr-{dataset}" + ("" if epochs == 100 else f"-{epochs}")


CELLS = {
    **{
        named(*cell): ("SimCLR on {}, {} epochs".format(*cell), plain(*cell), constraints(*etas, 2 * WEIGHT, 1.0))
        for cell, etas in published.SIMCLR_ETAS.items()
    },
    **{
        f"paper-{named(*cell)}": (
            "the same in the authors' scale, {}, {} epochs".format(*cell), authors(*cell), constraints(*etas, 2, WEIGHT)
        )  # fmt: skip
        for cell, etas in published.SIMCLR_ETAS.items()
    },
}

CONTRASTIVE = {
    name: recipe for cell, comparison in CELLS.items() for name, recipe in variants(cell, *comparison).items()
}
