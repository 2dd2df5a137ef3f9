"""Recipes for self-supervision: the rows of the paper's Tables 5 and 12, and your own images.

Claim: SimCLR's projections have norms that spread; the paper gains 1 to 3 points of linear accuracy with SEC.
Command: `isosphere train simclr-cifar10-sec --data.root data --data.download true --loop.compile true`.

The authors' code multiplies NT-Xent by 0.5 / 0.07 = 7.143 and halves all gradients by its gather over two GPUs. So its
step is lr (3.571 g + wd w + eta / 2 g_sec) = 3.571 lr (g + wd / 3.571 w + eta / 7.143 g_sec): the plain loss with a
learning rate of 3.571 times theirs, weight decay divided by 3.571 and eta by 7.143. Recipes have this plain scale;
`paper-` before a name has the authors' lr and weight decay, a loss of weight 3.571 and half their eta, and trains the
same. Their cosine sets the learning rate once an epoch, counted from 1; ours at every step, counted from 0.
"""

from dataclasses import replace

from isosphere.recipes import published
from isosphere.recipes.data import Cifar, Unlabeled
from isosphere.recipes.losses import NTXent
from isosphere.recipes.retrieval import SUFFIXES
from isosphere.recipes.schema import SGD, Adam, Constraint, Cosine, Loop, Model, Recipe, Shuffled

WEIGHT = 0.5 / 0.07 / 2
"""What the authors' loss weighs, after the halving."""
LR, WEIGHT_DECAY = 0.5, 1e-4
RISING = (0.0, 1.0)
"""eta t / T (Eq. 29)."""

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

PHOTOS = replace(
    SIMCLR,
    data=Unlabeled(),
    model=Model(backbone="small_cnn", head="mlp", dim=64),
    batches=Shuffled(size=64, views=2),
    optimizer=Adam(lr=1e-3),
    loop=Loop(unit="epochs", steps=50, eval_every=10, save_every=10, log_every=10),
)
"""Starts where any machine can go; with a GPU --model.backbone resnet50 --data.size 224 --data.shorter 256."""


def constraints(etas: dict[str, float], divisor: float, relative: float) -> dict[str, Constraint]:
    """The arms by the suffix of their recipe's name: printed strengths over a divisor; the relative form's is ours."""
    return {
        "": Constraint(),
        "-l2reg": Constraint(eta=etas["l2reg"] / divisor, radius=0.0, ramp=RISING),
        "-sec": Constraint(eta=etas["sec"] / divisor, ramp=RISING),
        "-sec-ema": Constraint(
            eta=etas["sec-ema"] / divisor, radius="ema", rho=published.RHOS["contrastive"], ramp=RISING
        ),
        "-sec-relative": Constraint(eta=relative, relative=True, ramp=RISING),
    }


def plain(dataset: str, epochs: int) -> Recipe:
    """A cell of Table 5 in the plain scale."""
    model, loop = replace(SIMCLR.model, preprocessing=dataset), replace(SIMCLR.loop, steps=epochs)
    return replace(SIMCLR, data=Cifar(name=dataset), model=model, loop=loop)


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
        named(*cell): ("SimCLR on {}, {} epochs".format(*cell), plain(*cell), constraints(etas, 2 * WEIGHT, 1.0))
        for cell, etas in published.SIMCLR_ETAS.items()
    },
    **{
        f"paper-{named(*cell)}": (
            "the same in the authors' scale, {}, {} epochs".format(*cell), authors(*cell), constraints(etas, 2, WEIGHT)
        )  # fmt: skip
        for cell, etas in published.SIMCLR_ETAS.items()
    },
    "simclr-photos": (
        "SimCLR on your own images", PHOTOS, constraints(published.SIMCLR_ETAS["cifar10", 100], 2 * WEIGHT, 1.0)
    ),  # fmt: skip
}

CONTRASTIVE = {
    f"{name}{suffix}": replace(recipe, constraint=constraint, claim=f"{title}: {SUFFIXES[suffix]}")
    for name, (title, recipe, arms) in CELLS.items()
    for suffix, constraint in arms.items()
}
