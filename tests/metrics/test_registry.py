"""Names of metrics: one home, families by their keys, and the metric that leads a task."""

import pytest

from isosphere.metrics import registry
from isosphere.metrics.registry import leading, metric


@pytest.mark.parametrize(
    ("key", "heading", "unit", "better"),
    [
        ("recall@8", "R@8", "%", "higher"),
        ("map@r", "MAP@R", "%", "higher"),
        ("cmc@10", "rank 10", "%", "higher"),
        ("map", "mAP", "%", "higher"),
        ("rank1@1000000", "rank 1 of 1,000,000", "%", "higher"),
        ("rank1@wild", "rank 1 among wild", "%", "higher"),
        ("lfw_tar@0.001", "LFW TAR at FAR 0.1 %", "%", "higher"),
        ("mine_std", "mine spread of folds", "%", "lower"),
        ("rank1_norm_auroc", "rank 1 norm AUROC", "%", "higher"),
        ("probe_top1@10", "probe top-1, lr 10", "%", "higher"),
        ("norm_variance", "variance of the norms", "", ""),
        ("loss", "training loss", "", "lower"),
        ("mine", "mine", "%", "higher"),
    ],
)
def test_keys_have_names(key, heading, unit, better):
    found = metric(key)
    assert (found.key, found.heading, found.unit, found.better) == (key, heading, unit, better)
    assert found.shown(None) == "-" and found.shown(0.25) == ("25.0" if unit == "%" else "0.25")


def test_a_task_has_a_leading_metric_at_the_end_and_on_the_way():
    assert [leading(task) for task in registry.LEADING] == ["recall@1", "accuracy", "probe_top1"]
    assert [leading(task, training=True) for task in registry.LEADING] == ["recall@1", "accuracy", "knn"]
    assert registry.headline({"knn": 0, "probe_top1": 0}) == "probe_top1"
    assert registry.headline({"knn": 0, "probe_top1": 0}, training=True) == "knn"
    assert registry.headline({"rank1@100": 0}) == "rank1@100" and registry.headline({"norm_mean": 0}) == ""


def test_tables_have_an_order():
    names = ["nmi", "rank1@100", "rank1@9", "mine", "mine_auc", "lfw", "lfw_auc", "lfw_norm_auroc", "recall@10"]
    names += ["cmc@10", "map", "cmc@5"]
    names += ["recall@2", "norm_mean", "accuracy", "rank1@zoo", "rank1_norm_auroc", "singletons"]
    ordered = [one.key for one in registry.scores(names)]
    assert ordered[:6] == ["recall@2", "recall@10", "cmc@5", "cmc@10", "map", "nmi"]
    assert ordered[6:] == ["accuracy", "lfw", "mine", "rank1@9", "rank1@100", "rank1@zoo"]
    details = [one.key for one in registry.pair_details(names)]
    assert details == ["lfw_auc", "mine_auc", "lfw_norm_auroc", "rank1_norm_auroc"]
    compared = [one.key for one in registry.compared(names)]
    assert compared == ["map", "accuracy", "lfw", "mine", "rank1@100", "lfw_norm_auroc", "rank1_norm_auroc"]
