"""Recipes of the benchmarks: the fair setting changes nothing but the constraint, the paper's has its exceptions."""

import json

import pytest

from isosphere.paper import ALL, published
from isosphere.paper.retrieval import RETRIEVAL
from isosphere.recipes import losses, options, schema

SUFFIXES = ("", "-l2reg", "-sec", "-sec-ema", "-sec-relative", "-sec-initial", "-balanced")
DATASETS, LOSSES = ("cub200", "cars196", "sop", "inshop"), ("triplet", "semihard", "npair", "ms")
RELATED = ("proxyanchor", "proxynca", "lifted", "rankedlist", "tupletmargin")
FAIR = [f"{dataset}-{loss}" for dataset in DATASETS for loss in (*LOSSES, *RELATED)]
PAPER = [f"paper-{dataset}-{loss}" for dataset in DATASETS for loss in LOSSES]
ABLATIONS = [f"{setting}cars196-triplet-{ablation}" for setting in ("", "paper-") for ablation in (
    "eta0.1", "eta0.5", "eta1.0", "eta1.5",
    "sec-relative-eta1", "sec-relative-eta5", "sec-relative-eta20", "sec-relative-eta80",
    "l2reg-eta1e-3", "l2reg-eta5e-4", "l2reg-eta1e-4", "l2reg-eta5e-5",
    "rho0.01", "rho0.1", "rho0.5", "rho0.9", "rho1.0",
)]  # fmt: skip


def changed(left: str, right: str) -> set[str]:
    """The groups in which two recipes differ."""
    return {field.split(".")[0] for field in options.differences(RETRIEVAL[left], RETRIEVAL[right])}


def test_names():
    cells = [name + suffix for name in (*FAIR, *PAPER) for suffix in SUFFIXES]
    assert set(RETRIEVAL) == {*cells, *ABLATIONS} and set(RETRIEVAL) <= set(ALL)
    assert len(RETRIEVAL) == 9 * 28 + 112 + 34


def test_every_recipe_survives_json_and_says_what_it_claims():
    for recipe in RETRIEVAL.values():
        assert options.from_dict(schema.Recipe, json.loads(json.dumps(options.to_dict(recipe)))) == recipe
    claims = [recipe.claim for recipe in RETRIEVAL.values()]
    assert all(claims) and len(set(claims)) == len(claims)


@pytest.mark.parametrize("name", FAIR)
def test_methods_of_a_fair_cell_differ_in_the_constraint_alone(name):
    for suffix in SUFFIXES[1:]:
        assert changed(name, name + suffix) == {"claim", "constraint"}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_differ_in_the_constraint_alone(name):
    base = name[: name.index("triplet") + len("triplet")]
    assert changed(base, name) == {"claim", "constraint"}


@pytest.mark.parametrize("prefix", ["", "paper-"])
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_methods_have_the_strengths_of_tables_7_and_10(prefix, dataset, loss):
    etas, name = published.ETAS[dataset, loss], f"{prefix}{dataset}-{loss}"
    assert {suffix: RETRIEVAL[name + suffix].constraint for suffix in SUFFIXES} == {
        "": schema.Baseline(),
        "-l2reg": schema.L2Reg(eta=etas.l2reg),
        "-sec": schema.SEC(eta=etas.sec, radius="batch"),
        "-sec-ema": schema.SEC(eta=etas.ema, radius="ema", rho=0.01),
        "-sec-relative": schema.SEC(eta=5.0, relative=True),
        "-sec-initial": schema.SEC(eta=etas.sec, radius="initial"),
        "-balanced": schema.BalancedDirections(),
    }


def test_the_fair_setting():
    for name in FAIR:
        recipe = RETRIEVAL[name]
        assert recipe.model == schema.Model("resnet50_v1", head="bn_fc", dim=512, freeze_bn=True)
        assert recipe.schedule == schema.Constant() and recipe.loop.steps == 1600
    assert RETRIEVAL["cub200-ms-sec"].optimizer == schema.Adam(5e-5, 2.5e-5, 2.5e-3)
    assert RETRIEVAL["inshop-triplet"].optimizer == schema.Adam(5e-4, 1e-4, 1e-5)
    like_ms = options.differences(RETRIEVAL["sop-ms-sec"], RETRIEVAL["sop-proxyanchor-sec"])
    assert {field for field in like_ms if field.split(".")[0] not in ("claim", "loss")} == {"optimizer.class_lr"}
    assert RETRIEVAL["sop-proxyanchor-sec"].optimizer.class_lr == 100 * 5e-4
    assert RETRIEVAL["sop-proxyanchor-sec"].loss == losses.ProxyAnchor()


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize(
    "loss, option, per_class",
    [
        ("triplet", losses.Triplet(1.0), 3),
        ("semihard", losses.SemiHard(0.2), 3),
        ("npair", losses.NPair(25.0, "positives"), 2),
        ("ms", losses.MultiSimilarity(2.0, 40.0, 0.5, 0.1), 5),
    ],
)
def test_the_paper_setting(dataset, loss, option, per_class):
    recipe = RETRIEVAL[f"paper-{dataset}-{loss}-sec"]
    assert recipe.data == schema.Benchmark(dataset, size=227, shorter=256, scale=(0.16, 1.0), flip=True)
    assert recipe.model == schema.Model("bn_inception", head="bn_fc", dim=512, freeze_bn=True)
    assert recipe.loss == option and recipe.batches == schema.Batches(120, per_class)
    assert recipe.loop.steps == (8000 if dataset in ("cub200", "cars196") else 12000) and recipe.loop.eval_every == 500
    assert recipe.optimizer.weight_decay == (2.5e-3 if dataset in ("cub200", "cars196") else 1e-5)


@pytest.mark.parametrize(
    "name, lr, backbone_lr, at, factor",
    [
        ("paper-cub200-triplet-sec", 5e-6, 2.5e-6, (0.625,), 0.1),
        ("paper-cub200-semihard-sec", 5e-6, 2.5e-6, (0.625,), 0.1),
        ("paper-cub200-npair-sec", 1e-5, 5e-6, (0.625,), 0.1),
        ("paper-cub200-ms-sec", 5e-5, 2.5e-5, (0.375, 0.75), 0.1),
        ("paper-cars196-triplet-sec", 1e-5, 1e-5, (0.5, 0.75), 0.5),
        ("paper-cars196-npair-sec", 1e-5, 1e-5, (0.5, 0.75), 0.5),
        ("paper-cars196-ms-sec", 4e-5, 4e-5, (0.25,), 0.1),
        ("paper-sop-semihard-sec", 5e-4, 1e-4, (0.5,), 0.1),
        ("paper-inshop-ms-sec", 5e-4, 1e-4, (0.5,), 0.1),
    ],
)
def test_learning_rates_of_table_6(name, lr, backbone_lr, at, factor):
    recipe = RETRIEVAL[name]
    assert (recipe.optimizer.lr, recipe.optimizer.backbone_lr) == (lr, backbone_lr)
    assert recipe.schedule == schema.MultiStep(at, factor)


def test_the_authors_exceptions_for_multi_similarity_without_sec():
    rates = {"cub200": (1e-5, 0.5e-5), "cars196": (2e-5, 2e-5), "sop": (5e-4, 1e-4), "inshop": (5e-4, 1e-4)}
    for dataset, (lr, backbone_lr) in rates.items():
        name = f"paper-{dataset}-ms"
        for suffix in ("", "-l2reg"):
            recipe = RETRIEVAL[name + suffix]
            assert recipe.model.head == "fc"
            assert (recipe.optimizer.lr, recipe.optimizer.backbone_lr) == (lr, backbone_lr)
            assert changed(name + "-sec", name + suffix) - {"optimizer"} == {"claim", "constraint", "model"}
    fc = {name for name in RETRIEVAL if name.startswith("paper-") and RETRIEVAL[name].model.head != "bn_fc"}
    assert fc == {f"paper-{dataset}-ms{suffix}" for dataset in rates for suffix in ("", "-l2reg")}


@pytest.mark.parametrize(
    "ablation, constraint",
    [
        ("eta0.1", schema.SEC(eta=0.1)),
        ("eta1.5", schema.SEC(eta=1.5)),
        ("sec-relative-eta80", schema.SEC(eta=80.0, relative=True)),
        ("l2reg-eta1e-3", schema.L2Reg(eta=1e-3)),
        ("l2reg-eta5e-5", schema.L2Reg(eta=5e-5)),
        ("rho0.1", schema.SEC(eta=0.5, radius="ema", rho=0.1)),
        ("rho1.0", schema.SEC(eta=0.5, radius="ema", rho=1.0)),
    ],
)
def test_ablations_of_tables_2_8_and_9(ablation, constraint):
    assert RETRIEVAL[f"cars196-triplet-{ablation}"].constraint == constraint
    assert RETRIEVAL[f"paper-cars196-triplet-{ablation}"].constraint == constraint
