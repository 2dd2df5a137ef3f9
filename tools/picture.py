"""Draws README's picture for light and for dark pages: the idea as a sketch, and what SEC measured in `results/`."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from evidence_parts.common import DATASETS, LOSSES, only, retrieval  # noqa: E402

from isosphere.report import style  # noqa: E402
from isosphere.report.tables import values_of  # noqa: E402

OUT = Path(__file__).parents[1] / "docs" / "assets"
INK = {"light": ("#1F2328", "#FFFFFF", "#D0D7DE"), "dark": ("#E6EDF3", "#0D1117", "#3D444D")}  # text, ground, lines
COLORS = {"light": (style.VERMILION, style.BLUE), "dark": ("#FF8A4C", "#6CB6FF")}  # baseline, SEC
LENGTHS = np.array([0.45, 1.25, 0.7, 1.0, 0.35, 1.3, 0.8, 1.1])
PULL = 0.28


def sketch(panel: Any, lengths: np.ndarray, color: str, ink: str, title: str) -> None:
    """Embeddings as arrows, and how far a step of one size turns each (Proposition 5)."""
    angles = np.linspace(0, 2 * np.pi, len(lengths), endpoint=False) + 0.2
    for angle, length in zip(angles, lengths, strict=True):
        turn = np.arctan(PULL / length)
        arc = np.linspace(angle, angle + turn, 20)
        panel.fill(np.r_[0, length * np.cos(arc)], np.r_[0, length * np.sin(arc)], color=color, alpha=0.3, linewidth=0)
        tip = length * np.cos(angle), length * np.sin(angle)
        panel.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkB": 0})
    circle, radius = np.linspace(0, 2 * np.pi, 200), lengths.mean()
    panel.plot(np.cos(circle) * radius, np.sin(circle) * radius, color=ink, linewidth=0.8, linestyle=":")
    panel.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), aspect="equal", xticks=[], yticks=[])
    panel.grid(False)
    panel.set_frame_on(False)
    panel.set_title(title, color=color, fontsize=10)


def measured(panel: Any, colors: tuple[str, str], ink: str) -> None:
    """R@1 of the baseline and of SEC in the eight tuned cells, means over seeds."""
    runs, place, ticks = retrieval(), 0, []
    for dataset, name in DATASETS.items():
        for loss, words in LOSSES.items():
            cell = only(runs, cell=f"{dataset}-{loss}")
            ends = [np.mean(values_of([r["last"] for r in only(cell, method=m)], "recall@1")) for m in ("none", "sec")]
            panel.plot(ends, [place, place], color=ink, linewidth=1, zorder=1)
            widest = cell[0]["cell"] == "cars196-triplet"  # where there is room for the names
            for value, color, label in zip(ends, colors, ("baseline", "SEC"), strict=True):
                panel.plot([value], [place], "o", color=color, markersize=6, zorder=2)
                if widest:
                    panel.annotate(label, (value, place), (0, 6), textcoords="offset points", color=color, ha="center")
            ticks.append((place, f"{name.split('-')[0]}, {words}"))
            place -= 1
    panel.set_yticks([one for one, _ in ticks], [words for _, words in ticks], color=ink)
    panel.set_title("R@1 on unseen classes, in %", color=ink, fontsize=10)
    panel.tick_params(colors=ink, length=0)


def draw(theme: str) -> Path:
    """The picture for a page of this theme."""
    ink, ground, lines = INK[theme]
    baseline, sec = COLORS[theme]
    path = OUT / f"idea_{theme}.png"
    with style.our_style():
        figure = style.new_figure((9.6, 3.0))
        figure.set_facecolor(ground)
        panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.35))
        sketch(panels[0], LENGTHS, baseline, ink, "baseline: norms spread,\nshort embeddings turn far")
        sketch(panels[1], np.full_like(LENGTHS, LENGTHS.mean()), sec, ink, "SEC: one norm,\nequal turns")
        measured(panels[2], (baseline, sec), ink)
        panels[2].set_facecolor(ground)
        panels[2].grid(color=lines)
        for spine in panels[2].spines.values():
            spine.set_color(lines)
        figure.savefig(path, metadata=style.FORMATS[".png"], dpi=150, facecolor=ground)
    return path


if __name__ == "__main__":
    for theme in INK:
        print(draw(theme))
