"""Recipes for faces: your own people.

Claim: with cosine softmax heads SEC evens out the norms.
Cost: 60 epochs of what you have.
Command: `isosphere train faces-arcface-sec ./people --data.pairs_root pairs`; docs/guides/faces.md has more.
"""

from dataclasses import replace

from isosphere.recipes.data import Faces
from isosphere.recipes.losses import ArcFace, CosFace
from isosphere.recipes.retrieval import variants
from isosphere.recipes.schema import SEC, SGD, Baseline, Loop, Model, MultiStep, Recipe, Shuffled

OWN = Recipe(
    data=Faces(min_images=2, align=False, pairs=("mine",)),
    model=Model(backbone="resnet18_ir", head="dropout_fc_bn", dim=512),
    batches=Shuffled(size=32),
    optimizer=SGD(lr=0.02, weight_decay=5e-4),
    schedule=MultiStep(at=(10 / 16, 14 / 16), factor=0.1),
    loop=Loop(unit="epochs", steps=60, eval_every=20, save_every=60, log_every=50, workers=4),
)
"""For some hundred photographs or more, cut to the face, so that they are taken whole: small batches, and a learning
rate to suit them. The pairs are your own, `mine_pair.txt` in data.pairs_root."""

LATE = (3 / 16, 4 / 16)
"""Without a constraint for three epochs of sixteen, rising in the fourth (App. B.2)."""

GENTLE = 0.1
"""SEC's eta for your own people: on LFW's few the paper's 5 cost 5 to 11 points, this one less than a seed does."""

FACES = {
    name: recipe
    for head, loss in (("cosface", CosFace()), ("arcface", ArcFace()))
    for name, recipe in variants(
        f"faces-{head}",
        f"faces of your own people, {head}",
        replace(OWN, loss=loss),
        (Baseline(), SEC(eta=GENTLE, ramp=LATE)),
    ).items()
}
