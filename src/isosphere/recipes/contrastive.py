"""Recipes for self-supervision: your own images without labels.

Claim: SimCLR's projections have norms that spread; the paper gains 1 to 3 points of linear accuracy with SEC.
Command: `isosphere train simclr-photos-sec ./my_images`.
"""

from isosphere.recipes.data import Unlabeled
from isosphere.recipes.losses import NTXent
from isosphere.recipes.retrieval import variants
from isosphere.recipes.schema import SEC, Adam, Baseline, Constraint, Cosine, L2Reg, Loop, Model, Recipe, Shuffled

WEIGHT = 0.5 / 0.07 / 2
"""What the authors' loss weighs, after the halving by their gather; a plain loss has eta divided by twice this."""
RISING = (0.0, 1.0)
"""eta t / T (Eq. 29)."""
RHO = 0.2
"""Weight of the newest batch in the running radius (Table 12)."""

PHOTOS = Recipe(
    data=Unlabeled(),
    model=Model(backbone="small_cnn", head="mlp", dim=64),
    loss=NTXent(),
    batches=Shuffled(size=64, views=2),
    optimizer=Adam(lr=1e-3),
    schedule=Cosine(final=0.001),
    loop=Loop(unit="epochs", steps=50, eval_every=10, save_every=10, log_every=10),
)
"""Starts where any machine can go; with a GPU --model.backbone resnet50 --data.size 224 --data.shorter 256."""


def constraints(l2reg: float, sec: float, ema: float, divisor: float, relative: float) -> tuple[Constraint, ...]:
    """The methods of a comparison: printed strengths over a divisor; the relative form's is ours."""
    return (
        Baseline(),
        L2Reg(eta=l2reg / divisor, ramp=RISING),
        SEC(eta=sec / divisor, ramp=RISING),
        SEC(eta=ema / divisor, radius="ema", rho=RHO, ramp=RISING),
        SEC(eta=relative, relative=True, ramp=RISING),
    )


CONTRASTIVE = variants(
    "simclr-photos",
    "SimCLR on your own images",
    PHOTOS,
    constraints(5e-3, 0.25, 0.5, 2 * WEIGHT, 1.0),
)
"""The strengths are the paper's for CIFAR-10 (Table 12)."""
