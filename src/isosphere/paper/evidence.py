"""Experiments on why and when a constraint helps, as cells of runs. All are measured on held-out training classes."""

from dataclasses import replace

from isosphere.paper.retrieval import RETRIEVAL
from isosphere.recipes.schema import SEC, Baseline, Recipe

HELD_OUT = 20  # training classes that measure, so that nothing is chosen on test classes
BACKBONE_LRS = (1.25e-5, 2.5e-5, 5e-5)
HEAD_FACTORS = (1, 10, 100)
HEAD_STARTS = ("random", "pca")
METHODS = {"none": Baseline(), "sec": SEC(eta=0.1)}


def heads(dataset: str, steps: int = 800) -> dict[str, dict[str, Recipe]]:
    """Which head a fair comparison needs: its learning rate as a multiple of the backbone's, and its first weights."""
    fair = RETRIEVAL[f"{dataset}-ms"]
    data = replace(fair.data, held_out=HELD_OUT)
    loop = replace(fair.loop, steps=steps, eval_every=steps // 4, save_every=steps)
    return {
        f"{dataset}-ms-lr{lr:g}-x{factor}-{start}": {
            method: replace(
                fair, data=data, loop=loop, constraint=constraint, model=replace(fair.model, head_start=start),
                optimizer=replace(fair.optimizer, lr=lr * factor, backbone_lr=lr),
            )
            for method, constraint in METHODS.items()
        }
        for lr in BACKBONE_LRS for factor in HEAD_FACTORS for start in HEAD_STARTS
    }  # fmt: skip
