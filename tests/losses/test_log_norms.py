import torch

from isosphere.losses.log_norms import log_norm_penalty


def embeddings():
    rows = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return rows * torch.linspace(0.1, 4, 9, dtype=torch.float64)[:, None]


def test_a_common_factor_has_no_derivative():
    factor = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    penalty = log_norm_penalty(factor * embeddings())
    (slope,) = torch.autograd.grad(penalty, factor)
    assert float(penalty.detach()) > 0.1 and abs(float(slope)) < 1e-15


def test_zero_vectors_are_left_out():
    rows = torch.cat([embeddings(), torch.zeros(2, 4, dtype=torch.float64)]).requires_grad_()
    penalty = log_norm_penalty(rows)
    torch.testing.assert_close(penalty, log_norm_penalty(embeddings()))
    penalty.backward()
    assert rows.grad.isfinite().all() and not rows.grad[-2:].any() and rows.grad[:-2].any()
    assert log_norm_penalty(torch.zeros(3, 4)) == 0 and log_norm_penalty(torch.zeros(0, 4)) == 0
