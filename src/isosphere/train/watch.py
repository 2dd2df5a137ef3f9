"""A run watched on its validation images: its best weights so far, and whether to stop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from isosphere import distributed
from isosphere.errors import BadArgument, Option
from isosphere.metrics import registry

KEPT = ("step", "score", "waited", "seen", "model")
"""What a checkpoint keeps."""


@dataclass
class Watch:
    """The best evaluation so far by a metric, with the weights that it was of if these are kept."""

    metric: str
    patience: int  # evaluations in a row without a better one, after which to stop; 0 never does
    keeps: bool
    step: int = -1
    score: float = float("-inf")  # higher is better
    waited: int = 0
    seen: int = -1  # the last step of which there was an evaluation
    model: dict[str, Tensor] = field(default_factory=dict)  # on the CPU

    def see(self, step: int, found: Mapping[str, float], model: nn.Module) -> None:
        """An evaluation, once; the first rank alone has what it `found`."""
        if step == self.seen:  # of a run that could not write it down
            return
        self.seen, score = step, distributed.on_first(lambda: self._score(found))
        if score > self.score:
            self.step, self.score, self.waited = step, score, 0
            if self.keeps:
                self.model = on_cpu(model)
        else:
            self.waited += 1

    def _score(self, found: Mapping[str, float]) -> float:
        if self.metric not in found:
            raise BadArgument(Option("validation.metric"), self.metric, f"one of {', '.join(found)}")
        return -found[self.metric] if registry.metric(self.metric).better == "lower" else found[self.metric]

    @property
    def stops(self) -> bool:
        """Whether the run has waited long enough."""
        return 0 < self.patience <= self.waited

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in KEPT}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name in KEPT:
            setattr(self, name, state[name])


def on_cpu(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers."""
    return {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}
