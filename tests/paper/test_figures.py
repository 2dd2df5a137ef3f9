"""The paper's figures: strengths next to its numbers, trials, and sketches by geometry."""

import json
import math

import pytest
import torch

from isosphere.errors import BadArgument, NotResults
from isosphere.paper import figures, published, sketches
from isosphere.paper.tables import Asked, cells
from isosphere.recipes import labels, options
from isosphere.report import rates
from isosphere.report.records import read_all


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
    ema = [record for record in read_all([cars]) if record["method"].startswith("rho")]
    assert rates.points(ema, "recall@1", figures.strength) == {0.1: [10.0], 0.5: [50.0]}
    text = figures.ablation([cars], tmp_path / "a", metrics=["recall@1"])[1].read_text()
    assert "the paper's" in text and "η of SEC" in text and "ρ of SEC-EMA" in text and "baseline" in text
    text = figures.ablation([file("cub200")], tmp_path / "b", metrics=["recall@1"])[1].read_text()
    assert "the paper's" not in text


def test_printed_numbers_are_the_published_ones():
    values, base = figures.printed("sec", "recall@1")
    assert values == {0.1: 66.72, 0.5: 67.89, 1.0: 64.97, 1.5: 57.72} and base == 60.79
    values, base = figures.printed("sec-ema", "nmi")
    assert values == {rho: row[0] for rho, row in published.RHO_ABLATION.items() if rho} and base == 56.49
    assert figures.printed("l2reg", "recall@1") == ({5e-5: 61.48, 1e-4: 63.02, 5e-4: 61.35, 1e-3: 57.16}, 60.84)
    assert figures.printed("balanced", "recall@1") == ({}, None) == figures.printed("l2reg", "map@r")


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
    figures.ablation([path], tmp_path / "a", metrics=["recall@1"])
    recipes.append(recipe_dict(**{"name": "cub200-triplet", **change}))
    path = make_results(runs=[("c", "a", recipe, {"recall@1": 0.5}) for recipe in recipes])
    with pytest.raises(BadArgument) as refused:
        figures.ablation([path], tmp_path / "a", metrics=["recall@1"])
    assert said in refused.value.value


def test_our_own_ablations_are_not_refused():
    for table in ("table2", "table8", "table9"):
        for methods in cells(table, Asked()).values():
            recipes = [json.loads(json.dumps(options.to_dict(recipe))) for recipe in methods.values()]
            assert labels.differing(recipes, without=("rho", "seed")) == {}


def test_a_metric_that_no_run_has_is_refused(make_results, recipe_dict, tmp_path):
    path = make_results(runs=[("c", "sec", recipe_dict("cub200-ms-sec"), {"recall@1": 0.5})])
    for draw in (rates.rates, figures.ablation):
        with pytest.raises(BadArgument):
            draw([path], tmp_path / "f", **({"metric": "nmi"} if draw is rates.rates else {"metrics": ["nmi"]}))


HELD_OUT = {"validation_held_out": 20, "validation_only": True}


def test_an_ablation_of_nothing_is_refused(make_run, tmp_path):
    with pytest.raises(BadArgument):
        figures.ablation([make_run()], tmp_path / "a")


def test_trials_are_drawn_from_trials_alone(make_results, recipe_dict, tmp_path):
    records = []
    for lr in (1e-5, 2e-5):
        for decay in (5e-4, 2.5e-3):
            recipe = recipe_dict("cub200-npair", optimizer_lr=lr, optimizer_weight_decay=decay, **HELD_OUT)
            records.append(("c", "none", recipe, {"recall@1": 0.5, "map@r": lr * 1e4}))
        for eta in (0.1, 0.5):
            recipe = recipe_dict("cub200-npair-sec", optimizer_lr=lr, constraint_eta=eta, **HELD_OUT)
            records.append(("c", "sec", recipe, {"map@r": eta / 2}))
    path = make_results(trials=records)
    assert "SEC, η 0.5<" in figures.trials([path], tmp_path / "t")[1].read_text()
    more = {"optimizer_weight_decay": 2.5e-2, "constraint_eta": 0.5, **HELD_OUT}
    records.append(("c", "sec", recipe_dict("cub200-npair-sec", **more), {"map@r": 0.3}))
    path = make_results(trials=records)
    text = figures.trials([path], tmp_path / "t")[1].read_text()
    for word in (
        "baseline, weight decay 0.0025",
        "SEC, η 0.5, weight decay 0.025",
        "SEC, η 0.5, weight decay 0.0025",
        "held-out training classes",
        "MAP@R (%)",
        "N-pair",
    ):
        assert word in text
    assert " steps" not in text, "all are as long"
    longer = recipe_dict("cub200-npair-sec", constraint_eta=0.5, **HELD_OUT, loop_steps=3200)
    both = make_results(trials=[*records, ("c", "sec", longer, {"map@r": 0.9})], name="both.json")
    text = figures.trials([both], tmp_path / "t")[1].read_text()
    assert "SEC, η 0.5, weight decay 0.0025, 3200 steps" in text and "baseline, weight decay 0.0025<" in text
    tested = make_results(trials=[("c", "sec", recipe_dict("cub200-npair-sec"), {"map@r": 0.5})], name="tested.json")
    with pytest.raises(BadArgument):
        figures.trials([path, tested], tmp_path / "t")
    with pytest.raises(NotResults):
        rates.rates([path], tmp_path / "t")


def test_trials_are_drawn_by_what_judges_them_and_say_what_was_held_out(make_results, recipe_dict, tmp_path):
    files = [
        make_results(trials=[("c", "sec", recipe_dict(name, **HELD_OUT), last)], name=f"{name}.json")
        for name, last in (
            ("cub200-ms-sec", {"recall@1": 0.9, "map@r": 0.5}),
            ("simclr-cifar10-sec", {"knn": 0.9, "probe_top1": 0.7}),
        )
    ]
    classes, images = (figures.trials([file], tmp_path / "t")[1].read_text() for file in files)
    assert "Trials: MAP@R by" in classes and "CUB-200-2011 (held-out training classes)" in classes
    assert "Trials: probe top-1 by" in images and "CIFAR-10 (held-out training images)" in images
    assert "Trials: k-NN by" in figures.trials(files[1:], tmp_path / "t", metric="knn")[1].read_text()
    with pytest.raises(BadArgument):
        figures.trials(files, tmp_path / "t")


def angle(first, second):
    return math.degrees(math.acos(float(first @ second) / float(first.norm() * second.norm())))


def test_turns_fall_with_the_norm_as_the_propositions_say():
    lengths = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
    for gradient, power in (("loss", 2), ("equal", 1)):
        tangents = torch.tan(sketches.angles_by_norm(lengths, gradient).deg2rad())
        assert tangents == pytest.approx(0.5 / lengths**power)
    moved = torch.tensor([2.0, 0.5 * 0.5], dtype=torch.float64)  # f - lr * g, with g = (0, -1 / |f|)
    expected = angle(torch.tensor([1.0, 0.0], dtype=torch.float64), moved)
    assert float(sketches.angles_by_norm(lengths)[2]) == pytest.approx(expected)


@pytest.mark.parametrize(("length", "less"), [(1.2, True), (2.8, False)])
def test_sec_turns_short_embeddings_less_and_long_ones_more(length, less):
    step = sketches.sec_update(length, radius=2.0, eta=0.5)
    embedding = torch.tensor([length, 0.0], dtype=torch.float64, requires_grad=True)
    (0.5 * (embedding.norm() - 2.0) ** 2).backward()
    assert torch.equal(step.penalty, embedding.grad)
    assert step.angle_without == pytest.approx(angle(step.embedding, step.without))
    assert step.angle_with == pytest.approx(angle(step.embedding, step.with_sec))
    assert (step.angle_with < step.angle_without) == less
    assert abs(float(step.with_sec.norm()) - 2.0) < abs(float(step.without.norm()) - 2.0)


def test_sketches_tell_their_angles(tmp_path):
    step = sketches.sec_update(1.2)
    text = sketches.sec([], tmp_path / "s")[1].read_text()
    assert f"{step.angle_without:.1f}° without SEC, {step.angle_with:.1f}° with SEC" in text
    text = sketches.turn([], tmp_path / "t")[1].read_text()
    assert "Δθ = 26.6°" in text and "1 / |f|²" in text
