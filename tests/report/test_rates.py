"""Figures of finished runs: by learning rate, and pooled differences."""

import json

import numpy as np
import pytest

from isosphere.errors import BadArgument
from isosphere.report import differences, rates, style
from isosphere.report.records import read_all


def rates_file(make_results, recipe_dict, **more):
    """Three rates, three methods, two seeds; relative SEC diverges once."""
    rng, records = np.random.default_rng(0), []
    for lr in (1e-4, 1e-5, 3e-5):
        for method, suffix in (("none", ""), ("sec", "-sec"), ("sec-relative", "-sec-relative")):
            for seed in (0, 1):
                recipe = recipe_dict(f"cub200-ms{suffix}", optimizer_lr=lr, seed=seed)
                last = {"recall@1": float(rng.uniform(0.5, 0.7)), "map@r": 0.2}
                diverged = (method, seed, lr) == ("sec-relative", 1, 1e-4)
                records.append((f"cub200-ms-lr{lr:g}", method, recipe, {} if diverged else last))
    return make_results(runs=records, **more)


def test_points_by_rate_are_means_over_seeds_without_those_that_diverged(make_results, recipe_dict, tmp_path):
    path = rates_file(make_results, recipe_dict)
    records = [record for record in read_all([path]) if record["method"] == "sec-relative"]
    found = rates.points(records, "recall@1")
    assert list(found) == [1e-5, 3e-5, 1e-4] and list(map(len, found.values())) == [2, 2, 1]
    for lr, values in found.items():
        expected = [100 * r["last"]["recall@1"] for r in records if r["recipe"]["optimizer"]["lr"] == lr and r["last"]]
        assert values == expected
    text = rates.rates([path], tmp_path / "r")[1].read_text()
    assert "1 diverged" in text and "learning rate of the head" in text and "R@1 (%)" in text and "3e-05" in text
    assert text.index(">baseline<") < text.index(">SEC (")


def test_a_constraint_with_one_rate_has_a_mean_and_one_label_in_all_panels(
    make_results, recipe_dict, tmp_path, monkeypatch
):
    rows = []
    for loss, decay in (("ms", 5e-4), ("npair", 2.5e-3)):
        for seed, value in ((0, 0.5), (1, 0.75)):
            rows.append(
                (loss, "sec", recipe_dict(f"cub200-{loss}-sec", seed=seed, constraint_eta=0.1), {"recall@1": value})
            )
            rows.append(
                (loss, "none", recipe_dict(f"cub200-{loss}", optimizer_weight_decay=decay), {"recall@1": value})
            )
    lines = []
    monkeypatch.setattr(style, "legend_below", lambda _, panels: lines.extend(its for p in panels for its in p.lines))
    rates.rates([make_results(runs=rows)], tmp_path / "r")
    labels = {line.get_label() for line in lines if not line.get_label().startswith("_")}
    sec = [label for label in labels if label.startswith("SEC")]
    assert len(sec) == 1 and "weight decay" in sec[0]
    means = [line for line in lines if line.get_label() in sec]
    for line in means:
        assert line.get_ydata() == pytest.approx([62.5, 62.5]) and line.get_xdata()[0] < line.get_xdata()[1]
    assert len(means) == 2


def test_the_forest_has_a_row_for_each_cell_in_order(make_results, recipe_dict, tmp_path):
    path = rates_file(make_results, recipe_dict)
    found = differences.pooled(read_all([path]), "recall@1", "sec", "none")
    text = differences.differences([path], tmp_path / "f")[1].read_text()
    assert f"SEC: {100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]" in text
    places = [text.index(f">cub200-ms-lr{lr:g}<") for lr in (1e-5, 3e-5, 1e-4)]
    assert places == sorted(places) and "pooled" in text and "difference of R@1 (points)" in text


def test_a_forest_without_pairs_is_refused(make_results, recipe_dict, tmp_path):
    path = make_results(runs=[("a", "sec", recipe_dict("cub200-ms-sec"), {"recall@1": 0.5})])
    with pytest.raises(BadArgument):
        differences.differences([path], tmp_path / "f")


def test_one_pair_of_runs_has_no_interval(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", "cub200-triplet-sec")]
    result = json.loads((runs[1] / "result.json").read_text())
    result["last"]["recall@1"] += 0.015
    (runs[1] / "result.json").write_text(json.dumps(result))
    text = differences.differences(runs, tmp_path / "f")[1].read_text()
    assert ">SEC: +1.5<" in text and "95 % interval" not in text and "mean over cells" in text


def test_runs_of_another_task_are_compared_by_its_headline(make_results, recipe_dict, tmp_path):
    for task, metric, title, more in (
        ("simclr-photos", "knn", "k-NN", {}),
        ("lfw-cosface", "accuracy", "accuracy", {}),
        ("simclr-cifar10", "probe_top1", "probe top-1", {"knn": 0.9}),
    ):
        rows = [
            (task, method, recipe_dict(f"{task}{suffix}"), more | {metric: value, "norm_mean": 1.0})
            for method, suffix, value in (("none", "", 0.5), ("sec", "-sec", 0.53))
        ]
        path = make_results(runs=rows, name=f"{task}.json")
        text = differences.differences([path], tmp_path / "f")[1].read_text()
        assert f"difference of {title} (points)" in text and ">SEC: +3.0<" in text
        assert f"{title} against the learning rate" in rates.rates([path], tmp_path / "r")[1].read_text()
        with pytest.raises(BadArgument):
            differences.differences([path], tmp_path / "f", metric="recall@1")
