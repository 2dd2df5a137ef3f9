"""The paper's tables, and ours, as runs: cells of methods that differ in one thing and are tuned alike.

A cell is a data set and a loss. Its methods share head, first weights and batches for a seed. Tuning gives each method
the same number of trials of learning rate and strength. Strength is that of weight decay and of the constraint, if
there is one. Trials are scored on held-out *training* classes (of CIFAR: images), with a seed that no final run has. On
CIFAR trials are a fifth as long as final runs of 100 epochs. So the two best of each method are tried again with as
many. Methods that are not tuned take SEC's rates and weight decay.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from isosphere.errors import BadArgument, Option
from isosphere.metrics.registry import choosing
from isosphere.paper import evidence, published
from isosphere.paper.contrastive import CONTRASTIVE, named
from isosphere.paper.faces import FACES, HEADS, constraints
from isosphere.paper.retrieval import ABLATIONS, EMA, LOSSES, PAPERS_LOSSES, RETRIEVAL
from isosphere.recipes.constraints import suffix
from isosphere.recipes.ranges import TRIALS, Ranges
from isosphere.recipes.retrieval import OWN
from isosphere.recipes.schema import SEC, BalancedDirections, Baseline, Constraint, L2Reg, Recipe

Cells = dict[str, dict[str, Recipe]]

NONE, PLAIN, RELATIVE = DEFAULT_METHODS = tuple(one.method for one in (Baseline(), SEC(), SEC(relative=True)))
METHODS = tuple(one.method for one in OWN)
FACE_METHODS = tuple(one.method for one in constraints("arcface"))  # of Table 5, too

TUNED = ("table3", "table5")
UNSEEN_CLASSES = Ranges(
    lrs=(6.25e-6, 1.25e-5, 2.5e-5, 5e-5),
    strengths={
        NONE: ((0.2, 0.0), (1.0, 0.0)),
        PLAIN: ((1.0, 0.1), (1.0, 0.5)),
        RELATIVE: ((1.0, 2.0), (1.0, 10.0)),
    },
    steps=800,
    unit="steps",
    held_out=20,
    scores=(choosing("retrieval"),),
)
UNSEEN_IMAGES = Ranges(
    lrs=(0.0625, 0.25, 1.0, 2.0),
    strengths={
        NONE: ((0.4, 0.0), (2.0, 0.0), (10.0, 0.0), (50.0, 0.0)),
        PLAIN: ((1.0, 0.4), (1.0, 2.0), (1.0, 10.0), (10.0, 2.0)),
        RELATIVE: ((1.0, 2.0), (1.0, 10.0), (1.0, 50.0), (10.0, 10.0)),
    },
    steps=20,
    unit="epochs",
    held_out=0.1,
    scores=(choosing("contrastive"), *(f"{choosing('contrastive')}@{rate}" for rate in (1, 2, 10))),
    in_parts=True,
    tried=(*TRIALS, (1, 2), (2, 2), (0, 3), (1, 3)),
    finalists=2,
    whole=100,
)
"""The rates reach low: without warm-up the recipe's own makes norms explode in the first steps; a baseline that wins
at the edge would be short-changed. Strengths are a factor of five apart as in retrieval; the relative form's eta does
not depend on the norms, so its strengths are those of retrieval. The third came after the first six trials of
ResNet-18, where no constraint and the relative form were best at the strong edge; the fourth after two more, where no
constraint won by ten times the weight decay, which the other methods had not been given; the finalists after a final
run, where the weight decay that was best for 20 epochs was too much for 100. The probe is what Table 5 shows, at its
best rate, since weight decay changes the features' scale and with it the rate that suits."""
TUNINGS = {
    **dict.fromkeys(("cub200", "cars196"), UNSEEN_CLASSES),
    **dict.fromkeys(("sop", "inshop"), replace(UNSEEN_CLASSES, lrs=(6.25e-5, 1.25e-4, 2.5e-4, 5e-4))),
    **dict.fromkeys(("cifar10", "cifar100"), UNSEEN_IMAGES),
}
"""By data set; the rates of retrieval are about those of Table 6."""

SWEPT_LRS = (1.25e-5, 2.5e-5, 5e-5, 1e-4, 2e-4)
SWEPT = {
    one.method: one for one in (Baseline(), SEC(eta=0.25), SEC(eta=10.0, relative=True), BalancedDirections())
}
"""Strengths chosen once at 5e-5 on held-out training classes (`results/cub200_ms_eta_tuning.json`)."""


@dataclass(frozen=True)
class Asked:
    """What of a table to run; an empty field is the table's default."""

    dataset: str = ""
    losses: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    paper: bool = False  # as the authors trained, not the fair comparison
    epochs: int = 100  # of Table 5


def cells(table: str, asked: Asked) -> Cells:
    """The cells of a table, each with its methods' recipes in the order in which they are printed."""
    if table not in TABLES:
        raise BadArgument("table", table, f"one of {', '.join(TABLES)}")
    return TABLES[table].cells(asked)


def trials(method: str, recipe: Recipe) -> list[Recipe]:
    """The trials of a method; none where it takes another method's learning rate."""
    return TUNINGS[recipe.data.name].trials(method, recipe)


# ---------------------------------------------------------------- the tables


def _retrieval(asked: Asked) -> Cells:
    """Tables 3 and 10."""
    dataset = asked.dataset or "cub200"
    _known("dataset", [dataset], published.ITERATIONS)
    _known("losses", asked.losses, PAPERS_LOSSES if asked.paper else LOSSES)
    _known("methods", asked.methods, METHODS)
    found = {}
    for loss in asked.losses or PAPERS_LOSSES:
        cell = f"{dataset}-{loss}"
        names = {method: cell + suffix(method) for method in asked.methods or DEFAULT_METHODS}
        found[cell] = {method: RETRIEVAL[f"paper-{name}" if asked.paper else name] for method, name in names.items()}
    return found


def _ablation(*methods: str) -> Callable[[Asked], Cells]:
    """Tables 2, 8 and 9: the recipes of Cars196 with the triplet loss that vary these methods, and the baseline."""

    def build(asked: Asked) -> Cells:
        _known("dataset", [asked.dataset or "cars196"], ["cars196"])
        if asked.losses or asked.methods:
            given = Option("losses" if asked.losses else "methods")
            raise BadArgument(given, asked.losses or asked.methods, "left out: this table has one loss and its methods")
        cell = f"{'paper-' if asked.paper else ''}cars196-triplet"
        ends = [end for end, (_, constraint) in ABLATIONS.items() if constraint.method in methods]
        varied = {end.removeprefix("-"): RETRIEVAL[cell + end] for end in ends}
        return {"cars196-triplet": {NONE: RETRIEVAL[cell]} | varied}

    return build


def _rates(asked: Asked) -> Cells:
    """R@1 against the learning rate of the head, and with it that of the backbone. Every rate is a cell."""
    dataset = asked.dataset or "cub200"
    _known("dataset", [dataset], published.ITERATIONS)
    _known("losses", asked.losses, LOSSES)
    _known("methods", asked.methods, SWEPT)
    found = {}
    for loss in asked.losses or ("ms",):
        recipe = RETRIEVAL[f"{dataset}-{loss}"]
        share = (recipe.optimizer.backbone_lr or recipe.optimizer.lr) / recipe.optimizer.lr
        for lr in SWEPT_LRS:
            optimizer = replace(recipe.optimizer, lr=lr, backbone_lr=lr * share)
            found[f"{dataset}-{loss}-lr{lr:g}"] = {
                method: replace(recipe, optimizer=optimizer, constraint=SWEPT[method])
                for method in asked.methods or SWEPT
            }
    return found


def _heads(asked: Asked) -> Cells:
    """Learning rate and first weights of the head, on held-out training classes."""
    if asked.losses or asked.methods:
        given = Option("losses" if asked.losses else "methods")
        raise BadArgument(given, asked.losses or asked.methods, "left out: this table has one loss and two methods")
    dataset = asked.dataset or "cub200"
    _known("dataset", [dataset], published.ITERATIONS)
    return evidence.heads(dataset)


def _causes(asked: Asked) -> Cells:
    """Methods that each do one thing of what SEC does, on held-out training classes."""
    if asked.methods:
        raise BadArgument(Option("methods"), asked.methods, "left out: this table has all its methods")
    dataset = asked.dataset or "cub200"
    scratch = dataset == "rendered"
    _known("dataset", [dataset], evidence.CAUSES)
    _known("losses", asked.losses, ("ms",) if scratch else LOSSES)
    return evidence.causes(dataset, asked.losses or (("ms",) if scratch else ("ms", "semihard")))


def _faces(asked: Asked) -> Cells:
    """Tables 4 and 11; CASIA-WebFace, or the small recipe on LFW's people."""
    dataset = asked.dataset or "casia"
    _known("dataset", [dataset], ("casia", "lfw"))
    _known("losses", asked.losses, HEADS)
    _known("methods", asked.methods, FACE_METHODS)
    found: Cells = {}
    for head in asked.losses or HEADS:
        names = {method: f"{dataset}-{head}{suffix(method)}" for method in asked.methods or FACE_METHODS}
        found[f"{dataset}-{head}"] = {method: FACES[name] for method, name in names.items() if name in FACES}
    return found


def _simclr(asked: Asked) -> Cells:
    """Tables 5 and 12."""
    dataset = asked.dataset or "cifar10"
    if asked.losses:
        raise BadArgument(Option("losses"), asked.losses, "left out: this table has one loss, NT-Xent")
    _known("dataset", [dataset], ("cifar10", "cifar100"))
    _known("epochs", [str(asked.epochs)], ("100", "200"))
    _known("methods", asked.methods, FACE_METHODS)
    cell = named(dataset, asked.epochs)
    names = {method: cell + suffix(method) for method in asked.methods or FACE_METHODS}
    return {cell: {method: CONTRASTIVE[f"paper-{n}" if asked.paper else n] for method, n in names.items()}}


def _known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise BadArgument(Option(option), name, f"one of {', '.join(known)}")


class Table(NamedTuple):
    """A table: what it is, its cells, and the word that names its files of results."""

    about: str
    cells: Callable[[Asked], Cells]
    word: str


TABLES = {
    "table2": Table(
        "eta of SEC and of relative SEC, triplet loss on Cars196", _ablation(PLAIN, RELATIVE), "ablation_of_eta"
    ),
    "table3": Table("retrieval, four losses without and with a constraint (also Table 10)", _retrieval, "retrieval"),
    "table4": Table("faces, five heads without and with a constraint (also Table 11)", _faces, "faces"),
    "table5": Table("SimCLR on CIFAR, linear evaluation (also Table 12)", _simclr, "simclr"),
    "table8": Table("eta of L2-reg, triplet loss on Cars196", _ablation(L2Reg().method), "ablation_of_l2reg"),
    "table9": Table("rho of SEC-EMA, triplet loss on Cars196", _ablation(EMA.method), "ablation_of_rho"),
    "causes": Table("why SEC helps: even norms, smaller norms, or neither", _causes, "causes"),
    "heads": Table("the head's learning rate and first weights, on held-out training classes", _heads, "heads"),
    "rates": Table("R@1 against learning rate: is SEC more than a larger angular step?", _rates, "rates"),
}

Printed = tuple[tuple[str, ...], dict[str, tuple[float, ...]]]


def printed(table: str, cell: str) -> Printed:
    """The metrics of a cell and, by method, the paper's printed numbers in percent. Empty where it has none."""
    *_, last = cell.split("-")
    if table == "table3" and (cell.removesuffix(f"-{last}"), last) in published.RETRIEVAL_RESULTS:
        dataset = cell.removesuffix(f"-{last}")
        return published.RETRIEVAL_METRICS[dataset], published.RETRIEVAL_RESULTS[dataset, last]
    if table == "table4":
        return published.FACE_METRICS, published.FACE_RESULTS.get(last, {})
    if table == "table5":
        found = {named(*key): rows for key, rows in published.SIMCLR_RESULTS.items()}
        return published.SIMCLR_METRICS, found.get(cell, {})
    if table == "table2":
        return published.RETRIEVAL_METRICS["cars196"], {
            _method(SEC(eta=eta)): row for eta, row in published.SEC_ABLATION.items()
        }
    if table == "table8":
        return published.L2REG_METRICS, {_method(L2Reg(eta=eta)): row for eta, row in published.L2REG_ABLATION.items()}
    if table == "table9":
        used = {rho: replace(EMA, rho=rho) if rho else Baseline() for rho in published.RHO_ABLATION}
        cut = {rho: row[:3] for rho, row in published.RHO_ABLATION.items()}
        rows: dict[str, tuple[float, ...]] = {_method(used[rho]): row for rho, row in cut.items()}
        return published.RHO_METRICS[:3], rows
    return (), {}


def _method(constraint: Constraint) -> str:
    """The name of an ablation's constraint among the methods of its table."""
    ends = {one: end.removeprefix("-") for end, (_, one) in ABLATIONS.items()}
    return ends.get(constraint, NONE)
