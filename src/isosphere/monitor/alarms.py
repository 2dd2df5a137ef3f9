"""When figures are cause for alarm, with the reason for each limit, and what to try."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from isosphere.sphere import SPREADING, is_normalized

Record = dict[str, Any]
GROWTH = 10.0
"""Factor on the first step's mean norm that counts as exploding or collapsing: directions then turn 10 times (Adam) or
100 times (SGD) slower or faster than the learning rate was chosen for. Our healthy runs stay within a factor of 5."""
RADIAL = 0.01
"""Radial share from which a loss pulls at norms: a tenth of the gradient's length. An angular loss has none, by
Proposition 1; rounding to bfloat16 makes it 1e-6."""
CALM = 10
"""Reads without an alarm's cause after which its episode is over: a figure that hovers about its limit warns once."""
WRAPPERS = 8  # around an optimizer, at most: one may hold itself as `optimizer`
KNOWN = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam)
ADVICE = {
    "exploding": "warm the learning rate up, or lower it",
    "collapsing": "weaken weight decay or L2-reg, or lower the learning rate",
    "spreading": "only a comparison on held-out classes shows whether a constraint helps",
}
"""What to try in any loop; ours names the fields of its recipe. Norms alone do not say whether SEC helps."""


def alarms(
    figures: Record, first_mean: float | None, power: int | None, constrained: bool, advice: Mapping[str, str] = ADVICE
) -> Iterator[tuple[str, str]]:
    """Name and words of each alarm that figures give cause for, given the mean norm of the first step.

    Without a power it says nothing of how far directions turn. Norms that spread are no alarm where `advice` has
    nothing against it: there a constraint is still on its way.
    """
    if figures.get("not_finite"):
        yield "not_finite", (
            f"{figures['not_finite']:.3g} embeddings a step are not finite, and the other figures leave them out; "
            "lower the learning rate, clip gradients, or keep the last layer out of half precision"
        )
    if figures.get("norm_min") == 0:
        yield "zero", (
            "embeddings have norm 0, or are so small that their squares are: these have no direction and learn "
            "nothing; look at the last layer, or make its weights larger"
        )
    if "norm_mean" not in figures or first_mean is None:
        return
    mean, spread = figures["norm_mean"], figures.get("norm_cv", 0.0)
    if is_normalized(mean, spread):
        yield "normalized", (
            "all norms are 1: the model normalizes its output, so this monitor and SEC have nothing to act on; give "
            "them the embeddings before normalization"
        )
        return
    if mean >= GROWTH * first_mean > 0:
        slower = f", so directions turn {(mean / first_mean) ** power:.3g} times slower" if power else ""
        yield "exploding", (
            f"norms explode: their mean {mean:.3g} is {mean / first_mean:.3g} times the first step's{slower}; "
            f"{advice['exploding']}"
        )
    if mean <= first_mean / GROWTH:
        yield "collapsing", (
            f"norms collapse: their mean {mean:.3g} was {first_mean:.3g} in the first step, so directions turn faster; "
            f"{advice['collapsing']}"
        )
    if spread >= SPREADING and "spreading" in advice:
        ratio = ((1 + spread) / max(1 - spread, 0.01)) ** (power or 1)
        further = (
            f", so an embedding one standard deviation below the mean turns about {float(f'{ratio:.2g}'):g} times as "
            "far as one that much above it"
        )
        yield "spreading", (
            f"norms spread: their coefficient of variation is {spread:.2f}{further if power else ''}; "
            f"{advice['spreading']}"
        )
    if figures.get("radial_share", 0.0) >= RADIAL and not constrained:
        yield "radial", (
            f"{figures['radial_share']:.0%} of the squared gradient pulls at norms, but 0 % of an angular loss would; "
            "normalize inside the loss, or give the monitor constrained=True if norms are held on purpose"
        )


class Episodes:
    """Alarms over reads of figures in their order. Each is raised once an episode: until CALM reads without its cause.
    """

    def __init__(self, power: int | None, constrained: bool) -> None:
        self.power, self.constrained = power, constrained
        self.first_mean: float | None = None
        self.calm: dict[str, int] = {}  # alarm -> reads since its cause was last seen

    def fresh(self, figures: Record, advice: Mapping[str, str] = ADVICE) -> dict[str, str]:
        """Name and words of the alarms that begin with these figures."""
        if self.first_mean is None:
            self.first_mean = figures.get("norm_mean")
        causes = dict(alarms(figures, self.first_mean, self.power, self.constrained, advice))
        begun = {name: words for name, words in causes.items() if name not in self.calm}
        going_on = {name: reads + 1 for name, reads in self.calm.items() if reads + 1 < CALM}
        self.calm = going_on | dict.fromkeys(causes, 0)
        return begun


def proxy_power(optimizer: object) -> int | None:
    """The power of |f| in the proxy alpha / |f|^power: 2 for SGD (Propositions 3 and 4), 1 for Adam (Proposition 5).

    None for an optimizer of which the paper says nothing. Wrappers, such as Accelerate's, hold theirs as `optimizer`.
    """
    for _ in range(WRAPPERS):
        if not isinstance(optimizer, KNOWN):
            optimizer = getattr(optimizer, "optimizer", optimizer)
    if isinstance(optimizer, torch.optim.SGD):
        return 2
    return 1 if isinstance(optimizer, KNOWN) else None
