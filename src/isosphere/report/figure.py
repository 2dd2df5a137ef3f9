"""Every figure by name, drawn from run folders and files of results as a PNG and an SVG.

`FIGURES["norms"](runs, out)` writes `out` as .png and .svg and returns both paths. Nothing is imported before it is
needed.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from isosphere.errors import BadArgument


@dataclass(frozen=True)
class Figure:
    """A figure by name: the line that describes it, and the function `place` ("package.module:function")."""

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
                raise BadArgument("option", name, f"one of this figure's: {', '.join(known) or 'it has none'}")
        return {name: _value(name, text, known[name]) for name, text in given.items()}

    def _function(self) -> Callable[..., list[Path]]:
        module, name = self.place.split(":")
        return getattr(import_module(module), name)


def _value(name: str, text: str, default: Any) -> Any:
    """A text as its option needs it: 3 -> a number, a,b -> a list where the default is one."""
    if isinstance(default, tuple):
        return [int(part) if part.isdecimal() else part for part in text.split(",")]
    if isinstance(default, int) and not text.isdecimal():
        raise BadArgument(name, text, "a whole number")
    return int(text) if isinstance(default, int) else text


def _ours(description: str, place: str) -> Figure:
    return Figure(description, f"isosphere.report.{place}")


FIGURES = {
    "norms": _ours("distribution of norms, one panel a data set (Fig. 1, 5a); needs snapshots", "norms:norms"),
    "convergence": _ours("R@1, or --metric, over steps; a panel a loss and rate (Fig. 4)", "curves:convergence"),
    "cosines": _ours("cosines of positive and negative pairs, their difference (Fig. 5b-d)", "cosines:cosines"),
    "constraints": _ours("R@1, or --metric, and the norms over steps (Fig. 6)", "curves:constraints"),
    "directions": _ours("the angle that embeddings turned between snapshots (Fig. 7)", "turns:directions"),
    "gallery": _ours("nearest images of a few queries, right or wrong (Fig. 9)", "gallery:gallery"),
    "map": _ours("directions of test images on their two principal axes", "projection:projection"),
    "rates": _ours("R@1, or --metric, against the learning rate, a line a constraint", "rates:rates"),
    "differences": _ours("differences of R@1, or --metric, by cell and pooled", "differences:differences"),
}
"""Name -> figure; `isosphere.paper.figures` has those that only the paper needs."""
