"""Recipes of Tables 5 and 12: every method at the printed strength, in the plain scale and in the authors'."""

import json

import pytest

from isosphere.errors import BadArgument, Option
from isosphere.paper import ALL, published
from isosphere.paper.contrastive import CONTRASTIVE
from isosphere.paper.tables import Asked, cells, printed
from isosphere.recipes import losses, options, schema

SUFFIXES = ("", "-l2reg", "-sec", "-sec-ema", "-sec-relative")
ETAS = {  # Table 12: L2-reg, SEC, SEC-EMA
    "simclr-cifar10": (5e-3, 0.25, 0.5),
    "simclr-cifar10-200": (5e-3, 0.25, 1.0),
    "simclr-cifar100": (1e-3, 0.01, 0.05),
    "simclr-cifar100-200": (1e-3, 0.01, 0.05),
}
SCALE = 0.5 / 0.07  # of NT-Xent in the authors' code, whose gather over two GPUs halves every gradient


def changed(left: str, right: str) -> set[str]:
    """The groups in which two recipes differ."""
    return {field.split(".")[0] for field in options.differences(CONTRASTIVE[left], CONTRASTIVE[right])}


def test_names_claims_and_json():
    names = [*ETAS, *(f"paper-{name}" for name in ETAS)]
    assert set(CONTRASTIVE) == {name + suffix for name in names for suffix in SUFFIXES} <= set(ALL)
    for recipe in CONTRASTIVE.values():
        assert options.from_dict(schema.Recipe, json.loads(json.dumps(options.to_dict(recipe)))) == recipe
    assert len({recipe.claim for recipe in CONTRASTIVE.values()}) == len(CONTRASTIVE) == 40


@pytest.mark.parametrize("name", [*ETAS, *(f"paper-{name}" for name in ETAS)])
def test_methods_differ_in_the_constraint_alone(name):
    for suffix in SUFFIXES[1:]:
        assert changed(name, name + suffix) == {"claim", "constraint"}


@pytest.mark.parametrize("name", ETAS)
def test_strengths_of_table_12_in_both_scales(name):
    *_, dataset = name.removesuffix("-200").split("-")
    epochs = 200 if name.endswith("-200") else 100
    assert published.SIMCLR_ETAS[dataset, epochs] == ETAS[name]
    for prefix, divisor, relative in (("", SCALE, 1.0), ("paper-", 2.0, SCALE / 2)):
        found = [CONTRASTIVE[prefix + name + suffix].constraint for suffix in SUFFIXES]
        assert all(one.ramp == (0.0, 1.0) for one in found[1:])
        assert [one.eta for one in found[1:]] == pytest.approx([*(eta / divisor for eta in ETAS[name]), relative])
        assert [one.method for one in found] == ["none", "l2reg", "sec", "sec-ema", "sec-relative"]
        assert found[3].rho == 0.2


@pytest.mark.parametrize("name", ETAS)
def test_the_setting_of_appendix_b3(name):
    plain, authors = CONTRASTIVE[name], CONTRASTIVE[f"paper-{name}"]
    for recipe in (plain, authors):
        assert recipe.data.name == name.split("-")[1] and recipe.data.scale == (0.2, 1.0)
        assert recipe.validation.held_out == 0
        assert recipe.data.jitter == (0.4, 0.4, 0.4, 0.1)
        assert recipe.model == schema.Model("resnet50_cifar", head="mlp", dim=128, preprocessing=recipe.data.name)
        assert recipe.batches == schema.Shuffled(256, views=2) and recipe.schedule == schema.Cosine(0.001)
        assert recipe.loop.unit == "epochs" and recipe.loop.steps == (200 if name.endswith("-200") else 100)
    assert authors.optimizer == schema.SGD(lr=0.5, weight_decay=1e-4, momentum=0.9, decay_batch_norm=True)
    assert authors.loss.temperature == 0.5 and authors.loss.weight == pytest.approx(SCALE / 2)
    assert plain.loss == losses.NTXent(0.5, 1.0)
    assert plain.optimizer.lr == pytest.approx(3.571 * 0.5, rel=1e-3)
    assert plain.optimizer.weight_decay == pytest.approx(1e-4 / 3.571, rel=1e-3) and plain.optimizer.decay_batch_norm
    assert changed(name, f"paper-{name}") == {"claim", "loss", "optimizer"}


def test_batch_norm_is_decayed_by_simclr_alone_and_not_where_a_recipe_does_not_say():
    """As the results that were stored before the field was there."""
    for name, recipe in ALL.items():
        decayed = name in CONTRASTIVE and isinstance(recipe.optimizer, schema.SGD)
        assert getattr(recipe.optimizer, "decay_batch_norm", False) == decayed, name
    stored = options.to_dict(schema.Recipe(optimizer=schema.SGD()))
    del stored["optimizer"]["decay_batch_norm"]
    assert options.from_dict(schema.Recipe, stored) == schema.Recipe(optimizer=schema.SGD())


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
@pytest.mark.parametrize("epochs", [100, 200])
def test_table_5_has_five_methods_and_what_the_paper_printed_beside_them(dataset, epochs, paper):
    ((cell, methods),) = cells("table5", Asked(dataset=dataset, paper=paper, epochs=epochs)).items()
    assert list(methods) == ["none", "l2reg", "sec", "sec-ema", "sec-relative"]
    for method, recipe in methods.items():
        assert recipe == CONTRASTIVE[("paper-" if paper else "") + cell + ("" if method == "none" else f"-{method}")]
    metrics, rows = printed("table5", cell)
    assert metrics == ("top1", "top5") and list(rows) == ["none", "l2reg", "sec", "sec-ema"]
    best = {("cifar10", 100): 86.87, ("cifar10", 200): 90.35, ("cifar100", 100): 61.88, ("cifar100", 200): 66.59}
    assert max(row[0] for row in rows.values()) == best[dataset, epochs]


@pytest.mark.parametrize(
    ("field", "text"),
    [("validation.held_out", "1.5"), ("data.name", "cifar20"), ("data.scale", "0.5,0.2"), ("batches.views", "0")],
)
def test_nonsense_is_refused(field, text):
    with pytest.raises(BadArgument) as caught:
        options.override(CONTRASTIVE["simclr-cifar10-sec"], {field: text})
    assert caught.value.name == Option(field)
