import pytest
import torch
from sklearn.decomposition import PCA

from isosphere.errors import Incompatible
from isosphere.losses import MultiSimilarityLoss
from isosphere.models.embedder import build_head
from isosphere.models.first_head import start_as_pca
from isosphere.train.loop import fit
from tiny import tiny_recipe


def features(count=200, width=12):
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(count, width, generator=generator) @ torch.randn(width, width, generator=generator)
    return mixed + 5 * torch.rand(width, generator=generator)


def test_behind_a_layer_norm_the_components_are_those_of_what_it_gives():
    rows, head = features(), build_head("ln_fc", 12, 4).eval()
    start_as_pca(head, rows)
    expected = torch.from_numpy(PCA(4, svd_solver="full").fit_transform(head[0](rows).double().numpy()))
    ratio = head(rows).double() / expected
    assert ratio.abs().std() / ratio.abs().mean() < 1e-3


def test_a_layer_norm_after_the_last_layer_does_nothing_to_an_angular_loss():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    rows = (rows - rows.mean(1, keepdim=True)).requires_grad_()  # what it also takes away
    labels = torch.arange(12) // 3
    layer = torch.nn.LayerNorm(6, eps=0.0, elementwise_affine=False)
    criterion = MultiSimilarityLoss()
    found = [torch.autograd.grad(criterion(f(rows), labels), rows)[0] for f in (torch.nn.Identity(), layer)]
    torch.testing.assert_close(found[1], found[0] - found[0].mean(1, keepdim=True))
    assert found[0].abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["bn_fc", "fc"])
def test_the_embeddings_are_sklearns_components_up_to_one_scale(kind):
    rows = features()
    head = build_head(kind, 12, 4).eval()
    start_as_pca(head, rows)
    expected = torch.from_numpy(PCA(4, svd_solver="full").fit_transform(rows.double().numpy()))
    ratio = head(rows).double() / expected  # signs are free, the scale is one
    assert ratio.abs().std() / ratio.abs().mean() < 1e-3


def test_the_weights_are_as_large_as_torchs_random_ones():
    torch.manual_seed(0)
    head = build_head("fc", 300, 40)
    before = float(head[-1].weight.square().mean().sqrt())
    start_as_pca(head, features(width=300))
    assert float(head[-1].weight.square().mean().sqrt()) == pytest.approx(before, rel=0.02)


@pytest.mark.parametrize("kind, width, field", [("mlp", 4, "model.head"), ("dropout_fc_bn", 4, "model.head"),
                                                ("bn_fc", 13, "model.dim")])  # fmt: skip
def test_heads_that_cannot_are_refused(kind, width, field):
    with pytest.raises(Incompatible) as caught:
        start_as_pca(build_head(kind, 12, width), features())
    assert caught.value.fields == (field, "model.head_start")


def test_a_run_starts_there_and_says_what_the_features_can_do(tmp_path):
    changes = {"model.dim": 64, "loop.steps": 1, "optimizer.lr": 1e-9}
    results = {
        start: fit(tiny_recipe("rendered", changes | {"model.head_start": start}), tmp_path / start, "cpu")
        for start in ("pca", "random")
    }
    untrained = [result["untrained"]["map@r"] for result in results.values()]
    assert untrained[0] == untrained[1] > 0
    # All components of a small network's features keep what these can do; a random head loses some of it.
    assert results["pca"]["last"]["map@r"] > results["random"]["last"]["map@r"]


def test_a_resumed_run_keeps_its_head(tmp_path):
    recipe = tiny_recipe("rendered", {"model.dim": 32, "model.head_start": "pca"})
    whole = fit(recipe, tmp_path / "whole", "cpu")
    for name in ("result.json", "checkpoint.pt"):
        assert (tmp_path / "whole" / name).is_file()
    again = fit(recipe, tmp_path / "whole", "cpu", resume=True)
    assert again["last"] == whole["last"]




@pytest.mark.parametrize("kind", ["bn_fc", "fc"])
@pytest.mark.parametrize("count", [2, 5, 12, 13])
def test_few_images_have_few_components_and_the_other_directions_are_across_them(kind, count):
    """Sklearn's components where there are some, nothing of these images in the rest, and no row is zero."""
    rows, found = features(count), []
    for _ in range(2):
        head = build_head(kind, 12, 10).eval()
        start_as_pca(head, rows)
        found.append(head[-1].weight)
    assert torch.equal(*found), "the same each time"
    embeddings, rank = head(rows).double(), min(count - 1, 10)
    expected = torch.from_numpy(PCA(rank, svd_solver="full").fit_transform(rows.double().numpy()))
    ratio = embeddings[:, :rank] / expected
    assert ratio.abs().std() / ratio.abs().mean() < 1e-2
    assert embeddings[:, rank:].abs().max() < 1e-4 * embeddings.abs().max() if rank < 10 else True
    weight = head[-1].weight.double()
    if kind == "bn_fc":
        weight = weight / (head[0].running_var.double() + head[0].eps).sqrt()
    gram = weight @ weight.T
    torch.testing.assert_close(gram / gram.diagonal().mean(), torch.eye(10, dtype=torch.float64), rtol=1e-3, atol=1e-3)


def test_what_cannot_start_as_pca_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(Incompatible):
        fit(tiny_recipe("rendered", {"model.head_start": "pca", "model.dim": 4096}), tmp_path / "run", "cpu")
    assert not any((tmp_path / "run").glob("*"))


@pytest.mark.parametrize("changes", [
    {"model.pooling": "gem", "model.dim": 128}, {"model.pooling": "both", "model.head": "fc"},
    {"model": "own_parts:PixelNet", "model.head": "bn_fc", "model.dim": 2, "data.size": 16}, {"model.head": "ln_fc"},
    {"data.per_class": 3, "model.dim": 300, "optimizer.backbone_lr": 0},
], ids=str)  # fmt: skip
def test_every_kind_of_run_can_start_there(changes, tmp_path):
    recipe = tiny_recipe("rendered", changes | {"model.head_start": "pca", "loop.steps": 2})
    result = fit(recipe, tmp_path / "run", "cpu")
    assert 0 < result["last"]["map@r"] <= 1
