"""Curves over steps, from run folders and files of results."""

import json

import pytest

from isosphere.figures import convergence
from isosphere.figures.runs import read_run


def test_curves_are_what_was_logged(make_run):
    record = read_run(make_run())
    assert convergence.metric_curve(record) == ([0, 10, 20], pytest.approx([30, 40, 50]))
    assert convergence.metric_curve(record, "map@r") == ([0, 10, 20], pytest.approx([10, 15, 20]))
    assert convergence.norm_curve(record, "mean") == ([5, 15, 25], [8.0, 18.0, 28.0])
    assert convergence.norm_curve(record, "variance") == ([5, 15, 25], [0.5, 0.5, 0.5])


def test_a_panel_for_each_learning_rate_and_one_label_for_all_seeds(make_run, tmp_path):
    runs = [make_run(f"{lr}-{arm}-{seed}", f"cars196-ms{arm}", optimizer_lr=lr, seed=seed)
            for lr in (1e-5, 4e-5) for arm in ("", "-sec") for seed in (0, 1)]  # fmt: skip
    text = convergence.convergence(runs, tmp_path / "c")[1].read_text()
    for once in ("learning rate 1e-05", "learning rate 4e-05", ">no constraint<", ">SEC (η 1)<"):
        assert text.count(once) == 1
    assert "seed" not in text and "training step" in text and "R@1 (%)" in text and "Cars196, multi-similarity" in text


def test_runs_of_another_task_are_drawn_by_its_headline(make_run, tmp_path):
    run = make_run("simclr", "simclr-photos")
    tests = [{"step": step, "kind": "test", "knn": 0.1 + step / 100, "probe_top1": 0.5} for step in (0, 10)]
    norms = {"step": 5, "kind": "train", "norm_mean": 1.0, "norm_variance": 0.5}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*tests, norms]))
    for draw in (convergence.convergence, convergence.constraints):
        assert "k-NN on test images" in draw([run], tmp_path / "c")[1].read_text()
        with pytest.raises(ValueError, match="it has knn, probe_top1; choose one with --metric"):
            draw([run], tmp_path / "c", metric="recall@1")


def test_a_trial_was_not_tested_on_test_images(make_run, tmp_path):
    run = make_run("trial", data_held_out=20)
    for draw in (convergence.convergence, convergence.constraints):
        text = draw([run], tmp_path / "c")[1].read_text()
        assert "R@1 on held-out training classes" in text and "test images" not in text


def test_three_panels_for_constraints(make_run, tmp_path):
    runs = [make_run(arm or "none", f"cars196-triplet{arm}") for arm in ("-l2reg", "-sec", "-sec-initial")]
    text = convergence.constraints(runs, tmp_path / "c")[1].read_text()
    for word in ("R@1 on test images (%)", "mean norm in a batch", "variance of norms", "L2-reg", "initial radius"):
        assert word in text


def test_curves_of_a_file_of_results(make_run, recipe_dict, tmp_path):
    tests = [{"step": 0, "recall@1": 0.1}, {"step": 5, "recall@1": 0.2}]
    record = {"cell": "c", "arm": "none", "recipe": recipe_dict(), "last": {"recall@1": 0.2}, "tests": tests}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": [record | {"norms": [[1, 0.5, 7.0, 2.0]]}], "trials": []}))
    assert [file.name for file in convergence.constraints([path], tmp_path / "c")] == ["c.png", "c.svg"]
    path.write_text(json.dumps({"runs": [record | {"tests": []}], "trials": []}))
    with pytest.raises(ValueError, match="no course of recall@1: draw it from its run folder"):
        convergence.convergence([path], tmp_path / "c")
    path.write_text(json.dumps({"runs": [record], "trials": []}))
    with pytest.raises(ValueError, match="no line with norms"):
        convergence.constraints([path], tmp_path / "c")


def titles(svg, *names):
    """Where names stand in a figure as texts of their own."""
    return [svg.index(f">{name}<") for name in names]


def records(recipe_dict, losses, rates, without_tests=()):
    tests = [{"step": 0, "recall@1": 0.1}, {"step": 5, "recall@1": 0.2}]
    return [
        {"cell": loss, "arm": arm, "recipe": recipe_dict(f"cub200-{loss}-{arm}".removesuffix("-none"), optimizer_lr=lr),
         "last": tests[1], "tests": [] if lr in without_tests else tests, "norms": [[1, 0.5, 7.0, 2.0]]}
        for loss in losses for lr, arm in rates
    ]  # fmt: skip


def test_runs_without_a_course_are_left_out_and_counted(recipe_dict, tmp_path):
    path, held = (
        tmp_path / "results.json",
        records(recipe_dict, ["ms"], [(2e-5, "none"), (1e-5, "sec"), (3e-5, "sec")], [3e-5]),
    )
    path.write_text(json.dumps({"runs": held, "trials": []}))
    for draw in (convergence.convergence, convergence.constraints):
        assert "1 of 3 runs have no course and are left out" in draw([path], tmp_path / "c")[1].read_text()
    with pytest.raises(ValueError, match="seed 0 has no course of nmi: it has recall@1"):
        convergence.convergence([path], tmp_path / "c", metric="nmi")


def test_a_run_folder_is_not_sent_to_its_run_folder(make_run, tmp_path):
    run = make_run()
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="run has no course of recall@1: no evaluation yet, see --loop.eval_every"):
        convergence.convergence([run], tmp_path / "c")


def test_every_loss_has_its_panel_and_rates_stand_in_order(recipe_dict, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": records(recipe_dict, ["ms", "triplet"], [(2e-5, "none"), (1e-5, "sec")])}))
    for draw in (convergence.convergence, convergence.constraints):  # tuned: a rate for each constraint, in its label
        text = draw([path], tmp_path / "c")[1].read_text()
        titles(text, "multi-similarity", "triplet")
        assert "learning rate" not in text and text.count(">no constraint, lr 2e-05<") == 1
    path.write_text(json.dumps({"runs": records(recipe_dict, ["ms"], [(1e-4, "sec"), (1e-5, "sec"), (2e-5, "sec")])}))
    for draw in (convergence.convergence, convergence.constraints):
        text = draw([path], tmp_path / "c")[1].read_text()
        places = titles(text, *(f"learning rate {lr:g}" for lr in (1e-5, 2e-5, 1e-4)))
        assert places == sorted(places)
