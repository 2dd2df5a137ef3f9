"""The paper's tables: chosen cells typed again from the page, every table whole, and its tables among themselves."""

import pytest

from isosphere.paper import published

DATASETS, LOSSES = ("cub200", "cars196", "sop", "inshop"), ("triplet", "semihard", "npair", "ms")
METHODS = ["none", "l2reg", "sec", "sec-ema"]
CELLS = [(dataset, loss) for dataset in DATASETS for loss in LOSSES]


def test_splits():
    assert list(published.SPLITS) == list(DATASETS)
    assert list(published.SPLITS["cub200"].values()) == [100, 100, 5864, 5924]
    assert list(published.SPLITS["sop"].values()) == [11318, 11316, 59551, 60502]
    assert published.SPLITS["cars196"]["test_images"] == 8131 and published.SPLITS["inshop"]["train_classes"] == 3997


@pytest.mark.parametrize(
    "dataset, loss, method, metric, value",
    [
        ("cub200", "triplet", "none", "recall@1", 53.34),
        ("cub200", "triplet", "sec", "f1", 30.83),
        ("cub200", "ms", "none", "recall@1", 66.14),
        ("cub200", "ms", "sec", "recall@1", 68.79),
        ("cub200", "ms", "sec-ema", "recall@1", 69.78),
        ("cars196", "ms", "l2reg", "nmi", 71.00),
        ("cars196", "ms", "sec", "recall@1", 85.73),
        ("cars196", "npair", "sec-ema", "recall@8", 96.57),
        ("sop", "semihard", "l2reg", "recall@1", 74.88),
        ("sop", "ms", "sec", "recall@1000", 98.76),
        ("inshop", "triplet", "none", "recall@1", 82.12),
        ("inshop", "npair", "sec-ema", "recall@50", 99.06),
    ],
)
def test_retrieval_results(dataset, loss, method, metric, value):
    column = published.RETRIEVAL_METRICS[dataset].index(metric)
    assert published.RETRIEVAL_RESULTS[dataset, loss][method][column] == value


def test_retrieval_tables_are_whole():
    assert list(published.RETRIEVAL_RESULTS) == CELLS == list(published.ETAS) == list(published.LEARNING_RATES)
    for (dataset, _), methods in published.RETRIEVAL_RESULTS.items():
        assert list(methods) == METHODS
        assert all(len(row) == len(published.RETRIEVAL_METRICS[dataset]) for row in methods.values())
        recalls = [row[-4:] for row in methods.values()]
        assert all(list(row) == sorted(row) for row in recalls), "recall@K cannot fall with K"


def test_training_settings():
    assert published.ITERATIONS == {"cub200": 8000, "cars196": 8000, "sop": 12000, "inshop": 12000}
    assert published.LEARNING_RATES["cub200", "semihard"] == (5e-6, 2.5e-6, 0.1, (5000,))
    assert published.LEARNING_RATES["cub200", "npair"] == (1e-5, 5e-6, 0.1, (5000,))
    assert published.LEARNING_RATES["cub200", "ms"] == (5e-5, 2.5e-5, 0.1, (3000, 6000))
    assert published.LEARNING_RATES["cars196", "triplet"] == (1e-5, 1e-5, 0.5, (4000, 6000))
    assert published.LEARNING_RATES["cars196", "ms"] == (4e-5, 4e-5, 0.1, (2000,))
    assert published.LEARNING_RATES["inshop", "npair"] == (5e-4, 1e-4, 0.1, (6000,))


def test_etas():
    assert published.ETAS["cub200", "triplet"] == (1e-4, 1.0, 1.0)
    assert published.ETAS["cars196", "ms"] == (1e-2, 1.0, 1.0)
    assert published.ETAS["inshop", "ms"] == (1e-4, 0.25, 0.25)
    assert published.RHOS == {"retrieval": 0.01, "faces": 0.4, "contrastive": 0.2}


def test_ablations():
    assert published.SEC_ABLATION[0.1] == (59.08, 26.50, 66.72, 76.92, 84.39, 89.88)
    assert published.SEC_ABLATION[1.5][2] == 57.72 and list(published.SEC_ABLATION) == [0, 0.1, 0.5, 1, 1.5]
    assert published.L2REG_ABLATION[5e-4] == (56.20, 23.16, 61.35) and published.L2REG_ABLATION[1e-3][2] == 57.16
    assert published.RHO_ABLATION[None] == (56.49, 23.72, 60.84, 8.03, 5.54)
    assert published.RHO_ABLATION[0.5] == (59.61, 27.01, 68.54, 1.72, 0.02)
    assert published.INITIAL_NORM == 8.7


def test_tables_agree_where_the_paper_prints_a_run_twice():
    cars = published.RETRIEVAL_RESULTS["cars196", "triplet"]
    assert published.SEC_ABLATION[0.0] == cars["none"] and published.SEC_ABLATION[0.5] == cars["sec"]
    assert published.L2REG_ABLATION[1e-4] == cars["l2reg"][:3]
    assert published.RHO_ABLATION[0.01][:3] == cars["sec-ema"][:3]
    assert published.RHO_ABLATION[1.0][:3] == cars["sec"][:3]
    assert published.L2REG_ABLATION[0.0] == published.RHO_ABLATION[None][:3] != cars["none"][:3]


def test_faces():
    results, metrics = published.FACE_RESULTS, published.FACE_METRICS
    assert results["softmax"] == {"none": (98.97, 91.30, 93.39, 80.43, 87.11, 92.83, 96.12)}
    assert results["cosface"]["sec"][metrics.index("lfw")] == 99.42
    assert results["arcface"]["sec-ema"][metrics.index("megaface@1e6")] == 91.02
    assert results["sphereface"]["l2reg"][metrics.index("megaface@1e3")] == 97.87
    for loss in ("sphereface", "cosface", "arcface"):
        assert list(results[loss]) == METHODS and {len(row) for row in results[loss].values()} == {7}
    assert published.FACE_ETAS["arcface"] == (1e-3, 5.0, 1.0)
    assert published.FACE_ETAS["sphereface"].l2reg == 5e-3


def test_simclr():
    results = published.SIMCLR_RESULTS
    assert results["cifar10", 100]["none"] == (84.76, 99.36) and results["cifar10", 200]["sec"] == (90.35, 99.77)
    assert results["cifar100", 100]["sec-ema"] == (61.88, 87.85) and results["cifar100", 200]["l2reg"] == (66.57, 90.18)
    assert list(results) == list(published.SIMCLR_ETAS) and all(
        list(methods) == METHODS for methods in results.values()
    )
    assert published.SIMCLR_ETAS["cifar10", 200] == (5e-3, 0.25, 1.0)
    assert published.SIMCLR_ETAS["cifar100", 100] == (1e-3, 0.01, 0.05)
