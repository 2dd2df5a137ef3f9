"""Recipes from JSON and the command line: exact round trips, and one clear line for every mistake."""

import json
from pathlib import Path

import pytest

from isosphere.errors import BadArgument, Option, UnknownField, UnknownRecipe
from isosphere.paper import ALL
from isosphere.recipes import RECIPES, find, losses, options, override, schema


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_survives_json(name):
    text = json.dumps(options.to_dict(ALL[name]))
    assert options.from_dict(schema.Recipe, json.loads(text)) == ALL[name]


def test_any_field_can_be_changed():
    changes = {
        "loss": "semi-hard",
        "loss.margin": "0.5",
        "constraint.radius": "8.7",
        "constraint.ramp": "0,1",
        "loop.clip": "1",
        "model.weights": "1234",
        "loop.compile": "yes",
        "seed": "3",
    }
    recipe = find("rendered", changes)
    assert recipe.loss == losses.SemiHard(margin=0.5)
    assert recipe.constraint.radius == 8.7 and recipe.constraint.ramp == (0.0, 1.0)
    assert recipe.loop.clip == 1.0 and isinstance(recipe.loop.clip, float)
    assert recipe.model.weights == "1234" and recipe.loop.compile is True and recipe.seed == 3
    assert override(recipe, {"loop.clip": "none"}).loop.clip is None
    assert options.differences(recipe, override(recipe, {"seed": "4"})) == {"seed": (3, 4)}


@pytest.mark.parametrize(
    "text, parts",
    [
        ("./faces (1)", ("./faces (1)",)),
        ("./faces (1), (2) more", ("./faces (1)", "(2) more")),
        ("(1), (2)", ("(1)", "(2)")),
        ("(1)", ("(1)",)),  # what a browser calls a second download
        ("(a,)", ("a",)),
        ("a, b ,c", ("a", "b", "c")),
        ("2019", ("2019",)),
        ("1e3,None", ("1e3", "None")),
        ("(a [1], b)", ("a [1]", "b")),
        ("[a]", ("a",)),
        ("('a', 'b c')", ("a", "b c")),  # as Python and `--help` print it
        ("'a, b'", ("a, b",)),
        ('("a, b", c)', ("a, b", "c")),
        ("['a)', '[b']", ("a)", "[b")),
        ("Tom's, Bob's", ("Tom's", "Bob's")),
        ("(a", ("(a",)),
        ("", ()),
        ("()", ()),
    ],
)
def test_names_in_a_list_stay_as_they_are(text, parts):
    assert find("faces-arcface", {"data.distractors": text}).data.distractors == parts


@pytest.mark.parametrize("name", ["(a, b)", "[a]", "a, b", "'a'"])
def test_a_folder_that_is_there_keeps_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find("faces-arcface", {"data.distractors": name}).data.distractors != (name,)
    Path(name).mkdir()
    assert find("faces-arcface", {"data.distractors": name}).data.distractors == (name,)


def test_in_python_values_need_not_be_text():
    changes = {"loop.steps": 3, "loss.margin": 1, "loop.compile": True, "constraint.ramp": (0, 0.5), "loop.clip": None}
    recipe = find("photos-sec", changes | {"data.root": Path("a")})
    assert (recipe.loop.steps, recipe.loss.margin, recipe.loop.compile, recipe.loop.clip) == (3, 1.0, True, None)
    assert recipe.constraint.ramp == (0.0, 0.5) and recipe.data.root == "a"
    with pytest.raises(BadArgument) as caught:
        find("photos-sec", {"loop.steps": 1.5})
    assert (caught.value.name, caught.value.value) == (Option("loop.steps"), 1.5)


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("loss.margn", ("loss.margin",)),
        ("steps", ("loop.steps",)),
        ("eta", ("constraint.eta",)),  # the recipe has no constraint: a field given makes it SEC
        ("size", ("data.size", "batches.size")),
        ("los.alpha", ("loss.alpha",)),
        ("seed.x", ("seed",)),
        ("kind", tuple(options._hints(schema.Recipe))),
    ],
)
def test_an_unknown_field_suggests_the_nearest(field, near):
    with pytest.raises(UnknownField) as caught:
        find("rendered", {field: "1"})
    assert caught.value.field == Option(field) and caught.value.near == tuple(map(Option, near))


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("loss.margin", "high", "high"),
        ("loss.margin", "inf", "inf"),
        ("loop.steps", "1.5", 1.5),
        ("loop.steps", "true", "true"),
        ("constraint.radius", "mean", "mean"),
        ("constraint.radius", "0", 0.0),
        ("constraint.ramp", "0.5", (0.5,)),
        ("constraint.eta", "-1", -1.0),
        ("loop.steps", "0", 0),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_field(field, text, value):
    with pytest.raises(BadArgument) as caught:
        find("rendered", {field: text})
    assert (caught.value.name, caught.value.value) == (Option(field), value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("changes", [{"loss": "Tripplet"}, {"loss": "Tripplet", "loss.margin": "1"}])
def test_an_unknown_kind_lists_the_kinds_the_nearest_first(changes):
    with pytest.raises(BadArgument) as caught:
        find("rendered", changes)
    assert (caught.value.name, caught.value.value) == (Option("loss"), "Tripplet")
    kinds = caught.value.expected.removeprefix("one of ").split(", ")
    assert kinds[0] == "Triplet" and sorted(kinds) == sorted(kind.__name__ for kind in losses.Loss.__args__)


def test_an_unknown_recipe_names_those_like_it():
    with pytest.raises(UnknownRecipe) as caught:
        find("photo-sec", {})
    assert caught.value.near[0] == "photos-sec"
    with pytest.raises(UnknownRecipe) as caught:
        find("%", {})
    assert caught.value.near == tuple(RECIPES)


def test_unknown_keys_and_kinds_in_json_are_refused():
    values = options.to_dict(ALL["rendered"])
    with pytest.raises(UnknownField) as unknown:
        options.from_dict(schema.Recipe, values | {"loss": {"kind": "Triplet", "gamma": 1}})
    assert unknown.value.field == Option("loss.gamma")
    with pytest.raises(BadArgument) as bad:
        options.from_dict(schema.Recipe, values | {"data": 3})
    assert (bad.value.name, bad.value.value) == (Option("data"), 3)


def test_every_field_has_a_reason():
    for field, kind, _, reason in options.describe(ALL["rendered"]):
        assert reason.endswith("."), f"{field} ({kind}) has no reason under it"
