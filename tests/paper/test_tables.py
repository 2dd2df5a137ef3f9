"""The tables as runs: cells, methods alike, and trials that are judged on training data."""

from dataclasses import replace

import numpy as np
import pytest

from isosphere.errors import BadArgument, Option
from isosphere.paper import published
from isosphere.paper.retrieval import PAPERS_LOSSES
from isosphere.paper.tables import (
    TABLES,
    TUNINGS,
    Asked,
    cells,
    printed,
    trials,
)
from isosphere.recipes import options, override, schema
from isosphere.recipes.ranges import tuned

TUNED_METHODS = ("none", "sec", "sec-relative")


def groups(left, right) -> set[str]:
    return {field.split(".")[0] for field in options.differences(left, right)}


@pytest.mark.parametrize("table", TABLES)
def test_methods_of_a_cell_differ_in_the_constraint_alone(table):
    for cell, methods in cells(table, Asked()).items():
        assert "none" in methods and (len(methods) > 1 or cell.endswith(("-softmax", "-normface"))), cell
        for recipe in methods.values():
            assert groups(methods["none"], recipe) <= {"claim", "constraint"}


def test_cells_of_table3():
    found = cells("table3", Asked(dataset="cars196"))
    assert list(found) == [f"cars196-{loss}" for loss in PAPERS_LOSSES]
    assert list(found["cars196-ms"]) == ["none", "sec", "sec-relative"]
    papers = cells("table3", Asked(losses=("ms",), methods=("none", "sec"), paper=True))
    assert papers["cub200-ms"]["sec"].model.backbone == "bn_inception"
    assert groups(*papers["cub200-ms"].values()) == {"claim", "constraint", "model", "optimizer"}  # the exceptions


def test_rates_are_each_twice_the_last():
    rates = [methods["sec"].optimizer for methods in cells("rates", Asked()).values()]
    assert len(rates) == 5 and all(two.lr == 2 * one.lr for one, two in zip(rates, rates[1:], strict=False))
    assert all(rate.backbone_lr == rate.lr / 2 for rate in rates)


@pytest.mark.parametrize(
    ("table", "asked", "name", "value"),
    [
        ("table7", Asked(), "table", "table7"),
        ("table3", Asked(dataset="cub"), Option("dataset"), "cub"),
        ("table3", Asked(losses=("triplets",)), Option("losses"), "triplets"),
        ("table3", Asked(methods=("SEC",)), Option("methods"), "SEC"),
        ("table3", Asked(losses=("proxyanchor",), paper=True), Option("losses"), "proxyanchor"),
        ("rates", Asked(losses=("nope",)), Option("losses"), "nope"),
        ("table4", Asked(dataset="megaface"), Option("dataset"), "megaface"),
        ("table5", Asked(dataset="cub200"), Option("dataset"), "cub200"),
        ("table5", Asked(epochs=300), Option("epochs"), "300"),
        ("table5", Asked(methods=("balanced",)), Option("methods"), "balanced"),
        ("table5", Asked(losses=("ms",)), Option("losses"), ("ms",)),
        ("table9", Asked(methods=("sec",)), Option("methods"), ("sec",)),
        ("table9", Asked(dataset="cub200"), Option("dataset"), "cub200"),
    ],
)
def test_what_is_not_there_is_refused(table, asked, name, value):
    with pytest.raises(BadArgument) as caught:
        cells(table, asked)
    assert (caught.value.name, caught.value.value) == (name, value)


@pytest.mark.parametrize("method", TUNED_METHODS)
@pytest.mark.parametrize("dataset", ["cub200", "cars196", "sop"])
def test_every_method_gets_six_trials_on_held_out_training_classes(dataset, method):
    recipe = cells("table3", Asked(dataset=dataset))[f"{dataset}-ms"][method]
    found = trials(method, recipe)
    assert len(found) == 6 and len(set(found)) == 6
    assert {trial.optimizer.lr for trial in found} == set(TUNINGS[dataset].lrs)
    assert min(TUNINGS[dataset].lrs) <= recipe.optimizer.lr <= max(TUNINGS[dataset].lrs)
    share = recipe.optimizer.backbone_lr / recipe.optimizer.lr
    for trial in found:
        assert trial.validation.held_out == 20 and trial.loop.steps == 800 and trial.seed == 100
        assert trial.optimizer.backbone_lr == trial.optimizer.lr * share
    assert TUNINGS[recipe.data.name].longer(recipe, found) == [], "short trials decide"
    decay = recipe.optimizer.weight_decay
    expected = {"none": {(0.2 * decay, 0), (decay, 0)}, "sec": {(decay, 0.1), (decay, 0.5)},
                "sec-relative": {(decay, 2), (decay, 10)}}  # fmt: skip
    assert {(trial.optimizer.weight_decay, getattr(trial.constraint, "eta", 0.0)) for trial in found} == expected[
        method
    ]
    final = tuned(recipe, found[-1])
    assert groups(recipe, final) <= {"optimizer", "constraint"} and final.validation.held_out == 0
    borrowed = tuned(recipe, found[-1], own=False)
    assert borrowed.constraint == recipe.constraint and borrowed.optimizer.lr == found[-1].optimizer.lr
    assert borrowed.optimizer.weight_decay == found[-1].optimizer.weight_decay


@pytest.mark.parametrize("method", TUNED_METHODS)
@pytest.mark.parametrize("dataset, eta", [("cifar10", 0.25), ("cifar100", 0.01)])
def test_every_method_of_table_5_gets_ten_trials_on_5000_held_out_training_images(dataset, eta, method):
    recipe = cells("table5", Asked(dataset=dataset))[f"simclr-{dataset}"][method]
    found = trials(method, recipe)
    assert len(found) == 10 and len(set(found)) == 10
    lr, weight_decay, scale = 0.5 * 3.5714286, 1e-4 / 3.5714286, 2 * 3.5714286  # of the authors, in the plain scale
    assert sorted({trial.optimizer.lr for trial in found}) == pytest.approx([lr / 16, lr / 4, lr, 2 * lr])
    for trial in found:
        assert trial.validation.held_out * 50_000 == 5000 and trial.seed == 100
        assert (trial.loop.steps, trial.loop.unit, trial.loop.eval_every) == (20, "epochs", 20)
        assert trial.optimizer.backbone_lr is None and trial.schedule == schema.Cosine(0.001)
        assert method == "none" or trial.constraint.ramp == recipe.constraint.ramp == (0.0, 1.0)
        assert groups(recipe, trial) <= {"validation", "optimizer", "constraint", "loop", "seed"}
        assert (trial.constraint == recipe.constraint) == (method == "none")
    strengths = {(trial.optimizer.weight_decay, getattr(trial.constraint, "eta", 0.0)) for trial in found}
    weak = {"none": 0.4 * weight_decay, "sec": 0.4 * eta / scale, "sec-relative": 2.0}[method]
    if method == "none":
        expected = [(weak, 0), (5 * weak, 0), (25 * weak, 0), (125 * weak, 0)]
    else:
        expected = [(weight_decay, part * weak) for part in (1, 5, 25)] + [(10 * weight_decay, 5 * weak)]
    assert np.array(sorted(strengths)) == pytest.approx(np.array(expected))
    final = tuned(recipe, found[-1])
    assert groups(recipe, final) <= {"optimizer", "constraint"} and final.validation.held_out == 0
    assert final.optimizer == found[-1].optimizer and final.constraint == found[-1].constraint
    # Twice as many epochs are tuned by the same trials, which are not run again.
    longer = trials(method, cells("table5", Asked(dataset=dataset, epochs=200))[f"simclr-{dataset}-200"][method])
    assert all(groups(*pair) <= {"claim"} for pair in zip(found, longer, strict=True))
    # The two best go on to 100 epochs, of which a shorter training has fewer.
    whole = TUNINGS[recipe.data.name].longer(recipe, found[::-1])
    assert whole == [replace(trial, loop=replace(trial.loop, steps=100, eval_every=25)) for trial in found[:-3:-1]]
    brief = override(recipe, {"loop.steps": "60"})
    assert {trial.loop.steps for trial in TUNINGS[brief.data.name].longer(brief, trials(method, brief))} == {60}


def test_other_methods_of_table_5_take_secs_learning_rate():
    methods = cells("table5", Asked())["simclr-cifar10"]
    best = trials("sec", methods["sec"])[0]
    for method in ("l2reg", "sec-ema"):
        final = tuned(methods[method], best, own=False)
        assert (
            trials(method, methods[method]) == []
            and final.optimizer.lr == best.optimizer.lr == methods[method].optimizer.lr / 16
        )
        assert groups(methods[method], final) == {"optimizer"}


def test_trials_in_epochs_do_not_count_steps():
    recipe = override(cells("table5", Asked())["simclr-cifar10"]["sec"], {"loop.unit": "steps"})
    with pytest.raises(BadArgument) as caught:
        trials("sec", recipe)
    assert (caught.value.name, caught.value.value) == (Option("loop.unit"), "steps")


def test_printed_numbers_have_the_names_of_the_methods():
    for table, asked in (("table2", Asked()), ("table8", Asked()), ("table9", Asked())):
        methods = cells(table, asked)["cars196-triplet"]
        metrics, rows = printed(table, "cars196-triplet")
        assert set(rows) <= set(methods) and all(len(row) == len(metrics) for row in rows.values())
    assert printed("table3", "cub200-ms")[1] == published.RETRIEVAL_RESULTS["cub200", "ms"]
    assert printed("table3", "cub200-proxyanchor") == printed("rates", "cub200-ms-lr1e-4") == ((), {})


def test_splits_are_those_that_the_loaders_check():
    from isosphere.data.retrieval import SOURCES

    assert {name: source.counts._asdict() for name, source in SOURCES.items()} == published.SPLITS
