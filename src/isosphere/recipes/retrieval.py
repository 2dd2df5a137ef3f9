"""Recipes for retrieval: the embedded characters, your own photographs, and the paper's benchmarks.

Claim: on classes never seen in training, SEC narrows the norms; whether that helps Recall@K is measured.
Cost: `rendered` takes a minute on two CPU cores, `cub200-ms` half a minute on an H200.
Command: `isosphere train rendered-sec`, `isosphere train cub200-ms-sec --data.root data --model.weights FILE`.
"""

from dataclasses import replace

from isosphere.recipes.losses import Loss, MultiSimilarity, NPair, SemiHard, Triplet
from isosphere.recipes.schema import (
    Adam,
    Batches,
    Benchmark,
    Constraint,
    Folder,
    Loop,
    Model,
    MultiStep,
    Recipe,
    Rendered,
)

SUFFIXES = {
    "": "no constraint on the norms",
    "-l2reg": "norms pulled to zero",
    "-sec": "norms pulled to the batch's mean",
    "-sec-ema": "norms pulled to their running mean",
    "-sec-relative": "norms pulled to the batch's mean, in proportion to it",
    "-balanced": "norms left alone, their mean in place of each in the gradient",
}


def constraints(eta: float, l2reg: float, relative: float) -> dict[str, Constraint]:
    """The arms of a comparison at these strengths, by the suffix of their recipe's name."""
    return {
        "": Constraint(),
        "-l2reg": Constraint(eta=l2reg, radius=0.0),
        "-sec": Constraint(eta=eta),
        "-sec-ema": Constraint(eta=eta, radius="ema"),
        "-sec-relative": Constraint(eta=relative, relative=True),
        "-balanced": Constraint(balanced=True),
    }


RENDERED = Recipe(
    data=Rendered(),
    model=Model(backbone="small_cnn", head="bn_fc", dim=128),
    loss=Triplet(),
    batches=Batches(size=120, per_class=4),
    optimiser=Adam(lr=1e-3),
    schedule=MultiStep(at=(0.7,), factor=0.1),
    loop=Loop(steps=1000, eval_every=100, save_every=100, workers=0),
)
"""A small network from scratch: a higher learning rate than the paper's fine-tuning, and shorter embeddings. The
loss is the one of the paper's Figure 1; eta was chosen on training classes alone (`--data.classes 150`)."""

PHOTOS = replace(
    RENDERED,
    data=Folder(size=64, shorter=72),
    batches=Batches(size=60, per_class=4),
    loop=Loop(steps=1000, eval_every=200, save_every=200),
)
"""Starts where any machine can go. With weights: --model.backbone resnet50 --model.weights FILE --model.freeze_bn true
--data.size 227 --data.shorter 256 --optimiser.lr 2e-5."""

PAIR_LOSSES: dict[str, tuple[Loss, int]] = {
    "triplet": (Triplet(), 3),
    "semihard": (SemiHard(), 3),
    "npair": (NPair(), 2),
    "ms": (MultiSimilarity(), 5),
}
"""Each loss of the paper with its images per class (App. B.1)."""

LEARNING_RATES = {
    ("cub200", "triplet"): (0.5e-5, 2.5e-6),
    ("cub200", "semihard"): (0.5e-5, 2.5e-6),
    ("cub200", "npair"): (1e-5, 5e-6),
    ("cub200", "ms"): (5e-5, 2.5e-5),
    ("cars196", "triplet"): (1e-5, 1e-5),
    ("cars196", "semihard"): (1e-5, 1e-5),
    ("cars196", "npair"): (1e-5, 1e-5),
    ("cars196", "ms"): (4e-5, 4e-5),
}
"""Head and backbone (Table 6)."""

ETAS = {
    ("cub200", "triplet"): (1.0, 1e-4),
    ("cub200", "semihard"): (0.5, 1e-3),
    ("cub200", "npair"): (1.0, 1e-2),
    ("cub200", "ms"): (0.5, 5e-3),
    ("cars196", "triplet"): (0.5, 1e-4),
    ("cars196", "semihard"): (0.5, 1e-2),
    ("cars196", "npair"): (1.0, 1e-2),
    ("cars196", "ms"): (1.0, 1e-2),
}
"""SEC and L2-reg (Table 7)."""


def fair(dataset: str, loss: str) -> Recipe:
    """A cell of the fair comparison: one head, one backbone, one length for every arm, at the paper's learning rate."""
    option, per_class = PAIR_LOSSES[loss]
    lr, backbone_lr = LEARNING_RATES[dataset, loss]
    return Recipe(
        data=Benchmark(name=dataset),
        model=Model(backbone="resnet50_v1", head="bn_fc", dim=512, freeze_bn=True),
        loss=option,
        batches=Batches(size=120, per_class=per_class),
        optimiser=Adam(lr=lr, backbone_lr=backbone_lr, weight_decay=2.5e-3),
        loop=Loop(steps=1600, eval_every=800, save_every=1600, log_every=50, workers=4),
    )


COMPARISONS = {
    "rendered": ("characters of many scripts", RENDERED, constraints(0.1, 1e-3, 2.0)),
    "photos": ("your own images", PHOTOS, constraints(0.1, 1e-3, 2.0)),
    **{
        f"{dataset}-{loss}": (f"{dataset}, {loss}", fair(dataset, loss), constraints(*etas, relative=5.0))
        for (dataset, loss), etas in ETAS.items()
    },
}

RETRIEVAL = {
    f"{name}{suffix}": replace(recipe, claim=f"{what}: {SUFFIXES[suffix]}", constraint=constraint)
    for name, (what, recipe, arms) in COMPARISONS.items()
    for suffix, constraint in arms.items()
}
