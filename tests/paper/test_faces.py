"""The rows of Tables 4 and 11 as recipes: typed again from the page, with the ramps of App. B.2 and Eq. 32."""

import json

import pytest

from isosphere.errors import BadArgument, Option
from isosphere.paper import ALL, published, tables
from isosphere.paper.faces import FACES
from isosphere.recipes import losses, options, schema
from isosphere.train.build import build_constraint
from isosphere.train.schedules import lr_factor

SETS, MARGINS = ("casia", "lfw"), ("sphereface", "cosface", "arcface")
SUFFIXES = ("", "-l2reg", "-sec", "-sec-ema", "-sec-relative")
ROWS = ["softmax", "normface", *(head + suffix for head in MARGINS for suffix in SUFFIXES)]
EPOCH, EPOCHS = 1931, 16  # steps of an epoch of CASIA-WebFace: 494,414 // 256


def eta_at(recipe: schema.Recipe, step: int) -> float:
    return build_constraint(recipe.constraint).eta_at(step / (EPOCHS * EPOCH))


def test_names_and_json():
    names = [f"{name}-{row}" for name in SETS for row in ROWS]
    assert sorted(FACES) == sorted(names) and set(FACES) <= set(ALL)
    for recipe in FACES.values():
        assert options.from_dict(schema.Recipe, json.loads(json.dumps(options.to_dict(recipe)))) == recipe
    assert len({recipe.claim for recipe in FACES.values()}) == len(FACES)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_trains_as_appendix_b2_says(row):
    recipe = FACES[f"casia-{row}"]
    assert recipe.model == schema.Model("se_resnet50_ir", head="dropout_fc_bn", dim=512)
    assert recipe.batches == schema.Shuffled(256) and (recipe.loop.unit, recipe.loop.steps) == ("epochs", EPOCHS)
    assert recipe.optimizer == schema.SGD(lr=0.1, weight_decay=5e-4, momentum=0.9)
    rates = [0.1] * 10 + [0.01] * 4 + [0.001] * 2
    for epoch, rate in enumerate(rates):
        for step in (0, EPOCH - 1):  # of the epoch: a rate changes with its first step
            progress = (epoch * EPOCH + step) / (EPOCHS * EPOCH)
            assert recipe.optimizer.lr * lr_factor(recipe.schedule, progress) == pytest.approx(rate)
    assert recipe.data == schema.Faces(pairs=("lfw", "agedb_30", "cfp_fp")) and recipe.data.size == 112
    assert recipe.classes == schema.Classes()


@pytest.mark.parametrize(
    "head, loss",
    [
        ("softmax", losses.Softmax()),
        ("normface", losses.NormFace(64.0)),
        ("sphereface", losses.SphereFace(3, 64.0)),
        ("cosface", losses.CosFace(0.35, 64.0)),
        ("arcface", losses.ArcFace(0.45, 64.0)),
    ],
)
def test_margins_of_section_4_and_appendix_b2(head, loss):
    assert {recipe.loss for name, recipe in FACES.items() if name.split("-")[1] == head} == {loss}


@pytest.mark.parametrize(
    "head, margin",
    [("arcface", 28.6), ("cosface", 35.0), ("sphereface", 0)],  # degrees, percent, none
)
def test_margins_in_other_units_are_refused(head, margin):
    with pytest.raises(BadArgument) as caught:
        options.override(FACES[f"casia-{head}"], {"loss.margin": str(margin)})
    assert (caught.value.name, caught.value.value) == (Option("loss.margin"), margin)


def test_pairs_of_your_own_may_not_take_the_name_of_a_metric():
    recipe = options.override(FACES["casia-arcface"], {"data.pairs": "lfw,calfw", "data.skip_unreadable": "true"})
    assert recipe.data.pairs == ("lfw", "calfw") and recipe.data.skip_unreadable
    with pytest.raises(BadArgument) as caught:
        options.override(recipe, {"data.pairs": "lfw,accuracy"})
    assert (caught.value.name, caught.value.value) == (Option("data.pairs"), "accuracy")


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "head, l2reg, sec, ema", [("sphereface", 5e-3, 5.0, 1.0), ("cosface", 5e-3, 5.0, 1.0), ("arcface", 1e-3, 5.0, 1.0)]
)
def test_strengths_of_table_11(name, head, l2reg, sec, ema):
    assert published.FACE_ETAS[head] == (l2reg, sec, ema)
    late, early = (3 / 16, 4 / 16), (0.0, 1 / 500)
    assert {suffix: FACES[f"{name}-{head}{suffix}"].constraint for suffix in SUFFIXES} == {
        "": schema.Baseline(),
        "-l2reg": schema.L2Reg(eta=l2reg, ramp=late),
        "-sec": schema.SEC(eta=sec, radius="batch", ramp=late),
        "-sec-ema": schema.SEC(eta=ema, radius="ema", rho=0.4, ramp=early),
        "-sec-relative": schema.SEC(eta=2500.0, relative=True, ramp=late),
    }


@pytest.mark.parametrize("head", MARGINS)
def test_eta_over_the_steps(head):
    """Off for three epochs, linear in the fourth, then constant (App. B.2); with EMA min(eta, 500 t / T) (Eq. 32)."""
    for suffix in ("-l2reg", "-sec"):
        recipe = FACES[f"casia-{head}{suffix}"]
        eta = recipe.constraint.eta
        assert eta_at(recipe, 0) == eta_at(recipe, 3 * EPOCH) == 0
        for step in (1, 500, EPOCH - 1):
            assert eta_at(recipe, 3 * EPOCH + step) == pytest.approx(eta * step / EPOCH)
        assert eta_at(recipe, 4 * EPOCH) == eta_at(recipe, 16 * EPOCH - 1) == eta
    recipe, total = FACES[f"casia-{head}-sec-ema"], EPOCHS * EPOCH
    for step in (0, 1, 7, 30, 61, 62, 63, 1000, total - 1):
        assert eta_at(recipe, step) == pytest.approx(min(recipe.constraint.eta, 500 * step / total), abs=1e-12)


def test_methods_of_a_head_differ_in_the_constraint_alone():
    for name in SETS:
        for head in MARGINS:
            for suffix in SUFFIXES[1:]:
                found = options.differences(FACES[f"{name}-{head}"], FACES[f"{name}-{head}{suffix}"])
                assert {field.split(".")[0] for field in found} == {"claim", "constraint"}


def test_the_small_recipe_differs_in_data_backbone_and_length():
    found = options.differences(FACES["casia-arcface-sec"], FACES["lfw-arcface-sec"])
    assert {field for field in found if not field.startswith("data.")} == {
        "claim", "model.backbone", "loop.steps", "loop.eval_every", "loop.save_every",
    }  # fmt: skip
    recipe = FACES["lfw-arcface-sec"]
    assert recipe.model.backbone == "resnet18_ir" and recipe.loop.steps == 60
    assert recipe.data.min_images == 2 and not recipe.data.align and recipe.data.pairs == ("cfp_fp", "cfp_ff")


def test_table_4_has_every_row_that_the_paper_printed():
    cells = tables.cells("table4", tables.Asked())
    assert list(cells) == [f"casia-{head}" for head in ("softmax", "normface", *MARGINS)]
    for cell, methods in cells.items():
        metrics, rows = tables.printed("table4", cell)
        assert set(rows) <= set(methods) and all(len(row) == len(metrics) == 7 for row in rows.values())
        assert all(
            recipe == FACES[cell + ("" if method == "none" else f"-{method}")] for method, recipe in methods.items()
        )
