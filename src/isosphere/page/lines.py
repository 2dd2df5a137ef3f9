"""The lines that a run or a NormMonitor wrote, read leniently: what cannot be shown is told in sentences."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = ("alarm", "text", "angles")  # what a line has beside numbers
TRAINED = (
    "loss", "metric", "penalty", "lr", "norm_mean", "norm_variance", "norm_cv", "norm_min", "norm_max", "lr_proxy_mean",
    "lr_proxy_cv", "radial_share",
)  # fmt: skip
"""What is charted of a run's training lines."""


def numbers(values: Any) -> dict[str, float]:
    """The finite numbers of a JSON object, by name; nothing of anything else."""
    pairs = values.items() if isinstance(values, dict) else ()
    return {k: v for k, v in pairs if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)}


def read_lines(path: Path, missing: list[str]) -> list[dict[str, Any]]:
    """Every line that has a kind and a step, with its words and its finite numbers."""
    if not path.is_file():
        missing.append(f"no {path.name}: no curves")
        return []
    lines, bad = [], 0
    odd: dict[str, int] = {}  # name of what is no finite number -> the step where it is first
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
            words = {name: line[name] for name in WORDS if name in line}
            lines.append(numbers(line) | words | {"kind": line["kind"], "step": int(line["step"])})
            odd = {name: lines[-1]["step"] for name in line if name not in lines[-1]} | odd
        except (ValueError, KeyError, TypeError):
            bad += 1
    if not lines and not bad:
        missing.append(f"{path.name} is empty: no curves")
    if bad:
        missing.append(f"{bad} line{'s' * (bad > 1)} of {path.name} cannot be read (cut short?) and left out")
    if odd:
        told = ", ".join(f"{name} (first in step {step})" for name, step in odd.items())
        missing.append(f"left out of {path.name}, because it is no finite number: {told}")
    return lines


def missing_of(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences on what a run's lines lack to be charted; none of no lines at all, which are told of already."""
    told, trained = [], [line for line in lines if line["kind"] == "train"]
    absent = [name for name in TRAINED if not any(name in line for line in trained)]
    if lines and len(trained) < 2:
        told.append("fewer than two training lines: no curves of them")
    elif lines and absent:
        told.append(f"no {', '.join(absent)} in its training lines (of an older version?): not charted")
    if lines and sum(line["kind"] == "test" for line in lines) < 2:
        told.append("fewer than two evaluations: no curves of them")
    return told
