"""NT-Xent: its formula, PML, its two rows a label. SupCon's tests are with the pair losses."""

import pytest
import torch
from pytorch_metric_learning import losses as pml

import references
from isosphere.errors import BadArgument
from isosphere.losses import contrastive, slopes


def views(n: int = 12, dim: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n // 2).repeat(2)[torch.randperm(n, generator=generator)] * 7 - 3
    return torch.randn(n, dim, generator=generator, dtype=torch.float64).requires_grad_(), labels


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_equals_the_loops_and_pml(temperature: float) -> None:
    f, y = views()
    ours, loops, oracle = (
        function(f, y)
        for function in (
            contrastive.NTXentLoss(temperature),
            lambda f, y: references.nt_xent(f, y, temperature),
            pml.NTXentLoss(temperature),
        )
    )
    gradients = [torch.autograd.grad(loss, f)[0] for loss in (ours, loops, oracle)]
    for other, gradient in ((loops, gradients[1]), (oracle, gradients[2])):
        torch.testing.assert_close(ours, other, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradients[0], gradient, rtol=1e-9, atol=1e-12)


def test_at_readable_angles() -> None:
    f = references.circle([0, 90, 180, 270])  # each has its positive at 90 degrees, another at 90, one at 180
    expected = torch.log(2 + torch.exp(torch.tensor(-1 / 0.5)))
    assert contrastive.nt_xent(f, torch.tensor([0, 0, 1, 1]), 0.5).item() == pytest.approx(expected.item())


def test_equals_supcon_with_two_rows_a_label() -> None:
    f, y = views()
    torch.testing.assert_close(contrastive.nt_xent(f, y, 0.2), contrastive.supcon(f, y, 0.2))


def test_a_single_image_has_no_loss() -> None:
    f = views(2)[0]
    loss = contrastive.nt_xent(f, torch.tensor([4, 4]))
    assert loss == 0 and not torch.autograd.grad(loss, f)[0].any()


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 0, 1, 2], [0, 1, 2, 3], [0, 0, 0, 1, 1, 1], [0, 0, 1]])
def test_other_numbers_of_rows_are_refused(labels: list[int]) -> None:
    with pytest.raises(BadArgument) as error:
        contrastive.nt_xent(views(2 * len(labels))[0][: len(labels)], torch.tensor(labels))
    assert error.value.name == "labels"


def test_where_labels_do_not_pair_a_compiled_loss_is_nan() -> None:
    compiled = torch.compile(contrastive.NTXentLoss(), fullgraph=True, backend="aot_eager")
    assert compiled(torch.randn(12, 8), torch.arange(12) // 4).isnan()


def test_where_values_are_not_read_other_labels_poison_loss_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrastive, "reads_values", lambda values: False)
    f, y = views()
    assert contrastive.nt_xent(f, y).isfinite()
    loss = contrastive.nt_xent(f, torch.arange(12) // 4)
    assert loss.isnan() and torch.autograd.grad(loss, f)[0].isnan().all()


@pytest.mark.parametrize("loss", [contrastive.nt_xent, contrastive.supcon])
def test_no_slope_underflows_on_cpu(loss, monkeypatch) -> None:
    """At a temperature of 0.01 shares lie between 1e-45 and 1e-38; a product with them takes fifty times as long."""
    seen = []
    real = slopes._add_products

    def watched(block, found, *rest):
        seen.append(found)
        real(block, found, *rest)

    monkeypatch.setattr(slopes, "_add_products", watched)
    f = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    f[1::2] = f[::2]
    loss(f.requires_grad_(), torch.arange(64) // 2, 0.01).backward()
    sizes = seen[0].abs()
    assert ((sizes > 0) & (sizes < 1e-3)).any() and not ((sizes > 0) & (sizes < torch.finfo(torch.float32).tiny)).any()
    assert f.grad.isfinite().all()
