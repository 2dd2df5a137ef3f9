"""Every criterion compiles to one graph, forward and backward, with the values and gradients of eager mode."""

import pytest
import torch

from isosphere.losses import contrastive, margins, pairs

FOUR, TWO = torch.arange(12) // 4, torch.arange(12) // 2
CRITERIA = [
    (pairs.TripletLoss(), FOUR),
    (pairs.SemiHardTripletLoss(), FOUR),
    (pairs.NPairLoss(), FOUR),
    (pairs.NPairLoss(negatives="all"), FOUR),
    (pairs.MultiSimilarityLoss(), FOUR),
    (pairs.ContrastiveLoss(), FOUR),
    (contrastive.SupConLoss(), FOUR),
    (contrastive.NTXentLoss(), TWO),
    (margins.LinearClassifier(8, 3), FOUR),
    (margins.CosineClassifier(8, 3, margins.ArcFace()), FOUR),
    (margins.CosineClassifier(8, 3, margins.SphereFace()), FOUR),
    (margins.CosineClassifier(8, 3, margins.CosFace()), FOUR),
    (margins.CosineClassifier(8, 3, margins.NormFace()), FOUR),
    (margins.ProxyAnchorLoss(8, 3), FOUR),
]


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(criterion: torch.nn.Module) -> torch.nn.Module:
    return torch.compile(criterion, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize(("criterion", "labels"), CRITERIA, ids=lambda value: type(value).__name__)
def test_compiles_to_one_graph(criterion: torch.nn.Module, labels: torch.Tensor) -> None:
    f = torch.randn(12, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    inputs = (f, *criterion.parameters())
    loss, eager = compiled(criterion)(f, labels), criterion(f, labels)
    torch.testing.assert_close(loss, eager)
    found, wanted = (torch.autograd.grad(value, inputs) for value in (loss, eager))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)  # a margin's slope makes rounding larger


@pytest.mark.parametrize("criterion", [pairs.MultiSimilarityLoss(), contrastive.NTXentLoss()], ids=str)
def test_a_compiled_loss_shows_nan(criterion: torch.nn.Module) -> None:
    f = torch.randn(12, 8)
    f[3, 1] = torch.nan
    assert compiled(criterion)(f, TWO).isnan()


def test_compiled_nt_xent_is_nan_where_labels_do_not_pair() -> None:
    assert compiled(contrastive.NTXentLoss())(torch.randn(12, 8), FOUR).isnan()
