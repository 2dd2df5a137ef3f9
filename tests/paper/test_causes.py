"""The experiment on causes: curves at equal training loss, best rates, verdicts by interval, and the figure."""

import json

import numpy as np
import pytest

from isosphere.errors import BadArgument
from isosphere.paper import causes, causes_figure, causes_text

LOSSES = (1.0, 0.8, 0.6, 0.4)


def run(recipe_dict, method="none", lr=1e-5, seed=0, scores=(30, 40, 50, 45), losses=LOSSES, diverged=False):
    """A record of four evaluations, with MAP@R and R@1 in percent."""
    suffix = {"none": "", "sec": "-sec", "sec-relative": "-sec-relative"}.get(method, "")
    steps = range(100, 500, 100)
    tests = [
        {"step": step, "training_loss": loss, "map@r": score / 100, "recall@1": score / 100 + 0.3}
        for step, loss, score in zip(steps, losses, scores, strict=True)
    ]
    norms = {"norm_mean": 8.0, "norm_cv": 0.1 if "sec" in method else 0.2}
    turns = [{"step": step, "since": step - 100, "turn_mean": 1e6 * lr * step / 100} for step in steps]
    recipe = recipe_dict(f"cub200-ms{suffix}", optimizer_lr=lr, seed=seed, model_weights="w.pth")
    return {
        "cell": f"cub200-ms-lr{lr:g}", "method": method, "seed": seed, "recipe": recipe, "norms": [], "tests": tests,
        "turns": turns, "last": {} if diverged else {**tests[-1], **norms},
    }  # fmt: skip


@pytest.fixture
def make(recipe_dict):
    return lambda *given, **more: run(recipe_dict, *given, **more)


@pytest.mark.parametrize("above", [0.0, 2.0, -3.0])
def test_a_method_is_as_high_as_its_points_lie_above_the_baselines_curve(make, above):
    slow, fast = np.array((30, 40, 50, 45)), np.array((20, 45, 40, 30))  # their lines cross
    records = [make(scores=slow), make(lr=5e-5, scores=fast)]
    records += [make("sec", scores=slow + above), make("sec", lr=5e-5, scores=fast + above)]
    assert causes.at_equal_loss(records, "sec", "none", "map@r").seeds == {0: pytest.approx(above)}
    records[-2:] = [make("sec", scores=slow - 20), make("sec", lr=5e-5, scores=slow + above)]  # at another rate
    records[1] = make(lr=5e-5, scores=slow - 30)
    assert causes.at_equal_loss(records, "sec", "none", "map@r").seeds == {0: pytest.approx(above)}


def test_a_curve_is_the_highest_line_and_ends_where_the_last_run_ends():
    courses = [[(1.0, 10.0), (0.5, 20.0)], [(0.7, 18.0), (0.2, 8.0)], [(0.7, 0.0), (0.7, 99.0)]]
    found = causes.curve(courses, np.array([1.1, 1.0, 0.75, 0.7, 0.6, 0.3, 0.1]))
    assert found == pytest.approx([np.nan, 10, 15, 18, 18, 10, np.nan], nan_ok=True)
    assert causes.height(courses[:1], [[(0.4, 1.0), (0.3, 1.0)]]) is None
    assert causes.height([], courses) is None


@pytest.mark.parametrize(
    ("points", "sign"), [((1.0, 1.1, 1.2), 1), ((-1.0, 1.0), 0), ((-3.0, -3.1, -3.3), -1), ((5.0,), None)]
)
def test_the_sign_of_a_gap_is_that_of_its_interval(points, sign):
    gap = causes.Gap(dict(enumerate(points)))
    assert gap.sign == sign and gap.mean == pytest.approx(np.mean(points))
    if sign is None:
        assert gap.ends is None


def test_best_rates_are_each_methods_own_and_not_where_a_run_diverged(make):
    records = [make(lr=1e-5), make(lr=5e-5, scores=(1, 2, 3, 47))]
    records += [make("sec", scores=(1, 2, 3, 49)), make("sec", lr=5e-5, scores=(1, 2, 3, 90))]
    assert causes.at_best_rates(records, "sec", "none", "map@r").seeds == {0: pytest.approx(90 - 47)}
    records.append(make("sec", lr=5e-5, seed=1, diverged=True))
    assert causes.best_rate(causes.of(records, "sec")) == 1e-5
    assert causes.at_best_rates(records, "sec", "none", "map@r").seeds == {0: pytest.approx(49 - 47)}
    assert causes.best_rate([make(diverged=True)]) is None


def test_only_seeds_and_rates_that_both_have_are_compared(make):
    records = [make(name, lr=lr, seed=seed) for name in ("none", "sec") for lr in (1e-5, 5e-5) for seed in (0, 1)]
    assert causes.shared(records, "sec", "none") == ([1e-5, 5e-5], [0, 1])
    del records[-1]
    assert causes.shared(records, "sec", "none") == ([1e-5, 5e-5], [0])
    records.append(make("sec", lr=1e-3))
    assert causes.shared(records, "sec", "none") == ([1e-5, 5e-5], [0])
    records += [make(name, lr=5e-5, seed=2, diverged=name == "sec") for name in ("none", "sec")]
    records += [make(name, seed=2, scores=(1, 2, 3, 4 + (name == "sec"))) for name in ("none", "sec")]
    gap = causes.at_equal_rates(records, "sec", "none", "map@r")
    assert gap.seeds == {0: pytest.approx(0), 2: pytest.approx(1)}


@pytest.mark.parametrize(
    ("sec", "logs", "seeds", "words", "others"),
    [
        (10, 10, 3, ["SEC gains", "as the paper says"], ["SEC loses", "no verdict"]),
        (10, 0, 3, ["SEC gains", "not explained by"], ["as the paper says"]),
        (-10, 0, 3, ["SEC loses", "not explained by"], ["SEC gains"]),
        (10, 20, 3, ["SEC gains", "the effect is larger"], ["as the paper says"]),
        (0, 0, 3, ["No effect shows"], ["as the paper says", "SEC gains"]),
        (10, 10, 1, ["no verdict"], ["SEC gains", "as the paper says"]),
    ],
)
def test_verdicts_follow_from_the_intervals(make, sec, logs, seeds, words, others):
    records = []
    for seed in range(seeds):
        for method, more in (("none", 0), ("sec", sec), ("sec-log", logs)):
            scores = np.array((30, 40, 50, 45)) + more + 0.1 * seed * (method == "sec") - 0.1 * (method == "sec")
            records.append(make(method, seed=seed, scores=scores))
    text = "\n".join(causes_text.verdicts(records))
    assert all(word in text for word in words) and not any(word in text for word in others)


def test_the_part_counts_runs_that_diverged_and_needs_no_second_seed(make):
    records = [make(), make("sec"), make("sec", lr=5e-5, diverged=True), make("placebo", diverged=True)]
    text = causes_text.markdown(records)
    assert "2 diverged (" in text and "SEC at 5e-05" in text and "SEC's pulls, shuffled at 1e-05" in text
    assert "| baseline | 45.0 | - |" in text and "all diverged" in text and "nan" not in text
    assert "With SEC of log norms" not in text
    assert causes_text.markdown([make(), make("scale", lr=5e-5)]).count("###") == 1


def test_the_figure_has_a_panel_for_each_loss_and_leaves_out_what_diverged(make, recipe_dict, tmp_path):
    records = [make(name, lr=lr, seed=seed) for name in ("none", "sec") for lr in (1e-5, 5e-5) for seed in (0, 1)]
    records.append(make("scale", diverged=True))
    path = tmp_path / "causes.json"
    path.write_text(json.dumps({"runs": records, "trials": []}))
    text = causes_figure.causes([path], tmp_path / "f")[1].read_text()
    assert ">R@1 (%)<" in text and ">SEC<" in text and "1 of 9 runs diverged" in text and ">scale alone<" not in text
    assert "from ImageNet" in text and ">rate 1e-05<" in text
    assert ">MAP@R (%)<" in causes_figure.causes([path], tmp_path / "f", metric="map@r")[1].read_text()
    (first, *_, last) = causes_figure.places(records[:2], "map@r")
    assert first == pytest.approx((1.0, 30.0, 0.1)) and last == pytest.approx((0.4, 45.0, 0.4))
    for record in records:
        for test in record["tests"]:
            del test["training_loss"]
    path.write_text(json.dumps({"runs": records, "trials": []}))
    with pytest.raises(BadArgument):
        causes_figure.causes([path], tmp_path / "g")
