"""Recipes for your own images: there, ordered, and with methods that differ in the constraint alone."""

import json

import pytest

from isosphere.paper import ALL
from isosphere.recipes import RECIPES, SUFFIXES, options, schema

FAMILIES = {
    "photos": list(SUFFIXES),
    "faces-cosface": ["", "-sec"],
    "faces-arcface": ["", "-sec"],
    "simclr-photos": ["", "-l2reg", "-sec", "-sec-ema", "-sec-relative"],
    "rendered": list(SUFFIXES),
}


def test_own_images_come_first():
    assert list(RECIPES) == [name + suffix for name, suffixes in FAMILIES.items() for suffix in suffixes]
    assert list(ALL)[: len(RECIPES)] == list(RECIPES)
    assert len({recipe.claim for recipe in RECIPES.values()}) == len(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_json(name):
    text = json.dumps(options.to_dict(RECIPES[name]))
    assert options.from_dict(schema.Recipe, json.loads(text)) == RECIPES[name]


@pytest.mark.parametrize("name", FAMILIES)
def test_methods_of_a_family_differ_in_the_constraint_alone(name):
    for suffix in FAMILIES[name][1:]:
        found = options.differences(RECIPES[name], RECIPES[name + suffix])
        assert {field.split(".")[0] for field in found} == {"claim", "constraint"}


@pytest.mark.parametrize("row", ["cosface", "cosface-sec", "arcface", "arcface-sec"])
def test_the_recipe_for_your_own_people_names_no_data_set(row):
    recipe = RECIPES[f"faces-{row}"]
    found = options.differences(ALL[f"lfw-{row}"], recipe)
    gentler = {"constraint.eta"} if row.endswith("-sec") else set()  # the paper's 5 is for a large set
    assert set(found) == {"claim", "data.fraction", "data.pairs", "batches.size", "optimizer.lr"} | gentler
    assert recipe.data.fraction == 1 and recipe.data.pairs == ("mine",)
    assert "LFW" not in recipe.claim
