"""What every number is called: key, heading, unit, direction, and which metric leads a task. No torch.

Fractions have the unit "%": a value of 0.5 is shown as 50.0. Families (`recall@k`, `rank1@n`, `probe_top1@lr`,
`lfw_tar@0.01`) follow from their keys. A key that nobody knows is a fraction under its own name: a set of pairs.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal

Task = Literal["retrieval", "faces", "contrastive"]


@dataclass(frozen=True)
class Metric:
    """A number that a run measures."""

    key: str
    heading: str
    unit: str = "%"
    better: Literal["higher", "lower", ""] = "higher"
    about: str = ""
    short: str = ""  # for the head of a column, where the heading is long

    @property
    def column(self) -> str:
        """What stands over a column of a table."""
        return self.short or self.heading

    def shown(self, value: float | None) -> str:
        """A value as tables have it, without its unit; a dash for none."""
        if value is None:
            return "-"
        return f"{100 * value:.1f}" if self.unit == "%" else f"{value:.3g}"

    @property
    def label(self) -> str:
        """The heading with its unit, as axes have it."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading


VERIFIED: Final = "accuracy"  # what `verification` is judged by
ACCURACY = "Accuracy: the share of pairs judged right, mean over the sets of pairs."
MAP = "mAP: mean precision at the images of the query's class. Those of its group, such as its camera, are left out."
CMC = "Rank k: the share of queries with an image of their class, and not of their group, among their k nearest."
AUC = "AUC: area under the ROC curve of a set of pairs."
TAR = "TAR at FAR x: the share of same pairs that are accepted where a share x of different pairs is."
AUROC = "Norm AUROC: how often a wrong judgment has a lower norm than a right one; 50 is chance."
SCORES = (
    Metric("map", "mAP", about=MAP), Metric("map@r", "MAP@R"), Metric("nmi", "NMI"), Metric("f1", "F1"),
    Metric("accuracy", "accuracy", about=ACCURACY),
    Metric("lfw", "LFW"), Metric("lfw_dev", "LFW view 1"), Metric("agedb_30", "AgeDB-30"), Metric("cfp_fp", "CFP-FP"),
    Metric("cfp_ff", "CFP-FF"), Metric("knn", "k-NN"), Metric("probe_top1", "probe top-1"),
    Metric("probe_top5", "top-5"), Metric("probe_best_top1", "best top-1, picked on test"),
)  # fmt: skip
"""Metrics of a first table, in its order, after recalls and before own sets of pairs and ranks."""
OTHERS = (
    Metric("r_precision", "R-precision"), Metric("probe_best_top5", "best top-5, picked on test"),
    Metric("singletons", "queries without another image of their class", "", ""),
    Metric("not_finite", "embeddings that are not finite", "", "lower"),
    Metric("norm_mean", "mean norm", "", "", short="norm"),
    Metric("norm_variance", "variance of the norms", "", "", short="variance"),
    Metric("norm_cv", "coefficient of variation of the norms", "", "", short="coeff. of variation"),
    Metric("norm_min", "least norm", "", ""), Metric("norm_max", "greatest norm", "", ""),
    Metric("loss", "training loss", "", "lower"), Metric("metric", "loss without the penalty", "", "lower"),
    Metric("penalty", "penalty, eta included", "", ""), Metric("lr", "learning rate of the first group", "", ""),
    Metric("lr_proxy_mean", "learning rate of directions (proxy), mean", "", ""),
    Metric("lr_proxy_cv", "learning rate of directions (proxy), coefficient of variation", "", ""),
    Metric("radial_share", "radial share of the squared gradient", "", ""),
    Metric("tangential_share", "tangential share of the squared gradient", "", ""),
    Metric("training_loss", "loss without the penalty since the evaluation before", "", "lower"),
    Metric("turn_mean", "mean turn since the snapshot before", "degrees", ""),
    Metric("turn_variance", "variance of the turns", "degrees²", ""),
    Metric("turn_slope", "slope of log turn by log norm", "", ""),
    Metric("turn_slope_error", "standard error of that slope", "", ""),
)  # fmt: skip
PAIRS: dict[str, tuple[str, Literal["higher", "lower"], str]] = {
    "std": ("spread of folds", "lower", ""), "auc": ("AUC", "higher", AUC),
    "tar@0.01": ("TAR at FAR 1 %", "higher", TAR), "tar@0.001": ("TAR at FAR 0.1 %", "higher", TAR),
    "norm_auroc": ("norm AUROC", "higher", AUROC),
}  # fmt: skip
"""What each set of pairs has besides its accuracy, under NAME_KEY; identification has the last as rank1_norm_auroc."""
KNOWN = {one.key: one for one in (*SCORES, *OTHERS)}
LEADING: dict[Task, tuple[str, str]] = {  # after training, and on the way, where no probe is trained
    "retrieval": ("recall@1", "recall@1"), "faces": ("accuracy", "accuracy"), "contrastive": ("probe_top1", "knn"),
}  # fmt: skip
WATCHED = {way for _, way in LEADING.values()} - {end for end, _ in LEADING.values()}
"""What leads on the way alone."""
MAIN = ("recall@1", "map@r", "nmi", "f1", "accuracy", "probe_top1", "knn")
"""What judges a task, besides rank 1 among the most distractors."""
PICKED = {"probe_top1": "probe_best_top1"}
"""A metric of the last epoch -> the same of the epoch that is best on test."""
CHOOSING: dict[Task, str] = {"retrieval": "map@r", "faces": "accuracy", "contrastive": "probe_top1"}
"""What tuning goes by: MAP@R counts every neighbor of a class, so it wavers less than R@1."""
PAPER = {"agedb30": "agedb_30", "cfpfp": "cfp_fp", "top1": "probe_top1", "top5": "probe_top5"}
"""The paper's names -> ours."""


NORM_MEAN, NORM_VARIANCE, NORM_CV = NORMS = ("norm_mean", "norm_variance", "norm_cv")
NORM_RANGE = ("norm_min", "norm_max")
PENALTY = ("metric", "penalty")
"""Of a training line, where the constraint has a penalty: the loss without it, and it."""
LOSSES = ("loss", *PENALTY, "lr")
DIRECTIONS = ("lr_proxy_mean", "lr_proxy_cv", "radial_share")
TRAINED = (*LOSSES, *NORMS, *NORM_RANGE, *DIRECTIONS)
"""What a training line has."""
TURN_MEAN, TURN_VARIANCE, TURN_SLOPE = TURNS = ("turn_mean", "turn_variance", "turn_slope")
"""What a line about snapshots has."""
TRAINING_LOSS = "training_loss"
"""Of an evaluation in results: the criterion's mean since the one before."""
LOGARITHMIC = (NORM_MEAN, NORM_VARIANCE, "penalty", "lr_proxy_mean", "radial_share", TURN_VARIANCE)
"""What is drawn on a logarithmic axis."""
HIDDEN = ("norm_", "probe_", "turn_", "lr_", "recall@", "cmc@", "rank1")
"""How keys begin that are no score of their own."""


def metric(key: str) -> Metric:
    """The metric of a key."""
    if key in KNOWN:
        return KNOWN[key]
    family, _, of = key.partition("@")
    if family == "recall":
        return Metric(key, f"R@{of}")
    if family == "cmc":
        return Metric(key, f"rank {of}", about=CMC)
    if family == "rank1":
        return Metric(key, f"rank 1 of {int(of):,}" if of.isdecimal() else f"rank 1 among {of}")
    if of and family in KNOWN:
        return Metric(key, f"{KNOWN[family].heading}, lr {of}", KNOWN[family].unit, KNOWN[family].better)
    for end, (heading, better, about) in PAIRS.items():
        if key.endswith(f"_{end}"):
            name = key.removesuffix(f"_{end}")
            of = "rank 1" if name == "rank1" else metric(name).heading
            return Metric(key, f"{of} {heading}", "%", better, about)
    return Metric(key, key)


def is_own(key: str) -> bool:
    """Whether nothing is known of this metric here: it is one of the user's own."""
    return key not in KNOWN and metric(key) == Metric(key, key) and not key.startswith(HIDDEN)


def leading(task: Task, training: bool = False) -> str:
    """The key of the metric that judges a task: at the end, or the one measured during training."""
    return LEADING[task][training]


def choosing(task: Task) -> str:
    """The key of the metric that tuning goes by."""
    return CHOOSING[task]


def headline(names: Collection[str], training: bool = False) -> str:
    """The leading metric among these names; of another task its first score, and nothing where there is none."""
    leads = dict.fromkeys(end if not training else way for end, way in LEADING.values())
    leads |= dict.fromkeys(way for _, way in LEADING.values())
    return next((key for key in leads if key in names), next((one.key for one in scores(names)), ""))


def scores(names: Collection[str]) -> list[Metric]:
    """The metrics of a first table among these names: recalls, CMC, the others, own sets of pairs, ranks."""
    firsts = [f"{family}@{k}" for family in ("recall", "cmc") for k in _counts(names, family)]
    known = [one.key for one in SCORES if one.key in names]
    own = [name for name in pair_sets(names) if name not in KNOWN and name in names]
    return [metric(key) for key in (*firsts, *known, *own, *ranks(names))]


def _counts(names: Collection[str], family: str) -> list[int]:
    """The numbers of neighbors of `recall@k` or `cmc@k`, in order."""
    return sorted(int(name.split("@")[1]) for name in names if name.startswith(f"{family}@"))


def shown(names: Collection[str]) -> list[Metric]:
    """The scores; of an unknown task every number. What is measured only during training comes last."""
    first = scores(names)
    ours = {one.key for one in (*first, *pair_details(names), *OTHERS)}
    first += [metric(name) for name in names if name not in ours and not name.startswith(HIDDEN)]
    return sorted(first, key=lambda one: one.key in WATCHED)


def main(names: Collection[str]) -> list[Metric]:
    """The metrics that judge a task; of another task the first score."""
    return [metric(key) for key in (*MAIN, *_most(names)) if key in names] or scores(names)[:1]


def one_recall(metrics: Iterable[Metric]) -> list[Metric]:
    """These without recalls beyond the first neighbor."""
    return [one for one in metrics if one.key == "recall@1" or not one.key.startswith("recall@")]


def pair_sets(names: Iterable[str]) -> list[str]:
    """The sets of pairs among the names of metrics, known ones first. Each has an area under its ROC curve."""
    found = {name.removesuffix("_auc") for name in names if name.endswith("_auc")}
    return [*(one.key for one in SCORES if one.key in found), *sorted(found - KNOWN.keys())]


def pair_details(names: Collection[str]) -> list[Metric]:
    """What sets of pairs and identification have in addition to their accuracy, for a table of its own."""
    sets = [*pair_sets(names), "rank1"]
    return [metric(key) for end in PAIRS for name in sets if (key := f"{name}_{end}") in names]


def ranks(names: Iterable[str]) -> list[str]:
    """Identification among so many distractors, by their number, then among those of one set."""
    among = [name.removeprefix("rank1@") for name in names if name.startswith("rank1@")]
    counts = sorted((one for one in among if one.isdecimal()), key=int)
    return [f"rank1@{one}" for one in (*counts, *sorted(one for one in among if not one.isdecimal()))]


def compared(names: Collection[str]) -> list[Metric]:
    """The metrics whose differences count.

    They are what judges a task, each of several sets of pairs, rank 1 among the most distractors, and how well the norm
    predicts errors.
    """
    sets = pair_sets(names)
    judged = [key for key in ("recall@1", "map@r", "map", "accuracy", "probe_top1") if key in names]
    norms = [one.key for one in pair_details(names) if one.key.endswith("_norm_auroc")]
    return [metric(key) for key in (*judged, *(sets if len(sets) > 1 else ()), *_most(names), *norms)]


def _most(names: Iterable[str]) -> list[str]:
    """Identification among the most distractors, if there is any."""
    return [key for key in ranks(names) if key.removeprefix("rank1@").isdecimal()][-1:]
