"""Every figure of the paper and a few more, drawn from run folders and result files: each a name, a PNG and an SVG.

`FIGURES["norms"](runs, out)` writes `out` as .png and .svg and returns both paths. What a figure is drawn from is
computed by functions of its module that draw nothing, and nothing is imported before it is needed.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure by name: the line that describes it, and the function `place` ("module.function") that draws it."""

    description: str
    place: str

    def __call__(self, runs: list[Path], out: Path, **options: Any) -> list[Path]:
        """Draw it from run folders or result files; returns the files written."""
        return self._function()([Path(run) for run in runs], Path(out), **options)

    def options(self, given: dict[str, str]) -> dict[str, Any]:
        """Its options from the command line's text: numbers and lists as such; an unknown one is refused."""
        parameters = inspect.signature(self._function()).parameters
        # Those without a default are not options, and images and maps, whose default is None, are no text.
        known = {name: its.default for name, its in parameters.items() if its.default not in (its.empty, None)}
        for name in given:
            if name not in known:
                raise ValueError(f"this figure has no option --{name}; it has {', '.join(known) or 'none'}")
        return {name: _value(name, text, known[name]) for name, text in given.items()}

    def _function(self) -> Callable[..., list[Path]]:
        module, name = self.place.split(".")
        return getattr(import_module(f"{__name__}.{module}"), name)


def _value(name: str, text: str, default: Any) -> Any:
    """A text as its option needs it: 3 -> a number, a,b -> a list where the default is one."""
    if isinstance(default, tuple):
        return [int(part) if part.isdecimal() else part for part in text.split(",")]
    if isinstance(default, int) and not text.isdecimal():
        raise ValueError(f"--{name} must be a whole number, not {text!r}")
    return int(text) if isinstance(default, int) else text


FIGURES = {
    "norms": Figure("distribution of norms, one panel a data set (Fig. 1, 5a); needs snapshots", "norms.norms"),
    "turn-sketch": Figure("how far an update turns an embedding, by its norm (Fig. 2); needs no run", "sketches.turn"),
    "sec-sketch": Figure("what SEC adds to an update (Fig. 3); needs no run", "sketches.sec"),
    "convergence": Figure("R@1, or --metric, over steps; a panel a loss and rate (Fig. 4)", "convergence.convergence"),
    "cosines": Figure("cosines of positive and negative pairs, their difference (Fig. 5b-d)", "cosines.cosines"),
    "constraints": Figure("R@1, or --metric, and the norms over steps (Fig. 6)", "convergence.constraints"),
    "directions": Figure("the angle that embeddings turned between snapshots (Fig. 7)", "directions.directions"),
    "feature-maps": Figure("the six strongest channels of the last layer (Fig. 8)", "feature_maps.feature_maps"),
    "gallery": Figure("nearest images of a few queries, right or wrong (Fig. 9)", "gallery.gallery"),
    "map": Figure("directions of test images on their two principal axes", "projection.projection"),
    "ablation": Figure("metrics against eta or rho (Tables 2, 8, 9)", "ablations.ablation"),
    "rates": Figure("R@1, or --metric, against the learning rate, a line a constraint", "ablations.rates"),
    "trials": Figure("what the trials scored on held-out training classes or images", "ablations.trials"),
    "differences": Figure("differences of R@1, or --metric, by cell and pooled", "differences.differences"),
}
"""Name -> figure, in the order of the paper."""
