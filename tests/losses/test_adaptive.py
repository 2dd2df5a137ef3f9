import copy

import pytest
import torch
from torch import nn

from isosphere.losses.adaptive import AdaptiveSEC
from isosphere.losses.norms import SEC
from isosphere.train.loop import fit
from tiny import tiny_recipe


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, images):
        return self.head(self.body(images))


def step(model: nn.Module, constraint: AdaptiveSEC, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of criterion and weighted penalty by the last layer's weights."""
    embeddings = model(images)
    metric = embeddings.sin().sum()
    penalty = constraint.through_optimizer(constraint(embeddings, progress=0.0), model, metric)
    weight = model.head[-1].weight
    return tuple(torch.autograd.grad(part, weight, retain_graph=True)[0] for part in (metric, penalty))


def test_the_penaltys_gradient_is_a_share_of_the_criterions():
    torch.manual_seed(0)
    model, constraint = Headed().double(), AdaptiveSEC(eta=0.25, rho=0.1).double()
    batches = torch.randn(3, 16, 5, dtype=torch.float64)
    criterion, pull = step(model, constraint, batches[0])
    assert float(pull.norm() / criterion.norm()) == pytest.approx(0.25)
    sizes = [criterion.norm(), 4 * pull.norm()]
    model.eval()
    plain = [
        torch.autograd.grad(loss(model(batches[0])), model.head[-1].weight)[0].norm()
        for loss in (lambda f: f.sin().sum(), SEC(eta=1.0))
    ]
    model.train()
    assert plain[0] > 0 and plain[1] > 0
    first = constraint.sizes.clone()
    torch.testing.assert_close(first[0], sizes[0])
    second = copy.deepcopy(constraint)
    criterion, pull = step(model, second, 3 * batches[1])
    torch.testing.assert_close(second.sizes[0], 0.9 * first[0] + 0.1 * criterion.norm())
    weight = 0.25 * second.sizes[0] / second.sizes[1]
    embeddings = model(3 * batches[1])
    (plain_pull,) = torch.autograd.grad(SEC(eta=1.0)(embeddings), model.head[-1].weight)
    torch.testing.assert_close(pull, weight * plain_pull)


def test_even_norms_need_no_pull_and_a_bad_batch_is_forgotten():
    model, constraint = Headed(), AdaptiveSEC(eta=0.5)
    embeddings = model(torch.randn(8, 5))
    held = constraint.sizes
    zero = constraint.through_optimizer(0.0 * embeddings.sum(), model, embeddings.sum())
    assert float(zero.detach()) == 0 and bool(held.isfinite().all())
    before = held.clone()
    constraint.through_optimizer(float("nan") * embeddings.sum(), model, embeddings.sum())
    assert float(held[1]) == float(before[1])


def test_norms_even_out_in_a_run_and_it_resumes(tmp_path):
    spread = {}
    for name, changes in {"none": {}, "adaptive": {"constraint": "AdaptiveSEC", "constraint.eta": 0.5}}.items():
        result = fit(tiny_recipe("rendered", changes | {"loop.steps": 60}), tmp_path / name, "cpu")
        spread[name] = result["last"]["norm_cv"]
    assert spread["adaptive"] < 0.8 * spread["none"]
    saved = torch.load(tmp_path / "adaptive" / "checkpoint.pt", weights_only=True)
    assert bool(saved["constraint"]["sizes"].isfinite().all())
