"""Curves over steps, from run folders and files of results."""

import json

import pytest

from isosphere.errors import BadArgument, MissingPart, NotResults
from isosphere.report import curves
from isosphere.report.records import read_all


def test_curves_are_what_was_logged(make_run):
    (record,) = read_all([make_run()])
    for metric, values in (("recall@1", (30, 40, 50)), ("map@r", (10, 15, 20))):
        found = curves.metric_curve(record, metric)
        assert [step for step, _ in found] == [0, 10, 20]
        assert [value for _, value in found] == pytest.approx(values)
    assert curves.norm_curve(record, "norm_mean") == [(5, 8.0), (15, 18.0), (25, 28.0)]
    assert curves.norm_curve(record, "norm_variance") == [(5, 0.5), (15, 0.5), (25, 0.5)]
    variations = [(step, 0.5**0.5 / mean) for step, mean in ((5, 8), (15, 18), (25, 28))]
    assert curves.norm_curve(record, "norm_cv") == variations


def test_a_mean_over_seeds_is_taken_where_most_have_a_value():
    assert curves.mean_curve([[(1, 2.0), (2, 4.0)], [(1, 4.0)], []]) == [(1, 3.0)]
    assert curves.mean_curve([]) == []


def test_a_panel_for_each_learning_rate_and_one_label_for_all_seeds(make_run, tmp_path):
    runs = [make_run(f"{lr}-{method}-{seed}", f"cars196-ms{method}", optimizer_lr=lr, seed=seed)
            for lr in (1e-5, 4e-5) for method in ("", "-sec") for seed in (0, 1)]  # fmt: skip
    text = curves.convergence(runs, tmp_path / "c")[1].read_text()
    for once in ("learning rate 1e-05", "learning rate 4e-05", ">baseline<", ">SEC (η 1)<"):
        assert text.count(once) == 1
    assert "seed" not in text and "training step" in text and "R@1 (%)" in text and "Cars196, multi-similarity" in text


def test_runs_of_another_task_are_drawn_by_its_headline(make_run, tmp_path):
    run = make_run("simclr", "simclr-photos")
    tests = [{"step": step, "kind": "test", "knn": 0.1 + step / 100, "probe_top1": 0.5} for step in (0, 10)]
    norms = {"step": 5, "kind": "train", "norm_mean": 1.0, "norm_variance": 0.5}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*tests, norms]))
    for draw in (curves.convergence, curves.constraints):
        assert "k-NN on test images" in draw([run], tmp_path / "c")[1].read_text()
        with pytest.raises(BadArgument) as refused:
            draw([run], tmp_path / "c", metric="recall@1")
        assert (refused.value.name, refused.value.value) == ("metric", "recall@1")


def test_a_trial_was_not_tested_on_test_images(make_run, tmp_path):
    run = make_run("trial", validation_held_out=20, validation_only=True)
    for draw in (curves.convergence, curves.constraints):
        text = draw([run], tmp_path / "c")[1].read_text()
        assert "R@1 on held-out training classes" in text and "test images" not in text


def test_three_panels_for_constraints(make_run, tmp_path):
    runs = [make_run(method or "none", f"cars196-triplet{method}") for method in ("-l2reg", "-sec", "-sec-initial")]
    text = curves.constraints(runs, tmp_path / "c")[1].read_text()
    for word in ("R@1 on test images (%)", "mean norm in a batch", "variance of norms", "L2-reg", "initial radius"):
        assert word in text


def test_curves_of_a_file_of_results(make_run, recipe_dict, tmp_path):
    tests = [{"step": 0, "recall@1": 0.1}, {"step": 5, "recall@1": 0.2}]
    record = {"cell": "c", "method": "none", "recipe": recipe_dict(), "last": {"recall@1": 0.2}, "tests": tests}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": [record | {"norms": [[1, 0.5, 7.0, 2.0]]}], "trials": []}))
    assert [file.name for file in curves.constraints([path], tmp_path / "c")] == ["c.png", "c.svg"]
    path.write_text(json.dumps({"runs": [record | {"tests": []}], "trials": []}))
    for held in (record | {"tests": []}, record):
        path.write_text(json.dumps({"runs": [held], "trials": []}))
        with pytest.raises(NotResults):
            curves.constraints([path], tmp_path / "c")


def titles(svg, *names):
    """Where names stand in a figure as texts of their own."""
    return [svg.index(f">{name}<") for name in names]


def records(recipe_dict, losses, rates, without_tests=()):
    tests = [{"step": 0, "recall@1": 0.1}, {"step": 5, "recall@1": 0.2}]
    return [
        {"cell": loss, "method": method,
         "recipe": recipe_dict(f"cub200-{loss}-{method}".removesuffix("-none"), optimizer_lr=lr),
         "last": tests[1], "tests": [] if lr in without_tests else tests, "norms": [[1, 0.5, 7.0, 2.0]]}
        for loss in losses for lr, method in rates
    ]  # fmt: skip


def test_runs_without_a_course_are_left_out_and_counted(recipe_dict, tmp_path):
    path, held = (
        tmp_path / "results.json",
        records(recipe_dict, ["ms"], [(2e-5, "none"), (1e-5, "sec"), (3e-5, "sec")], [3e-5]),
    )
    path.write_text(json.dumps({"runs": held, "trials": []}))
    for draw in (curves.convergence, curves.constraints):
        assert "1 of 3 runs have no course and are left out" in draw([path], tmp_path / "c")[1].read_text()
    with pytest.raises(BadArgument):
        curves.convergence([path], tmp_path / "c", metric="nmi")


def test_a_run_folder_is_not_sent_to_its_run_folder(make_run, tmp_path):
    run = make_run()
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(MissingPart) as refused:
        curves.convergence([run], tmp_path / "c")
    assert refused.value.folder == run and "loop.eval_every" in [option.field for option in refused.value.options]


def test_every_loss_has_its_panel_and_rates_stand_in_order(recipe_dict, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": records(recipe_dict, ["ms", "triplet"], [(2e-5, "none"), (1e-5, "sec")])}))
    for draw in (curves.convergence, curves.constraints):  # tuned: a rate for each constraint, in its label
        text = draw([path], tmp_path / "c")[1].read_text()
        titles(text, "multi-similarity", "triplet")
        assert "learning rate" not in text and text.count(">baseline, lr 2e-05<") == 1
    path.write_text(json.dumps({"runs": records(recipe_dict, ["ms"], [(1e-4, "sec"), (1e-5, "sec"), (2e-5, "sec")])}))
    for draw in (curves.convergence, curves.constraints):
        text = draw([path], tmp_path / "c")[1].read_text()
        places = titles(text, *(f"learning rate {lr:g}" for lr in (1e-5, 2e-5, 1e-4)))
        assert places == sorted(places)
