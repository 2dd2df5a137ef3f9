"""Which metrics there are, and what they are called."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from isosphere.tables import PRIMARY, WATCHED, columns, face_columns, ranks

NORMS = {"norm_mean": "mean norm", "norm_variance": "variance", "norm_cv": "coeff. of variation"}
NO_METRIC = ("kind", "step", "not_finite", "lr_proxy_mean", "lr_proxy_cv", "radial_share", "tangential_share")
MAIN = ("recall@1", "map@r", "nmi", "f1", "accuracy", "probe_top1", "knn")  # which sentences tell, and rank 1

ACCURACY = "Accuracy: the share of pairs judged right, mean over the sets of pairs."
EXPLAINED = (
    "AUC: area under the ROC of a set of pairs. TAR at FAR 1 %: the share of pairs of one person that are accepted "
    "where 1 % of the pairs of two people are. Norm AUROC: how often, of a wrong judgment and a right one, the wrong "
    "one has the lower norm; 50 is chance."
)


def parted(metrics: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The metrics of a first table, and what else is told of faces, for one of its own."""
    more = {name: title for name, title in metrics.items() if name in face_columns(metrics)}
    return {name: title for name, title in metrics.items() if name not in more}, more


def metric_names(found: Sequence[dict[str, float]]) -> dict[str, str]:
    """The metrics, all fractions, that any of them has: what judges a task first, others by their own names last."""
    present = dict.fromkeys(name for one in found for name in one)
    known = {name: title for name, title in columns(list(found)).items() if name in present}
    merely_watched = set(WATCHED) - set(PRIMARY)
    known = dict(sorted(known.items(), key=lambda item: item[0] in merely_watched))
    lines = face_columns(present)  # headings of several lines, which break nowhere else
    known |= {name: title.replace(" ", "\u00a0").replace("\n", " ") for name, title in lines.items()}
    skipped = {"singletons", "r_precision", *NO_METRIC, *(n for n in present if n.startswith(("norm_", "probe_")))}
    return known | {name: name for name in present if name not in known and name not in skipped}


def main_metrics(names: Collection[str]) -> dict[str, str]:
    """Those by which a task is judged, rank 1 among the most distractors; of another task the first of them."""
    titles = metric_names([dict.fromkeys(names, 0.0)])
    most = [name for name in ranks(names) if name.removeprefix("rank1@").isdecimal()][-1:]
    return {name: titles[name] for name in (*MAIN, *most) if name in titles} or dict(list(titles.items())[:1])


def headlines(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The metrics by which arms are compared, the headline first; a task that has none of them goes by its first."""
    metrics = metric_names([record["last"] for record in records])
    known = {name: metrics[name] for name in PRIMARY if name in metrics}
    return known or dict(list(metrics.items())[:1])
