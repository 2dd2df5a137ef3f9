"""Which metrics there are, and what they are called."""

from collections.abc import Sequence

from isosphere.tables import PRIMARY, WATCHED, columns

NORMS = {"norm_mean": "mean norm", "norm_variance": "variance", "norm_cv": "coeff. of variation"}
NO_METRIC = ("kind", "step", "not_finite", "lr_proxy_mean", "lr_proxy_cv", "radial_share", "tangential_share")


def metric_names(found: Sequence[dict[str, float]]) -> dict[str, str]:
    """The metrics, all fractions, that any of them has: what judges a task first, others by their own names last."""
    present = dict.fromkeys(name for one in found for name in one)
    known = {name: title for name, title in columns(list(found)).items() if name in present}
    merely_watched = set(WATCHED) - set(PRIMARY)
    known = dict(sorted(known.items(), key=lambda item: item[0] in merely_watched))
    skipped = {"singletons", "r_precision", *NO_METRIC, *(n for n in present if n.startswith(("norm_", "probe_")))}
    return known | {name: name for name in present if name not in known and name not in skipped}
