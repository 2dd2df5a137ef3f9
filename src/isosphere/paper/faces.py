"""Recipes for faces: the rows of the paper's Tables 4 and 11, and a small one for LFW.

Claim: with cosine softmax heads SEC evens out the norms; the paper gains a few tenths of a point with it.
Cost: `casia-*` has 16 epochs of CASIA-WebFace, 7.9 million images; `lfw-*` 60 epochs of some 6,400, 0.4 million.
Command: `isosphere train casia-arcface-sec --data.root casia --data.pairs_root pairs`; more in docs/guides/faces.md.

A name is set-head-method. The face sets have no public classes for tuning. So strengths are the paper's for
CASIA-WebFace (Table 11). Those of the relative form are ours.
"""

from dataclasses import replace

from isosphere.paper import published
from isosphere.recipes.data import Faces
from isosphere.recipes.faces import LATE
from isosphere.recipes.losses import ArcFace, CosFace, Loss, NormFace, Softmax, SphereFace
from isosphere.recipes.options import override
from isosphere.recipes.retrieval import variants
from isosphere.recipes.schema import SEC, SGD, Baseline, Constraint, L2Reg, Loop, Model, MultiStep, Recipe, Shuffled

HEADS: dict[str, Loss] = {
    "softmax": Softmax(),
    "normface": NormFace(),
    "sphereface": SphereFace(),
    "cosface": CosFace(),
    "arcface": ArcFace(),
}

CASIA = Recipe(
    data=Faces(),
    model=Model(backbone="se_resnet50_ir", head="dropout_fc_bn", dim=512),
    batches=Shuffled(size=256),
    optimizer=SGD(lr=0.1, weight_decay=5e-4),
    schedule=MultiStep(at=(10 / 16, 14 / 16), factor=0.1),
    loop=Loop(unit="epochs", steps=16, eval_every=1, save_every=1, log_every=50, workers=4),
)
"""App. B.2; weight decay and dropout are the field's, on which the paper is silent."""

LFW = replace(
    override(CASIA, {"model.backbone": "resnet18_ir"}),
    data=Faces(min_images=2, fraction=0.52, align=False, pairs=("cfp_fp", "cfp_ff")),
    loop=replace(CASIA.loop, steps=60, eval_every=20, save_every=60),
)
"""A smoke test, not a result: a few thousand photographs of LFW's people with two or more, measured on CFP's pairs."""


def constraints(head: str) -> tuple[Constraint, ...]:
    """The methods of a head at the strengths of Table 11."""
    etas = published.FACE_ETAS.get(head)
    if etas is None:
        return (Baseline(),)
    early = (0.0, etas.ema / 500)  # min(eta, 500 t / T), Eq. 32
    return (
        Baseline(),
        L2Reg(eta=etas.l2reg, ramp=LATE),
        SEC(eta=etas.sec, ramp=LATE),
        SEC(eta=etas.ema, radius="ema", rho=published.RHOS["faces"], ramp=early),
        # ArcFace's last batch norm makes the radius about the root of 512: this is an absolute eta of about 5.
        SEC(eta=2500.0, relative=True, ramp=LATE),
    )


SETS = {"casia": ("faces of CASIA-WebFace", CASIA), "lfw": ("faces of LFW", LFW)}

FACES = {
    name: recipe
    for people, (title, base) in SETS.items()
    for head, loss in HEADS.items()
    for name, recipe in variants(
        f"{people}-{head}", f"{title}, {head}", replace(base, loss=loss), constraints(head)
    ).items()
}
