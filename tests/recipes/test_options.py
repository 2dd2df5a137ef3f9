"""Recipes from JSON and the command line: exact round trips, and one clear line for every mistake."""

import json
from pathlib import Path

import pytest

from isosphere.paper import ALL
from isosphere.recipes import RecipeError, find, losses, options, override, schema


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
        ("a, b ,c", ("a", "b", "c")),
        ("2019", ("2019",)),
        ("1e3,None", ("1e3", "None")),
        ("(a [1], b)", ("a [1]", "b")),
        ("[a]", ("a",)),
        ("('a', 'b c')", ("a", "b c")),  # as Python and `--help` print it
        ("(a", ("(a",)),
        ("", ()),
        ("()", ()),
    ],
)
def test_names_in_a_list_stay_as_they_are(text, parts):
    assert find("faces-arcface", {"data.distractors": text}).data.distractors == parts


def test_in_python_values_need_not_be_text():
    changes = {"loop.steps": 3, "loss.margin": 1, "loop.compile": True, "constraint.ramp": (0, 0.5), "loop.clip": None}
    recipe = find("photos-sec", changes | {"data.root": Path("a")})
    assert (recipe.loop.steps, recipe.loss.margin, recipe.loop.compile, recipe.loop.clip) == (3, 1.0, True, None)
    assert recipe.constraint.ramp == (0.0, 0.5) and recipe.data.root == "a"
    with pytest.raises(RecipeError, match="loop.steps: 1.5 is not int"):
        find("photos-sec", {"loop.steps": 1.5})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"loss.margn": "1"}, "loss.margn: no such field; did you mean margin?"),
        ({"steps": "5"}, "steps: no such field; did you mean loop.steps?"),
        ({"eta": "5"}, "eta: no such field; did you mean constraint.eta?"),
        ({"size": "5"}, "size: no such field; did you mean data.size or batches.size?"),
        ({"kind": "5"}, "kind: no such field; Recipe has "),
        ({"los.alpha": "1"}, "los.alpha: no such field; did you mean loss?"),
        ({"loss.margin": "high"}, "loss.margin: 'high' is not float"),
        ({"loop.steps": "1.5"}, "loop.steps: 1.5 is not int"),
        ({"loop.steps": "true"}, "loop.steps: 'true' is not int"),
        ({"constraint.radius": "mean"}, "constraint.radius: 'mean' is not batch | ema | initial | float"),
        ({"constraint.ramp": "0.5"}, "constraint.ramp: [0.5] is not float,float"),
        ({"loss": "Tripplet"}, "loss: 'Tripplet' is not one of"),
        ({"seed.x": "1"}, "seed.x: seed has no fields"),
        ({"batches.per_class": "7"}, "batches: 120 images are no multiple of 7 per class"),
        ({"loop.steps": "0"}, "loop: steps must be at least 1"),
        ({"constraint.eta": "-1"}, "constraint: eta must be at least 0"),
    ],
)
def test_mistakes_are_named_in_one_line(changes, message):
    with pytest.raises(RecipeError) as caught:
        find("rendered", changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_keys_and_kinds_in_json_are_refused():
    values = options.to_dict(ALL["rendered"])
    with pytest.raises(RecipeError, match="loss.gamma: no such field"):
        options.from_dict(schema.Recipe, values | {"loss": {"kind": "Triplet", "gamma": 1}})
    with pytest.raises(RecipeError, match="data: expected a group of fields, not 3"):
        options.from_dict(schema.Recipe, values | {"data": 3})


def test_every_field_has_a_reason():
    for field, kind, _, reason in options.describe(ALL["rendered"]):
        assert reason.endswith("."), f"{field} ({kind}) has no reason under it"
