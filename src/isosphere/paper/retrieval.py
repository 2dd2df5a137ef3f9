"""Recipes for the paper's retrieval benchmarks.

Claim: on classes never seen in training, SEC narrows the norms; whether that helps Recall@K is measured.
Cost: `cub200-ms` takes half a minute on an H200.
Command: `isosphere train cub200-ms-sec --data.root data --model.weights FILE`.

A name is dataset-loss-method. All methods of a cell train alike. With `paper-` before the name they train as the
authors did. The ablations of Tables 2, 8 and 9 stand under `cars196-triplet` and `paper-cars196-triplet`.
"""

from dataclasses import replace

from isosphere.paper import published
from isosphere.recipes.constraints import METHODS, suffix
from isosphere.recipes.losses import (
    LiftedStructure,
    Loss,
    MultiSimilarity,
    NPair,
    ProxyAnchor,
    ProxyNCA,
    RankedList,
    SemiHard,
    Triplet,
    TupletMargin,
)
from isosphere.recipes.options import override
from isosphere.recipes.retrieval import constraints, variants
from isosphere.recipes.schema import (
    SEC,
    Adam,
    Baseline,
    Batches,
    Benchmark,
    Constraint,
    L2Reg,
    Loop,
    Model,
    MultiStep,
    Recipe,
)

LOSSES: dict[str, tuple[Loss, int]] = {
    "triplet": (Triplet(), 3),
    "semihard": (SemiHard(), 3),
    "npair": (NPair(), 2),
    "ms": (MultiSimilarity(), 5),
    "proxyanchor": (ProxyAnchor(), 5),
    "proxynca": (ProxyNCA(), 5),
    "lifted": (LiftedStructure(), 5),
    "rankedlist": (RankedList(), 5),
    "tupletmargin": (TupletMargin(), 5),
}
"""Each loss with its images per class (App. B.1). From Proxy-Anchor on they are not in the paper's tables, and all but
that one are among its related work. They take multi-similarity's numbers as a start. Proxies learn a hundred times as
fast as the head, as Proxy-Anchor's own paper has them."""
PAPERS_LOSSES = ("triplet", "semihard", "npair", "ms")
"""Those of the paper's tables."""

DATA: dict[str, Benchmark] = {
    "cub200": Benchmark(name="cub200"),
    "cars196": Benchmark(name="cars196"),
    "sop": Benchmark(name="sop"),
    "inshop": Benchmark(name="inshop"),
}
WEIGHT_DECAY = {"cub200": 2.5e-3, "cars196": 2.5e-3, "sop": 1e-5, "inshop": 1e-5}
"""From the authors' code; the paper is silent."""

RATES_WITHOUT_SEC = {"cub200": (1e-5, 0.5e-5), "cars196": (2e-5, 2e-5)}
"""Head and backbone for multi-similarity without SEC in the authors' code, in place of Table 6."""


def fair(dataset: str, loss: str) -> Recipe:
    """A cell of the fair comparison at the paper's learning rate. Head, backbone and length are one for all methods."""
    option, per_class = LOSSES[loss]
    lr, backbone_lr, _, _ = published.LEARNING_RATES[dataset, printed(loss)]
    class_lr = 100 * lr if loss.startswith("proxy") else None
    # Figure 1 is of CUB and Cars196 with this loss, 5 to 7 of Cars196, and of all their training images.
    drawn = loss == "triplet" and dataset in ("cub200", "cars196")
    loop = Loop(steps=1600, eval_every=800, save_every=1600, log_every=50, workers=4)
    return Recipe(
        data=DATA[dataset],
        model=Model(backbone="resnet50_v1", head="bn_fc", dim=512, freeze_bn=True),
        loss=option,
        batches=Batches(size=120, per_class=per_class),
        optimizer=Adam(lr, backbone_lr, WEIGHT_DECAY[dataset], class_lr),
        loop=replace(loop, snapshot_every=400, snapshot_images=0) if drawn else loop,
    )


def paper(dataset: str, loss: str) -> Recipe:
    """A cell of Table 3 as the authors trained it with SEC: BN-Inception, length and decay of Table 6."""
    _, _, factor, iterations = published.LEARNING_RATES[dataset, loss]
    steps = published.ITERATIONS[dataset]
    recipe = override(fair(dataset, loss), {"model.backbone": "bn_inception"})
    figures = recipe.loop.snapshot_every
    return replace(
        recipe,
        schedule=MultiStep(at=tuple(iteration / steps for iteration in iterations), factor=factor),
        loop=replace(recipe.loop, steps=steps, eval_every=500, save_every=1000, snapshot_every=1000 if figures else 0),
    )


def without_sec(recipe: Recipe) -> Recipe:
    """Multi-similarity as the authors ran it without SEC: no batch norm in the head, and other learning rates."""
    lr, backbone_lr = RATES_WITHOUT_SEC.get(recipe.data.name, (recipe.optimizer.lr, recipe.optimizer.backbone_lr))
    return replace(
        recipe,
        model=replace(recipe.model, head="fc"),
        optimizer=replace(recipe.optimizer, lr=lr, backbone_lr=backbone_lr),
    )


def printed(loss: str) -> str:
    """The loss of the paper whose printed numbers this one takes."""
    return loss if loss in PAPERS_LOSSES else "ms"


def printed_methods(dataset: str, loss: str) -> tuple[Constraint, ...]:
    """The methods of a cell at the strengths of Tables 7 and 10; the relative form's is ours."""
    etas = published.ETAS[dataset, printed(loss)]
    return constraints(etas.sec, etas.l2reg, relative=5.0)


COMPARISONS = {
    **{
        f"{dataset}-{loss}": (f"{dataset}, {loss}", fair(dataset, loss), printed_methods(dataset, loss))
        for dataset in published.ITERATIONS
        for loss in LOSSES
    },
    **{
        f"paper-{dataset}-{loss}": (f"paper's {dataset}, {loss}", paper(dataset, loss), printed_methods(dataset, loss))
        for dataset, loss in published.ETAS
    },
}

VARIANTS = {
    name: recipe for cell, comparison in COMPARISONS.items() for name, recipe in variants(cell, *comparison).items()
}

EXCEPTIONS = {
    name: without_sec(VARIANTS[name])
    for dataset in published.ITERATIONS
    for name in (f"paper-{dataset}-ms{suffix(one.method)}" for one in (Baseline(), L2Reg()))
}
"""The authors compared multi-similarity with SEC against another head (App. B.1) and other learning rates."""

EMA = next(one for one in printed_methods("cars196", "triplet") if isinstance(one, SEC) and one.radius == "ema")


def short(eta: float) -> str:
    """1e-3 in a recipe's name."""
    return f"{eta:.0e}".replace("e-0", "e-")


STRENGTHS: list[tuple[str, str, Constraint]] = [
    *((f"-eta{eta}", f"eta {eta} (Table 2)", SEC(eta=eta)) for eta in published.SEC_ABLATION if eta),
    *((f"{suffix(one.method)}-eta{one.eta:g}", f"eta {one.eta:g}", one)
      for one in (SEC(eta=eta, relative=True) for eta in (1.0, 5.0, 20.0, 80.0))),
    *((f"{suffix(one.method)}-eta{short(one.eta)}", f"eta {one.eta:g} (Table 8)", one)
      for one in (L2Reg(eta=eta) for eta in published.L2REG_ABLATION if eta)),
    *((f"-rho{rho}", f"rho {rho} (Table 9)", replace(EMA, rho=rho)) for rho in published.RHO_ABLATION if rho),
]  # fmt: skip
ABLATIONS = {end: (f"{METHODS[one.method].label}, {strength}", one) for end, strength, one in STRENGTHS}
"""By the end of their recipe's name; the relative form's grid is ours."""

RETRIEVAL = {
    **VARIANTS,
    **EXCEPTIONS,
    **{
        f"{name}{suffix}": replace(VARIANTS[name], claim=f"{COMPARISONS[name][0]}: {claim}", constraint=constraint)
        for name in ("cars196-triplet", "paper-cars196-triplet")
        for suffix, (claim, constraint) in ABLATIONS.items()
    },
}
