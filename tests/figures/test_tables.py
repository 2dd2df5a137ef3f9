"""Figures of tables: strengths, learning rates, trials, pooled differences."""

import json

import numpy as np
import pytest

from isosphere import tables
from isosphere.figures import ablations, differences, style, words
from isosphere.figures.runs import read_all
from isosphere.paper import published
from isosphere.paper.tables import Asked, cells
from isosphere.recipes import options


def rates_file(make_results, recipe_dict, **more):
    """Three rates, three arms, two seeds; relative SEC diverges once."""
    rng, records = np.random.default_rng(0), []
    for lr in (1e-4, 1e-5, 3e-5):
        for arm, suffix in (("none", ""), ("sec", "-sec"), ("sec-relative", "-sec-relative")):
            for seed in (0, 1):
                recipe = recipe_dict(f"cub200-ms{suffix}", optimizer_lr=lr, seed=seed)
                last = {"recall@1": float(rng.uniform(0.5, 0.7)), "map@r": 0.2}
                diverged = (arm, seed, lr) == ("sec-relative", 1, 1e-4)
                records.append((f"cub200-ms-lr{lr:g}", arm, recipe, {} if diverged else last))
    return make_results(runs=records, **more)


def test_points_by_rate_are_means_over_seeds_without_those_that_diverged(make_results, recipe_dict, tmp_path):
    path = rates_file(make_results, recipe_dict)
    records = [record for record in read_all([path]) if record.arm == "sec-relative"]
    found = ablations.points(records, "recall@1", "rate")
    assert list(found) == [1e-5, 3e-5, 1e-4] and list(map(len, found.values())) == [2, 2, 1]
    for lr, values in found.items():
        expected = [100 * r.last["recall@1"] for r in records if r.recipe["optimizer"]["lr"] == lr and r.last]
        assert values == expected
    text = ablations.rates([path], tmp_path / "r")[1].read_text()
    assert "1 diverged" in text and "learning rate of the head" in text and "R@1 (%)" in text and "3e-05" in text
    assert text.index(">no constraint<") < text.index(">SEC (")


def test_an_ablation_shows_the_papers_numbers_only_for_its_own_task(make_results, recipe_dict, tmp_path):
    def file(dataset):
        rows = [("none", "none", recipe_dict(f"{dataset}-triplet"), {"recall@1": 0.6})]
        for eta in (0.1, 1.0):
            recipe = recipe_dict(f"{dataset}-triplet-sec", constraint_eta=eta)
            rows.append(("cell", f"eta{eta}", recipe, {"recall@1": 0.6 + eta / 10}))
        for rho in (0.1, 0.5):
            recipe = recipe_dict(f"{dataset}-triplet-sec-ema", constraint_rho=rho, constraint_eta=0.5)
            rows.append(("cell", f"rho{rho}", recipe, {"recall@1": rho}))
        return make_results(runs=rows, name=f"{dataset}.json")

    cars = file("cars196")
    ema = [record for record in read_all([cars]) if record.arm.startswith("rho")]
    assert ablations.points(ema, "recall@1") == {0.1: [10.0], 0.5: [50.0]}
    text = ablations.ablation([cars], tmp_path / "a", metrics=["recall@1"])[1].read_text()
    assert "the paper's" in text and "η of SEC" in text and "ρ of SEC-EMA" in text and "no constraint" in text
    text = ablations.ablation([file("cub200")], tmp_path / "b", metrics=["recall@1"])[1].read_text()
    assert "the paper's" not in text


def test_printed_numbers_are_the_published_ones():
    values, base = ablations.printed("sec", "recall@1")
    assert values == {0.1: 66.72, 0.5: 67.89, 1.0: 64.97, 1.5: 57.72} and base == 60.79
    values, base = ablations.printed("sec-ema", "nmi")
    assert values == {rho: row[0] for rho, row in published.RHO_ABLATION.items() if rho} and base == 56.49
    assert ablations.printed("l2reg", "recall@1") == ({5e-5: 61.48, 1e-4: 63.02, 5e-4: 61.35, 1e-3: 57.16}, 60.84)
    assert ablations.printed("balanced", "recall@1") == ({}, None) == ablations.printed("l2reg", "map@r")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer_lr": 0.5}, "rate"),
        ({"name": "cub200-ms"}, "loss"),
        ({"name": "cars196-triplet"}, "data set"),
    ],
)
def test_an_ablation_does_not_take_another_experiment_for_a_seed(make_results, recipe_dict, tmp_path, change, said):
    recipes = [recipe_dict("cub200-triplet-sec"), recipe_dict("cub200-triplet-sec", seed=1)]
    path = make_results(runs=[("c", "sec", recipe, {"recall@1": 0.5}) for recipe in recipes])
    ablations.ablation([path], tmp_path / "a", metrics=["recall@1"])
    recipes.append(recipe_dict(**{"name": "cub200-triplet", **change}))
    path = make_results(runs=[("c", "a", recipe, {"recall@1": 0.5}) for recipe in recipes])
    with pytest.raises(ValueError, match=f"varies the constraint alone, but these runs differ in .*{said}"):
        ablations.ablation([path], tmp_path / "a", metrics=["recall@1"])


def test_our_own_ablations_are_not_refused():
    for table in ("table2", "table8", "table9"):
        for arms in cells(table, Asked()).values():
            recipes = [json.loads(json.dumps(options.to_dict(recipe))) for recipe in arms.values()]
            assert words.differing(recipes, without=("rho", "seed")) == {}


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
    ablations.rates([make_results(runs=rows)], tmp_path / "r")
    labels = {line.get_label() for line in lines if not line.get_label().startswith("_")}
    sec = [label for label in labels if label.startswith("SEC")]
    assert len(sec) == 1 and "weight decay" in sec[0]
    means = [line for line in lines if line.get_label() in sec]
    for line in means:
        assert line.get_ydata() == pytest.approx([62.5, 62.5]) and line.get_xdata()[0] < line.get_xdata()[1]
    assert len(means) == 2


def test_a_metric_that_no_run_has_is_refused(make_results, recipe_dict, tmp_path):
    path = make_results(runs=[("c", "sec", recipe_dict("cub200-ms-sec"), {"recall@1": 0.5})])
    for draw in (ablations.rates, ablations.ablation):
        with pytest.raises(ValueError, match="no run has nmi; they have recall@1"):
            draw([path], tmp_path / "f", **({"metric": "nmi"} if draw is ablations.rates else {"metrics": ["nmi"]}))


def test_an_ablation_of_nothing_is_refused(make_run, tmp_path):
    with pytest.raises(ValueError, match="needs runs with a constraint"):
        ablations.ablation([make_run()], tmp_path / "a")


def test_trials_are_drawn_from_trials_alone(make_results, recipe_dict, tmp_path):
    records = []
    for lr in (1e-5, 2e-5):
        for decay in (5e-4, 2.5e-3):
            recipe = recipe_dict("cub200-npair", optimizer_lr=lr, optimizer_weight_decay=decay, data_held_out=20)
            records.append(("c", "none", recipe, {"recall@1": 0.5, "map@r": lr * 1e4}))
        for eta in (0.1, 0.5):
            recipe = recipe_dict("cub200-npair-sec", optimizer_lr=lr, constraint_eta=eta, data_held_out=20)
            records.append(("c", "sec", recipe, {"map@r": eta / 2}))
    path = make_results(trials=records)
    assert "SEC, η 0.5<" in ablations.trials([path], tmp_path / "t")[1].read_text()
    more = {"optimizer_weight_decay": 2.5e-2, "constraint_eta": 0.5, "data_held_out": 20}
    records.append(("c", "sec", recipe_dict("cub200-npair-sec", **more), {"map@r": 0.3}))
    path = make_results(trials=records)
    text = ablations.trials([path], tmp_path / "t")[1].read_text()
    for word in (
        "no constraint, weight decay 0.0025",
        "SEC, η 0.5, weight decay 0.025",
        "SEC, η 0.5, weight decay 0.0025",
        "held-out training classes",
        "MAP@R (%)",
        "N-pair",
    ):
        assert word in text
    assert " steps" not in text, "all are as long"
    longer = recipe_dict("cub200-npair-sec", constraint_eta=0.5, data_held_out=20, loop_steps=3200)
    both = make_results(trials=[*records, ("c", "sec", longer, {"map@r": 0.9})], name="both.json")
    text = ablations.trials([both], tmp_path / "t")[1].read_text()
    assert "SEC, η 0.5, weight decay 0.0025, 3200 steps" in text and "no constraint, weight decay 0.0025<" in text
    tested = make_results(trials=[("c", "sec", recipe_dict("cub200-npair-sec"), {"map@r": 0.5})], name="tested.json")
    with pytest.raises(ValueError, match="c sec seed 0 is no trial: it was measured on test images"):
        ablations.trials([path, tested], tmp_path / "t")
    with pytest.raises(ValueError, match="holds no runs, only 9 trials"):
        ablations.rates([path], tmp_path / "t")


def test_trials_are_drawn_by_what_judges_them_and_say_what_was_held_out(make_results, recipe_dict, tmp_path):
    files = [
        make_results(trials=[("c", "sec", recipe_dict(name, data_held_out=part), last)], name=f"{name}.json")
        for name, part, last in (
            ("cub200-ms-sec", 20, {"recall@1": 0.9, "map@r": 0.5}),
            ("simclr-cifar10-sec", 0.1, {"knn": 0.9, "probe_top1": 0.7}),
        )
    ]
    classes, images = (ablations.trials([file], tmp_path / "t")[1].read_text() for file in files)
    assert "Trials: MAP@R by" in classes and "CUB-200-2011 (held-out training classes)" in classes
    assert "Trials: probe top-1 by" in images and "CIFAR-10 (held-out training images)" in images
    assert "Trials: k-NN by" in ablations.trials(files[1:], tmp_path / "t", metric="knn")[1].read_text()
    with pytest.raises(ValueError, match="judged by map@r and probe_top1: choose one with --metric"):
        ablations.trials(files, tmp_path / "t")


@pytest.mark.parametrize(("arm", "than"), [("sec", "none"), ("sec-relative", "none"), ("sec-relative", "sec")])
def test_pooled_differences_are_those_of_the_printed_table(make_results, recipe_dict, arm, than):
    records = read_all([rates_file(make_results, recipe_dict)])
    found = differences.pooled_difference(records, "recall@1", arm, than)
    plain = [{"cell": r.cell, "arm": r.arm, "seed": r.seed, "last": r.last} for r in records]
    expected = tables.pooled(plain, "recall@1", arm, than)
    numbers = (found.mean / 100, found.low / 100, found.high / 100)
    assert numbers == pytest.approx((expected.mean, expected.low, expected.high), abs=1e-12)
    assert sum(map(len, found.cells.values())) == expected.pairs


def test_the_forest_has_a_row_for_each_cell_in_order(make_results, recipe_dict, tmp_path):
    path = rates_file(make_results, recipe_dict)
    found = differences.pooled_difference(read_all([path]), "recall@1", "sec")
    text = differences.differences([path], tmp_path / "f")[1].read_text()
    assert f"SEC: {found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]" in text
    places = [text.index(f">cub200-ms-lr{lr:g}<") for lr in (1e-5, 3e-5, 1e-4)]
    assert places == sorted(places) and "pooled" in text and "difference of R@1 (points)" in text


def test_a_forest_without_pairs_is_refused(make_results, recipe_dict, tmp_path):
    path = make_results(runs=[("a", "sec", recipe_dict("cub200-ms-sec"), {"recall@1": 0.5})])
    with pytest.raises(ValueError, match="nothing to compare"):
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
            (task, arm, recipe_dict(f"{task}{suffix}"), more | {metric: value, "norm_mean": 1.0})
            for arm, suffix, value in (("none", "", 0.5), ("sec", "-sec", 0.53))
        ]
        path = make_results(runs=rows, name=f"{task}.json")
        text = differences.differences([path], tmp_path / "f")[1].read_text()
        assert f"difference of {title} (points)" in text and ">SEC: +3.0<" in text
        assert f"{title} against the learning rate" in ablations.rates([path], tmp_path / "r")[1].read_text()
        told = f"no run has recall@1; they have {', '.join([*more, metric])}, norm_mean; choose with --metric"
        with pytest.raises(ValueError, match=told):
            differences.differences([path], tmp_path / "f", metric="recall@1")
