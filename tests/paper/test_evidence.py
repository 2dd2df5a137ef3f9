from dataclasses import replace

import pytest

from isosphere.paper.evidence import followed
from isosphere.paper.tables import Asked, cells


def test_heads_differ_in_rate_and_start_alone_and_never_see_test_classes():
    found = cells("heads", Asked("cars196"))
    recipes = [recipe for its in found.values() for recipe in its.values()]
    assert len(found) == 18 and len(set(recipes)) == 36
    assert {recipe.validation.held_out for recipe in recipes} == {20}
    assert {round(r.optimizer.lr / r.optimizer.backbone_lr) for r in recipes} == {1, 10, 100}
    assert {(r.loss, r.batches, r.seed, r.optimizer.weight_decay, r.data) for r in recipes} == {
        (recipes[0].loss, recipes[0].batches, 0, 2.5e-3, recipes[0].data)
    }


def test_causes_differ_in_the_constraint_alone():
    found = cells("causes", Asked("cub200"))
    assert len(found) == 6  # two losses, three rates
    for its in found.values():
        assert {replace(recipe, constraint=its["none"].constraint) for recipe in its.values()} == {its["none"]}
        assert len({recipe.constraint for recipe in its.values()}) == len(its)


@pytest.mark.parametrize("method, wanted", [("scale", 8.0), ("placebo", 16.0)])
def test_controls_follow_the_run_with_sec_of_their_cell_and_seed(method, wanted):
    recipe = replace(cells("causes", Asked("cub200"))["cub200-ms-lr5e-05"][method], seed=1)
    others = ("a", "none", 1, 99.0), ("a", "sec", 0, 77.0), ("b", "sec", 1, 6.0)
    made = [
        {"cell": cell, "method": its, "seed": seed, "norms": [[1, 0.0, norm, 4.0], [1000, 0.0, norm / 2, 1.0]]}
        for cell, its, seed, norm in (*others, ("a", "sec", 1, 8.0))
    ]
    course = followed(recipe, "a", made).constraint.course
    assert len(course) == 101 and (course[0], course[-1]) == (wanted, 4.0)
    assert course[50] == pytest.approx((wanted + 4.0) / 2, rel=1e-3)
    given = replace(recipe.constraint, course=(1.0, 2.0))
    assert followed(replace(recipe, constraint=given), "a", made).constraint == given


def test_a_decoupled_step_is_as_large_at_every_rate():
    recipes = [its["sec-decoupled"] for its in cells("causes", Asked("rendered")).values()]
    assert [one.optimizer.lr * one.constraint.eta for one in recipes] == pytest.approx([0.01] * 3)
