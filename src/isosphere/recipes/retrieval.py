"""Recipes for retrieval: your own photographs, and the embedded characters.

Claim: on classes never seen in training, SEC narrows the norms; whether that helps Recall@K is measured.
Cost: `rendered` takes a minute on two CPU cores.
Command: `isosphere train photos-sec ./my_photos`, `isosphere train rendered-sec`.
"""

from collections.abc import Iterable
from dataclasses import replace

from isosphere.recipes.constraints import METHODS, suffix
from isosphere.recipes.losses import Triplet
from isosphere.recipes.schema import (
    SEC,
    Adam,
    BalancedDirections,
    Baseline,
    Batches,
    Constraint,
    Folder,
    L2Reg,
    Loop,
    Model,
    MultiStep,
    Recipe,
    Rendered,
)


def constraints(eta: float, l2reg: float, relative: float) -> tuple[Constraint, ...]:
    """The methods of a comparison at these strengths."""
    return (
        Baseline(),
        L2Reg(eta=l2reg),
        SEC(eta=eta),
        SEC(eta=eta, radius="ema"),
        SEC(eta=relative, relative=True),
        SEC(eta=eta, radius="initial"),
        BalancedDirections(),
    )


OWN = constraints(0.1, 1e-3, 2.0)
SUFFIXES = {suffix(constraint.method): METHODS[constraint.method].about for constraint in OWN}
"""What most names may end in."""


RENDERED = Recipe(
    data=Rendered(),
    model=Model(backbone="small_cnn", head="bn_fc", dim=128),
    loss=Triplet(),
    batches=Batches(size=120, per_class=4),
    optimizer=Adam(lr=1e-3),
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
--data.size 227 --data.shorter 256 --optimizer.lr 2e-5."""


def variants(name: str, what: str, recipe: Recipe, methods: Iterable[Constraint]) -> dict[str, Recipe]:
    """The recipe once for each method, by name and suffix."""
    return {
        f"{name}{suffix(one.method)}": replace(recipe, claim=f"{what}: {METHODS[one.method].about}", constraint=one)
        for one in methods
    }


RETRIEVAL = variants("photos", "your own images", PHOTOS, OWN)
DEMO = variants("rendered", "characters of many scripts", RENDERED, OWN)
