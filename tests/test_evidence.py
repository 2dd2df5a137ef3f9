"""Every number of README and of the docs comes from results/, and a wrong one is noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import evidence  # noqa: E402
from evidence_parts import numbers, readme  # noqa: E402


def test_readme_and_the_pages_are_what_the_results_say():
    done = subprocess.run([sys.executable, ROOT / "tools" / "evidence.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_part_that_was_changed_by_hand_is_written_again():
    page = "a\n<!-- seeds -->\nby hand\n<!-- /seeds -->\nb\n"
    made = evidence.filled(page)
    assert made != page and made == evidence.filled(made)
    assert made.startswith("a\n<!-- seeds -->\n") and made.endswith("\n<!-- /seeds -->\nb\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SEC has 63.9 here.", ["63.9"]),
        ("a gain of +2.2 points, 7 points, 29 % and 40 x", ["+2.2", "7", "29 %", "40"]),
        ("| SEC | 63.9 ± 0.2 |", ["63.9", "0.2"]),
        ("eta 0.1 at 2.5e-5 for 1,600 steps of 60,502 x 512", []),
        ("# 63.9\n`63.9`, [63.9](63.9)\n```\n63.9\n```", ["63.9"]),
        ("torch 2.11.0, v0.2", []),
    ],
)
def test_numbers_without_a_source(text, found):
    assert numbers.loose(text) == found
    assert numbers.loose(text, made=[text]) == []


def test_a_number_of_a_guide_is_among_its_settings_or_noticed():
    assert evidence.stray("guides/simclr.md", "the factor 7.143 and 83.4 %") == ["83.4 %"]
    assert evidence.stray("guides/own_images.md", "the factor 7.143") == ["7.143"]


def text_of(*, gain: str = "", row: str = "") -> str:
    """A README that says what it must, and a bit more."""
    found = readme.facts()
    return "\n".join([*(found[name][0] + "." for name in readme.NEEDED), gain, row])


def cells(label: str, place: int) -> list[str]:
    return [max(forms, key=len) for forms in readme.rows()[label][place]]


def test_readme_must_say_the_gain_and_the_harm():
    assert readme.check(text_of()) == []
    assert len(readme.check("")) == len(readme.NEEDED)


def test_a_sentence_of_readme_with_another_number_is_noticed():
    fact = readme.facts()["relative SEC less SEC, R@1"][-1]
    assert readme.check(text_of(gain=f"It is not better {fact}.")) == []
    assert readme.check(text_of(gain=f"It is not better {fact[:-2]}9)."))
    assert readme.check(text_of(gain="SEC adds 9.9 points of R@1."))


@pytest.mark.parametrize("label", ["baseline", "no constraint", "SEC", "relative SEC (ours)"])
def test_a_row_of_readme_may_be_shorter_and_not_different(label):
    row = cells(label, 0)
    assert readme.check(text_of(row=f"| **CUB-200-2011**: {label} | {' | '.join(row)} |")) == []
    assert readme.check(text_of(row=f"| {label} | {' | '.join(row[1:3])} |")) == []
    assert readme.check(text_of(row=f"| {label} | {' | '.join(row[::-1])} |"))
    assert readme.check(text_of(row=f"| {label} | 99.9 ± 0.1 | {' | '.join(row[1:])} |"))


def test_a_speed_of_readme_may_be_rounded_and_not_different():
    label = "triplet, against pytorch-metric-learning"
    assert readme.check(text_of(row=f"| {label} | {' | '.join(cells(label, 0))} |")) == []
    assert readme.check(text_of(row=f"| {label} | 2.6 x | 166 x |")) == []
    assert readme.check(text_of(row=f"| {label} | 2.7 x | 166 x |"))
