"""Faces: verification of pairs, and whether a low norm predicts an error, as fractions.

Scores are cosines. A pair is accepted where its score is at least the threshold.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from isosphere.errors import BadArgument, NotFinite, OneKindOfPairs
from isosphere.metrics.distractors import identification
from isosphere.metrics.neighbors import (
    Array,
    checked_embeddings,
    checked_labels,
    directions,
    listed,
    tensor,
    widened,
    widest_type,
)
from isosphere.sphere import norms

__all__ = [
    "auc", "best_threshold", "equal_error_rate", "identification", "mirror_averaged", "norm_and_errors", "pair_cosines",
    "roc", "tar_at_far", "verification", "wrong_pairs",
]  # fmt: skip
FEWEST_FALSE_ACCEPTS = 10  # a rate that fewer impostors decide is noise


def mirror_averaged(embed: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Embeddings (N, D) of images (N, C, H, W), averaged with those of their mirror images, as is customary.

    The direction is that of the mean of the two raw embeddings. The one with the larger norm decides more. Where SEC
    has made norms equal, they count the same. The norm is the mean of the two norms. The norm of their mean would also
    say how well they agree.
    """
    return averaged(embed(images).float(), embed(images.flip(-1)).float())


def averaged(one: Tensor, other: Tensor) -> Tensor:
    """Rows (N, D) with the direction of the sum of two, and the mean of their norms."""
    return directions(one + other) * ((norms(one) + norms(other)) / 2)[:, None]


def pair_cosines(left: Array, right: Array) -> Tensor:
    """The cosine of each pair of embeddings, (P, D), (P, D) -> (P,), summed in the widest type."""
    left, right = checked_embeddings(left, "left"), checked_embeddings(right, "right")
    if left.shape != right.shape:
        raise BadArgument("right", tuple(right.shape), f"of the shape of left, {tuple(left.shape)}")
    return (directions(left) * directions(right).to(left)).sum(1, dtype=widest_type(left.device))


class Verified(TypedDict):
    """What `verification` returns."""

    accuracy: float
    std: float
    accuracies: list[float]
    thresholds: list[float]


def verification(left: Array, right: Array, same: Array, fold: Array | int = 10) -> Verified:
    """Accuracy of "the same person" for pairs (P, D), (P, D). Each fold's threshold is chosen on all other folds.

    `fold` (P,) numbers the fold of each pair. A number of folds spreads both kinds of pairs over them in turn.
    `accuracy` and `std` are over the folds. Divide std by sqrt(folds - 1) for the standard error that LFW asks for.
    `accuracies` and `thresholds` are those of each fold, in the order of the fold numbers.
    """
    cosines, same = _checked_pairs(pair_cosines(left, right), same)
    if isinstance(fold, int | Integral):
        fold = torch.where(same, same.cumsum(0), (~same).cumsum(0)) % fold
    wrong, thresholds = wrong_pairs(cosines, same, fold)
    fold = tensor(fold).to(wrong.device)
    accuracies = torch.stack([1 - widened(wrong[fold == number]).mean() for number in fold.unique()])
    return {
        "accuracy": float(accuracies.mean()),
        "std": float(accuracies.std(correction=0)),
        "accuracies": accuracies.tolist(),
        "thresholds": thresholds,
    }


def wrong_pairs(cosines: Array, same: Array, fold: Array) -> tuple[Tensor, list[float]]:
    """Which pairs (P,) the other folds' threshold judges wrongly, bool (P,), and the threshold of each fold."""
    cosines, same = _checked_pairs(cosines, same)
    fold = checked_labels(fold, len(cosines), cosines.device, "fold")
    numbers = fold.unique()
    if len(numbers) < 2:
        raise BadArgument("fold", len(numbers), "two folds at least: one is tested with a threshold of the others")
    wrong, thresholds = torch.empty_like(same), []
    for number in numbers:
        tested = fold == number
        others = same[~tested]
        if others.all() or not others.any():
            raise BadArgument("fold", int(number), "such that all the other folds together hold both kinds of pairs")
        thresholds.append(best_threshold(cosines[~tested], same[~tested]))
        wrong[tested] = (cosines[tested] >= thresholds[-1]) != same[tested]
    return wrong, thresholds


def best_threshold(cosines: Tensor, same: Tensor) -> float:
    """The threshold that judges most of the pairs (P,) rightly, of all there are; among equals the strictest.

    It lies in the middle between two neighboring scores; 2 accepts nobody and -2 everybody.
    """
    cosines, order = widened(cosines).sort(descending=True)
    gains = same[order].long() * 2 - 1  # of accepting one pair more
    right = F.pad(gains.cumsum(0), (1, 0))  # (P + 1,), by the number of accepted pairs, up to a constant
    above, below = F.pad(cosines, (1, 0), value=2.0), F.pad(cosines, (0, 1), value=-2.0)
    cut = int(torch.where(above > below, right, right.min() - 1).argmax())  # equal scores are not separated
    if cut in (0, len(cosines)):
        return 2.0 if cut == 0 else -2.0
    lowest, highest = float(above[cut]), float(below[cut])  # of the accepted, of the rejected
    middle = (lowest + highest) / 2
    return middle if middle > highest else lowest


def roc(scores: Array, same: Array) -> tuple[Tensor, Tensor, Tensor]:
    """False and true accept rates at every threshold, from accepting nobody (inf) down, (P,), (P,) -> three (M,)."""
    scores, same = _checked_pairs(scores, same)
    scores, order = scores.sort(descending=True)
    last = F.pad(scores[1:] < scores[:-1], (0, 1), value=True)  # equal scores are accepted together
    true, accepted = same[order].cumsum(0)[last], last.nonzero().squeeze(1) + 1
    false_accepts, true_accepts = (accepted - true) / widened((~same).sum()), true / widened(same.sum())
    return F.pad(false_accepts, (1, 0)), F.pad(true_accepts, (1, 0)), F.pad(scores[last], (1, 0), value=torch.inf)


def tar_at_far(scores: Array, same: Array, fars: Sequence[float] | float) -> dict[float, float]:
    """The largest true accept rate at a false accept rate of at most each of `fars`, not interpolated, (P,), (P,).

    A rate that fewer than ten of the impostor pairs would decide is refused.
    """
    fars = listed(fars)
    false_accepts, true_accepts, _ = roc(scores, same)
    impostors = int((~tensor(same).bool()).sum())
    for far in fars:
        if not FEWEST_FALSE_ACCEPTS <= far * impostors * (1 + 1e-9) or far > 1:
            least = FEWEST_FALSE_ACCEPTS / impostors
            raise BadArgument("fars", far, f"rates that {impostors} impostor pairs can measure, {least:g} to 1")
    return {far: float(true_accepts[false_accepts <= far * (1 + 1e-9)][-1]) for far in fars}


def auc(scores: Array, same: Array) -> float:
    """The area under the ROC, (P,), (P,): how often a pair of one person outscores a pair of two. Ties count half."""
    false_accepts, true_accepts, _ = roc(scores, same)
    return float(torch.trapezoid(true_accepts, false_accepts))


def equal_error_rate(scores: Array, same: Array) -> float:
    """Where false accepts are as frequent as false rejects, on straight lines between the ROC's points, (P,), (P,)."""
    false_accepts, true_accepts, _ = roc(scores, same)
    excess = false_accepts + true_accepts - 1  # false accepts less false rejects: -1 to 1, growing
    after = int((excess >= 0).int().argmax())
    share = excess[after - 1] / (excess[after - 1] - excess[after])
    return float(torch.lerp(false_accepts[after - 1], false_accepts[after], share))


class NormErrors(TypedDict):
    """What `norm_and_errors` returns."""

    auroc: float | None
    error_rates: list[float]
    mean_norms: list[float]


def norm_and_errors(norms: Array, wrong: Array, groups: int = 10) -> NormErrors:
    """How well a low norm predicts an error: norms (N,), wrong (N,). For a pair take the smaller of its two norms.

    `auroc` is how often, of a wrong one and a right one, the wrong one has the lower norm. Ties count half. It is 0.5
    where the norm says nothing, and None where all are right or all are wrong. `error_rates` and `mean_norms` are those
    of groups of equal size, from the lowest norms to the highest. Equal norms share their errors evenly.
    """
    norms = widened(torch.as_tensor(norms).detach())
    wrong = torch.as_tensor(wrong).to(norms.device).bool()
    if norms.ndim != 1 or wrong.shape != norms.shape or len(norms) < groups:
        shapes = (tuple(norms.shape), tuple(wrong.shape))
        raise BadArgument("norms and wrong", shapes, f"of one shape (N,) with N at least {groups}")
    values, place, sizes = norms.unique(return_inverse=True, return_counts=True)
    errors = torch.zeros_like(values).index_add_(0, place, widened(wrong)) / sizes
    parts = [part.tensor_split(groups) for part in (errors.repeat_interleave(sizes), values.repeat_interleave(sizes))]
    rates, means = ([float(group.mean()) for group in part] for part in parts)
    known = bool(wrong.any()) and not bool(wrong.all())
    return {"auroc": auc(-norms, wrong) if known else None, "error_rates": rates, "mean_norms": means}


def _checked_pairs(scores: Array, same: Array) -> tuple[Tensor, Tensor]:
    """Scores (P,) in the widest type and same (P,) as bool, on one device. Both kinds of pairs must be there."""
    scores, same = widened(tensor(scores).detach()), tensor(same)
    if scores.ndim != 1 or same.shape != scores.shape:
        raise BadArgument("scores and same", (tuple(scores.shape), tuple(same.shape)), "of one shape (P,)")
    if scores.isnan().any():
        raise NotFinite("scores", int(scores.isnan().int().argmax()), len(scores))
    if ((same != 0) & (same != 1)).any():
        raise BadArgument("same", same.dtype, "True or 1 for pairs of one person, and False or 0 for the others")
    same = same.to(scores.device).bool()
    if same.all() or not same.any():
        raise OneKindOfPairs("same", len(same), "one person" if same.all() else "two people")
    return scores, same
