"""The tables as runs: cells, arms alike, and trials that are judged on training classes."""

import pytest

from isosphere.recipes import RecipeError, options, published
from isosphere.recipes.tables import (
    PAPERS_LOSSES,
    TABLES,
    TRIAL_LRS,
    TRIAL_STRENGTHS,
    Asked,
    cells,
    printed,
    trials,
    tuned,
)


def groups(left, right) -> set[str]:
    return {field.split(".")[0] for field in options.differences(left, right)}


@pytest.mark.parametrize("table", TABLES)
def test_arms_of_a_cell_differ_in_the_constraint_alone(table):
    for cell, arms in cells(table, Asked()).items():
        assert "none" in arms and (len(arms) > 1 or cell.endswith(("-softmax", "-normface"))), cell
        for recipe in arms.values():
            assert groups(arms["none"], recipe) <= {"claim", "constraint"}


def test_cells_of_table3():
    found = cells("table3", Asked(dataset="cars196"))
    assert list(found) == [f"cars196-{loss}" for loss in PAPERS_LOSSES]
    assert list(found["cars196-ms"]) == ["none", "sec", "sec-relative"]
    papers = cells("table3", Asked(losses=("ms",), arms=("none", "sec"), paper=True))
    assert papers["cub200-ms"]["sec"].model.backbone == "bn_inception"
    assert groups(*papers["cub200-ms"].values()) == {"claim", "constraint", "model", "optimiser"}  # the exceptions


def test_rates_are_each_twice_the_last():
    rates = [arms["sec"].optimiser for arms in cells("rates", Asked()).values()]
    assert len(rates) == 5 and all(two.lr == 2 * one.lr for one, two in zip(rates, rates[1:], strict=False))
    assert all(rate.backbone_lr == rate.lr / 2 for rate in rates)


@pytest.mark.parametrize(
    ("table", "asked", "told"),
    [
        ("table7", Asked(), "no table 'table7'; there are table2"),
        ("table3", Asked(dataset="cub"), "no data set 'cub'"),
        ("table3", Asked(losses=("triplets",)), "no loss 'triplets'"),
        ("table3", Asked(arms=("SEC",)), "no arm 'SEC'"),
        ("table3", Asked(losses=("proxyanchor",), paper=True), "no loss 'proxyanchor'"),
        ("rates", Asked(losses=("nope",)), "no loss 'nope'"),
        ("table9", Asked(arms=("sec",)), "all arms: leave out the other choices"),
    ],
)
def test_what_is_not_there_is_told(table, asked, told):
    with pytest.raises(RecipeError, match=told):
        cells(table, asked)


@pytest.mark.parametrize("arm", TRIAL_STRENGTHS)
@pytest.mark.parametrize("dataset", ["cub200", "cars196", "sop"])
def test_every_arm_gets_six_trials_on_held_out_training_classes(dataset, arm):
    recipe = cells("table3", Asked(dataset=dataset))[f"{dataset}-ms"][arm]
    found = trials(arm, recipe)
    assert len(found) == 6 and len(set(found)) == 6
    assert {trial.optimiser.lr for trial in found} == set(TRIAL_LRS[dataset])
    assert min(TRIAL_LRS[dataset]) <= recipe.optimiser.lr <= max(TRIAL_LRS[dataset])
    share = recipe.optimiser.backbone_lr / recipe.optimiser.lr
    for trial in found:
        assert trial.data.held_out == 20 and trial.loop.steps == 800 and trial.seed == 100
        assert trial.optimiser.backbone_lr == trial.optimiser.lr * share
    strength = {trial.optimiser.weight_decay if arm == "none" else trial.constraint.eta for trial in found}
    factor = recipe.optimiser.weight_decay if arm == "none" else 1
    assert strength == {part * factor for part in TRIAL_STRENGTHS[arm]}
    final = tuned(recipe, found[-1])
    assert groups(recipe, final) <= {"optimiser", "constraint"} and final.data.held_out == 0
    borrowed = tuned(recipe, found[-1], own=False)
    assert borrowed.constraint == recipe.constraint and borrowed.optimiser.lr == found[-1].optimiser.lr
    assert borrowed.optimiser.weight_decay == recipe.optimiser.weight_decay


def test_printed_numbers_have_the_names_of_the_arms():
    for table, asked in (("table2", Asked()), ("table8", Asked()), ("table9", Asked())):
        arms = cells(table, asked)["cars196-triplet"]
        metrics, rows = printed(table, "cars196-triplet")
        assert set(rows) <= set(arms) and all(len(row) == len(metrics) for row in rows.values())
    assert printed("table3", "cub200-ms")[1] == published.RETRIEVAL_RESULTS["cub200", "ms"]
    assert printed("table3", "cub200-proxyanchor") == printed("rates", "cub200-ms-lr1e-4") == ((), {})


def test_splits_are_those_that_the_loaders_check():
    from isosphere.data.retrieval import SOURCES

    assert {name: source.counts._asdict() for name, source in SOURCES.items()} == published.SPLITS
