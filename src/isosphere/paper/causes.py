"""What the experiment on causes measured: methods by rate, each at its best rate, and at equal training loss."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from isosphere.metrics.registry import TRAINING_LOSS, choosing, leading
from isosphere.recipes import labels
from isosphere.report.differences import students
from isosphere.report.rates import record_rate
from isosphere.runs import Record

Course = Sequence[tuple[float, float]]  # training loss and a metric in percent, in the order of steps
PRIMARY, SECOND = choosing("retrieval"), leading("retrieval")
GRID = 1001  # training losses at which two curves are compared


@dataclass(frozen=True)
class Gap:
    """A method less another in points, for each seed that has both."""

    seeds: dict[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.seeds.values())))

    @property
    def ends(self) -> tuple[float, float] | None:
        """Student's 95 % interval; one seed has none."""
        return students(list(self.seeds.values())) if len(self.seeds) > 1 else None

    @property
    def sign(self) -> int | None:
        """1 or -1 if the interval is above or below zero, 0 if it holds zero, None without an interval."""
        if self.ends is None:
            return None
        low, high = self.ends
        return 1 if low > 0 else -1 if high < 0 else 0


def of(records: Iterable[Record], method: str, rate: float | None = None) -> list[Record]:
    """The runs of a method, at one rate or all."""
    return [r for r in records if r["method"] == method and rate in (None, record_rate(r))]


def rates(records: Iterable[Record]) -> list[float]:
    """The learning rates of these runs, in rising order."""
    return sorted({record_rate(record) for record in records})


def scores(records: Iterable[Record], metric: str) -> dict[int, float]:
    """A metric of the last step in percent by seed; a run that diverged has none."""
    return {record["seed"]: 100 * record["last"][metric] for record in records if metric in record["last"]}


def best_rate(records: Sequence[Record]) -> float | None:
    """The rate with the highest mean of what judges; one at which a run diverged is taken only if there is no other."""
    found = []
    for rate in rates(records):
        its = [record for record in records if record_rate(record) == rate]
        if values := scores(its, PRIMARY):
            found.append((len(values) == len(its), float(np.mean(list(values.values()))), rate))
    return max(found)[2] if found else None


def start(records: Iterable[Record]) -> str:
    """What these networks were before training."""
    pretrained = {bool(labels.group(record["recipe"], "model").get("weights")) for record in records}
    return " and ".join(["from ImageNet"] * (True in pretrained) + ["from scratch"] * (False in pretrained))


# ---------------------------------------------------------------- at equal training loss


def course(record: Record, metric: str) -> Course:
    """The training loss and a metric in percent at every evaluation that has both."""
    tests = record.get("tests") or ()
    return [(test[TRAINING_LOSS], 100 * test[metric]) for test in tests if {TRAINING_LOSS, metric} <= test.keys()]


def span(courses: Iterable[Course]) -> tuple[float, float]:
    """The lowest and the highest training loss of any of these courses; NaN where there is none."""
    losses = [loss for its in courses for loss, _ in its]
    return (min(losses), max(losses)) if losses else (np.nan, np.nan)


def curve(courses: Iterable[Course], losses: np.ndarray) -> np.ndarray:
    """The upper envelope of courses at training losses (L,) -> (L,): the highest line there, NaN where there is none.

    The lines join evaluations that follow each other in one course.
    """
    best = np.full(losses.shape, np.nan)
    for its in courses:
        for (x0, y0), (x1, y1) in zip(its, its[1:], strict=False):
            if x0 != x1:
                line = y0 + (y1 - y0) * (losses - x0) / (x1 - x0)
                best = np.fmax(best, np.where((losses >= min(x0, x1)) & (losses <= max(x0, x1)), line, np.nan))
    return best


def height(courses: Sequence[Course], than: Sequence[Course]) -> float | None:
    """How far one curve lies above another in points: the mean over the training losses that both have."""
    (low, high), (other_low, other_high) = span(courses), span(than)
    losses = np.linspace(max(low, other_low), min(high, other_high), GRID)
    if not losses[0] < losses[-1]:
        return None
    apart = curve(courses, losses) - curve(than, losses)
    return float(np.nanmean(apart)) if np.isfinite(apart).any() else None


# ---------------------------------------------------------------- a method less another


def shared(records: Iterable[Record], method: str, than: str) -> tuple[list[float], list[int]]:
    """The rates that both methods were run at, and the seeds that have both at all of these."""
    records = list(records)
    places = [{(record_rate(r), r["seed"]) for r in of(records, name)} for name in (method, than)]
    both = sorted({rate for rate, _ in places[0]} & {rate for rate, _ in places[1]})
    seeds = sorted({seed for _, seed in places[0]} & {seed for _, seed in places[1]})
    return both, [seed for seed in seeds if all((rate, seed) in its for rate in both for its in places)]


def at_equal_rates(records: Sequence[Record], method: str, than: str, metric: str) -> Gap:
    """The mean over rates at which neither diverged."""
    both, seeds = shared(records, method, than)
    pairs = [[scores(of(records, name, rate), metric) for name in (method, than)] for rate in both]
    whole = [pair for pair in pairs if all(seed in its for seed in seeds for its in pair)]
    return Gap({seed: float(np.mean([one[seed] - other[seed] for one, other in whole])) for seed in seeds if whole})


def at_best_rates(records: Sequence[Record], method: str, than: str, metric: str) -> Gap:
    """Each at its own best rate."""
    one, other = (scores(of(records, name, best_rate(of(records, name))), metric) for name in (method, than))
    return Gap({seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())})


def at_equal_loss(records: Sequence[Record], method: str, than: str, metric: str) -> Gap:
    """The height of a method's curve above another's, both of all rates; a run that diverged adds nothing."""
    both, seeds = shared(records, method, than)
    found = {}
    for seed in seeds:
        courses = [
            [course(r, metric) for rate in both for r in of(records, name, rate) if r["seed"] == seed and r["last"]]
            for name in (method, than)
        ]
        apart = height(*courses)
        if apart is not None:
            found[seed] = apart
    return Gap(found)
