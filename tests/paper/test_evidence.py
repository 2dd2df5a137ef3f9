from dataclasses import replace

import pytest

from isosphere.paper.evidence import followed
from isosphere.paper.tables import Asked, cells
from isosphere.recipes.constraints import ScaleCourse


def test_heads_differ_in_rate_and_start_alone_and_never_see_test_classes():
    found = cells("heads", Asked("cars196"))
    recipes = [recipe for its in found.values() for recipe in its.values()]
    assert len(found) == 18 and len(set(recipes)) == 36
    assert {recipe.data.held_out for recipe in recipes} == {20}
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


def test_scale_alone_follows_the_run_with_sec_of_its_cell_and_seed():
    recipe = replace(cells("causes", Asked("cub200"))["cub200-ms-lr5e-05"]["scale"], seed=1)
    made = [
        {"cell": "a", "method": arm, "seed": seed, "norms": [[1, 0.0, norm, 0.0], [1000, 0.0, norm / 2, 0.0]]}
        for arm, seed, norm in (("none", 1, 99.0), ("sec", 0, 77.0), ("sec", 1, 8.0))
    ]
    course = followed(recipe, "a", made).constraint.course
    assert len(course) == 21 and course[0] == 8 and course[-1] == 4
    assert course[10] == pytest.approx(6, rel=1e-3)
    assert followed(replace(recipe, constraint=ScaleCourse((1.0, 2.0))), "a", made).constraint.course == (1.0, 2.0)
