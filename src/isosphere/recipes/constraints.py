"""What is done about the norms: every constraint with its name, label and color, and nowhere else.

An option names the class or function that builds it (`built_by`). So the loop knows no constraint by name. A new one is
its formula in `losses/norms.py`, an option here with a row in `METHODS`, and a test.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from isosphere.recipes.checks import Checked, Fraction, NotNegative, Positive, Ramp
from isosphere.recipes.own import Own, own_name


class Method(NamedTuple):
    """How a constraint is shown: in tables and legends, in figures, and in the list of recipes."""

    label: str
    color: str
    about: str


BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
"""Okabe and Ito's colors, which color-blind readers can tell apart."""

METHODS = {
    "none": Method("baseline", VERMILION, "no constraint on the norms"),
    "l2reg": Method("L2-reg", ORANGE, "norms pulled to zero"),
    "sec": Method("SEC", BLUE, "norms pulled to the batch's mean"),
    "sec-ema": Method("SEC-EMA", SKY, "norms pulled to their running mean"),
    "sec-relative": Method("relative SEC", GREEN, "norms pulled to the batch's mean, in proportion to it"),
    "sec-initial": Method("SEC, initial radius", PURPLE, "norms pulled to the first batch's mean"),
    "sec-fixed": Method("SEC, fixed radius", PURPLE, "norms pulled to a constant"),
    "sec-learned": Method("Ring loss", SKY, "norms pulled to a learned radius"),
    "sec-relative-ema": Method("relative SEC-EMA", GREEN, "norms pulled to their running mean, in proportion"),
    "sec-relative-initial": Method("relative SEC, initial radius", GREEN, "norms pulled to the first mean, scaled"),
    "sec-relative-fixed": Method("relative SEC, fixed radius", GREEN, "norms pulled to a constant, in proportion"),
    "sec-relative-learned": Method("relative Ring loss", GREEN, "norms pulled to a learned radius, in proportion"),
    "sec-log": Method("SEC of log norms", GREEN, "logs of norms pulled together, their common scale left free"),
    "sec-decoupled": Method("decoupled SEC", SKY, "SEC as a plain step of the last layer, outside the optimizer"),
    "sec-adaptive": Method("adaptive SEC", BLUE, "SEC whose gradient is a share of the criterion's"),
    "cut-init": Method("cut initialization", ORANGE, "the last layer starts smaller, nothing more"),
    "l2sp": Method("L2-SP", YELLOW, "the backbone's weights pulled to where they started"),
    "placebo": Method("SEC's pulls, shuffled", "#999999", "a control: as strong as SEC, and evens out nothing"),
    "scale": Method("scale alone", YELLOW, "a control: the mean norm follows a course, the spread is left alone"),
    "balanced": Method("balanced directions", BLACK, "norms left alone, the gradient divided by their mean"),
    "own": Method("own constraint", PURPLE, "a constraint of your own"),
}
"""By name, in the order of legends."""


@dataclass(frozen=True)
class Baseline(Checked):
    """No constraint on the norms."""

    built_by = "isosphere.losses.constraint:Constraint"
    becomes = "SEC"  # where a field is given: `--constraint.eta 0.1` on a recipe without a constraint

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "none"


@dataclass(frozen=True)
class L2Reg(Checked):
    """Norms pulled to zero (Eq. 30)."""

    built_by = "isosphere.losses.norms:l2_reg"
    eta: NotNegative = 1e-3
    """Weight of the mean squared norm (Table 8 has 1e-5 to 1e-2)."""
    ramp: Ramp = (0.0, 0.0)
    """Fractions of training between which eta rises from 0; (0, 0) is constant."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "l2reg" if self.eta else "none"


@dataclass(frozen=True)
class SEC(Checked):
    """The spherical embedding constraint: norms pulled to one radius (Eq. 17)."""

    built_by = "isosphere.losses.norms:SEC"
    eta: NotNegative = 0.1
    """Weight of the penalty; 0 is the baseline."""
    radius: Literal["batch", "ema", "initial", "learned"] | Positive = "batch"
    """What norms are pulled to. batch: the batch's mean norm; ema: its running mean; initial: the first batch's mean;
    learned: a parameter, as in Ring loss. Or a constant above 0; 0 is L2Reg."""
    rho: Fraction = 0.01
    """Weight of the newest batch in the running mean (Table 9)."""
    relative: bool = False
    """Penalize |f| / radius - 1, so eta does not depend on the embeddings' scale."""
    ramp: Ramp = (0.0, 0.0)
    """Fractions of training between which eta rises from 0. SimCLR has (0, 1), faces (3/16, 4/16), others (0, 0)."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        if not self.eta:
            return "none"
        form = self.radius if isinstance(self.radius, str) else "fixed"
        return ("sec-relative" if self.relative else "sec") + (f"-{form}" if form != "batch" else "")


@dataclass(frozen=True)
class LogNorms(Checked):
    """Norms pulled together in their logarithms, which leaves their common scale free."""

    built_by = "isosphere.losses.log_norms:LogNorms"
    eta: NotNegative = 5.0
    """Weight of the variance of log norms. It is about SEC's eta times the squared mean norm."""
    ramp: Ramp = (0.0, 0.0)
    """Fractions of training between which eta rises from 0; (0, 0) is constant."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "sec-log" if self.eta else "none"


@dataclass(frozen=True)
class DecoupledSEC(Checked):
    """SEC as a plain step of the last layer, outside the optimizer's moments."""

    built_by = "isosphere.losses.decoupled:DecoupledSEC"
    eta: NotNegative = 1.0
    """Weight of the penalty. Its gradient is multiplied by the learning rate and by nothing else."""
    ramp: Ramp = (0.0, 0.0)
    """Fractions of training between which eta rises from 0; (0, 0) is constant."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "sec-decoupled" if self.eta else "none"


@dataclass(frozen=True)
class AdaptiveSEC(Checked):
    """SEC whose gradient by the last layer is a share of the criterion's."""

    built_by = "isosphere.losses.adaptive:AdaptiveSEC"
    eta: NotNegative = 0.1
    """How large the penalty's gradient is, in parts of the criterion's."""
    rho: Fraction = 0.05
    """Weight of the newest step in the running means of both gradients' sizes."""
    ramp: Ramp = (0.0, 0.0)
    """Fractions of training between which eta rises from 0; (0, 0) is constant."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "sec-adaptive" if self.eta else "none"


@dataclass(frozen=True)
class CutInitialization(Checked):
    """The last layer starts with its weights divided by a factor."""

    built_by = "isosphere.losses.first_weights:CutInitialization"
    factor: Positive = 3.0
    """What weights and biases of the last layer are divided by; its authors advise 3 for contrastive losses."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "cut-init"


@dataclass(frozen=True)
class L2SP(Checked):
    """The backbone's weights pulled to where they started."""

    built_by = "isosphere.losses.first_weights:L2SP"
    eta: NotNegative = 0.01
    """Weight of half the squared distance to the first weights."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "l2sp" if self.eta else "none"


@dataclass(frozen=True)
class BalancedDirections(Checked):
    """Norms left alone: the gradient is divided by their mean, not by each own norm."""

    built_by = "isosphere.losses.balanced:BalancedDirections"

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "balanced"


@dataclass(frozen=True)
class ShuffledPulls(Checked):
    """A control: SEC's pulls, each on another embedding of the batch."""

    built_by = "isosphere.losses.controls:ShuffledPulls"
    eta: NotNegative = 0.1
    """Weight of the pulls, as in SEC."""
    course: tuple[Positive, ...] = (1.0, 1.0)
    """Mean times standard deviation of norms at equal parts of training, for instance those of a run with SEC."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "placebo" if self.eta else "none"


@dataclass(frozen=True)
class ScaleCourse(Checked):
    """A control: the last layer is rescaled after each step, so that the mean norm follows a course."""

    built_by = "isosphere.losses.controls:ScaleCourse"
    course: tuple[Positive, ...] = (1.0, 1.0)
    """Mean norms at equal parts of training, for instance those of a run with SEC."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "scale"


@dataclass(frozen=True)
class OwnConstraint(Own):
    """A constraint of your own: embeddings -> penalty, already weighted."""

    @property
    def method(self) -> str:
        """Its name in `METHODS`."""
        return "own"


Constraint = (
    Baseline | L2Reg | SEC | LogNorms | DecoupledSEC | AdaptiveSEC | BalancedDirections | CutInitialization | L2SP
    | ShuffledPulls | ScaleCourse | OwnConstraint
)  # fmt: skip

BASELINE = Baseline().method
"""What the others are compared with."""
RIVALS = (SEC(relative=True).method, SEC().method)
"""Two that are also compared with each other."""


def strength(constraint: Constraint) -> float:
    """Its eta, or 0 where it has none."""
    return getattr(constraint, "eta", 0.0)


def label(constraint: Constraint) -> str:
    """A constraint in words with its strength: "SEC (η 0.1)"."""
    words = own_name(constraint.path) if isinstance(constraint, OwnConstraint) else METHODS[constraint.method].label
    if isinstance(constraint, SEC) and not isinstance(constraint.radius, str) and constraint.eta:
        words += f" {constraint.radius:g}"
    eta = strength(constraint)
    return f"{words} (η {eta:g})" if eta else words


def suffix(method: str) -> str:
    """What a recipe's name ends in: "-sec", nothing for the baseline."""
    return "" if method == BASELINE else f"-{method}"


def place(method: str) -> int:
    """Where a method stands in a legend; one without a row comes last."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)
