"""The paper's two sketches, drawn from numbers: an update of a direction, and what SEC adds (Fig. 2, 3)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from isosphere.report import style
from isosphere.sphere import norms, tan_direction_change

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORCE = 1.0  # |dL / d direction|, the same for all: what pairs ask of a direction does not know its norm
RATE = 0.5


def angles_by_norm(lengths: torch.Tensor, gradient: str = "loss") -> torch.Tensor:
    """Degrees that a step turns embeddings of these norms (M,), by Eq. 6 with the paper's step f - df.

    `loss`: the gradient of an angular loss, which shrinks as 1 / |f| (Eq. 4): the turn falls with |f|^2. `equal`: one
    length for all, as Adam has it (Proposition 5): it falls with |f|.
    """
    embeddings = torch.stack([lengths, torch.zeros_like(lengths)], 1)
    size = FORCE / lengths if gradient == "loss" else torch.full_like(lengths, FORCE)
    gradients = torch.stack([torch.zeros_like(lengths), size], 1)
    return torch.atan(tan_direction_change(embeddings, gradients, RATE)).rad2deg()


def turn(runs: list[Path], out: Path) -> list[Path]:
    """Draw an update of a short and a long embedding, and how far it turns them against the norm (Fig. 2)."""
    lengths = torch.linspace(0.5, 4, 141, dtype=torch.float64)
    title = "How far an update turns an embedding\nthe same pairs for all, learning rate 0.5"
    with style.sheet(out, title, columns=2, size=(4.8, 4.0)) as (_, panels):
        for number, (length, color) in enumerate(((1.0, style.VERMILION), (2.5, style.BLUE))):
            foot = np.array([0.0, -1.0 * number])
            tip, size = foot + (length, 0), FORCE / length
            moved = tip + (0, RATE * size)
            angle = float(angles_by_norm(torch.tensor([length], dtype=torch.float64)))
            _arrow(panels[0], foot, tip, color, f"f, |f| = {length:g}")
            _arrow(panels[0], tip, moved, style.GRAY, "" if number else "−α ∂L/∂f, orthogonal to f")
            _arrow(panels[0], foot, moved, color, f"updated f, Δθ = {angle:.1f}°", "--")
        panels[0].set(xlim=(-0.15, 2.8), ylim=(-1.25, 0.8), xlabel="along f", ylabel="across f")
        panels[0].set(aspect="equal", yticks=[])
        style.legend_above(panels[0], "a short and a long embedding")
        for gradient, color, line, label in (
            ("loss", style.PURPLE, "-", "SGD: ∂L/∂f ∝ 1 / |f|, so tan Δθ ∝ 1 / |f|²"),
            ("equal", style.GREEN, "--", "equal steps (Adam): tan Δθ ∝ 1 / |f|"),
        ):
            panels[1].plot(lengths, angles_by_norm(lengths, gradient), color=color, linestyle=line, label=label)
        panels[1].set(xlabel="norm |f|", ylabel="angle turned Δθ (degrees)", xlim=(0, 4), ylim=(0, None))
        style.legend_above(panels[1], "Eq. 6")
    return style.files(out)


@dataclass(frozen=True)
class Update:
    """A step of a planar embedding (2,): its gradient parts (2,), where it ends without and with SEC, the degrees."""

    embedding: torch.Tensor
    metric: torch.Tensor
    penalty: torch.Tensor
    without: torch.Tensor
    with_sec: torch.Tensor
    angle_without: float
    angle_with: float


def sec_update(length: float, radius: float = 2.0, eta: float = 0.5) -> Update:
    """A step of an embedding of this norm with and without SEC's gradient 2 eta (|f| - radius) f / |f| (Eq. 18)."""
    embedding = torch.tensor([length, 0.0], dtype=torch.float64)
    metric = torch.tensor([0.0, -FORCE / length], dtype=torch.float64)
    penalty = 2 * eta * (norms(embedding) - radius) * embedding / length
    angles = [
        float(torch.atan(tan_direction_change(embedding[None], gradient[None], RATE)).rad2deg())
        for gradient in (metric, metric + penalty)
    ]
    ends = embedding - RATE * metric, embedding - RATE * (metric + penalty)
    return Update(embedding, metric, penalty, *ends, *angles)


def sec(runs: list[Path], out: Path) -> list[Path]:
    """Draw the gradients of an embedding inside and of one outside the sphere, without and with SEC (Fig. 3)."""
    radius = 2.0
    title = "What SEC adds to an update\nradius (mean norm) 2, η 0.5, learning rate 0.5"
    with style.sheet(out, title, columns=2, size=(4.8, 3.0)) as (figure, panels):
        for panel, length in zip(panels, (1.2, 2.8), strict=True):
            step, start = sec_update(length, radius), np.zeros(2)
            tip = step.embedding.numpy()
            around = np.linspace(-0.3, 0.6, 100)
            sphere = radius * np.cos(around), radius * np.sin(around)
            panel.plot(*sphere, color=style.GRAY, linestyle=":", label="the sphere of the mean norm")
            _arrow(panel, start, tip, style.BLACK, "f")
            _arrow(panel, tip, step.without.numpy(), style.VERMILION, "−α ∂L_metric/∂f")
            _arrow(panel, tip, tip - RATE * step.penalty.numpy(), style.GREEN, "−α η ∂L_sec/∂f")
            _arrow(panel, start, step.without.numpy(), style.VERMILION, "updated f without SEC", "--")
            _arrow(panel, start, step.with_sec.numpy(), style.BLUE, "updated f with SEC", "--")
            panel.set(xlim=(-0.15, 3.2), ylim=(-0.45, 1.0), xlabel="along f", ylabel="across f")
            panel.set_aspect("equal")
            side = "below" if length < radius else "above"
            panel.set_title(
                f"|f| = {length:g}, {side} the mean norm\n"
                f"Δθ: {step.angle_without:.1f}° without SEC, {step.angle_with:.1f}° with SEC"
            )
        style.legend_below(figure, panels)
    return style.files(out)


def _arrow(panel: "Axes", start: np.ndarray, end: np.ndarray, color: str, label: str, line: str = "-") -> None:
    """An arrow in the panel's own units, with an entry in its legend."""
    options = {"arrowstyle": "-|>", "color": color, "linestyle": line, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.6}
    panel.annotate("", tuple(end), tuple(start), arrowprops=options)
    panel.plot([], [], color=color, linestyle=line, label=label)
