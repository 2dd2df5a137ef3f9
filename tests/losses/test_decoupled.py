import copy
import json

import pytest
import torch
from torch import nn

from isosphere.losses.constraint import Constraint
from isosphere.losses.decoupled import DecoupledSEC
from isosphere.losses.norms import SEC
from isosphere.train.loop import fit
from tiny import tiny_recipe


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, images):
        return self.head(self.body(images))


def step(model: nn.Module, constraint: Constraint, images: torch.Tensor) -> None:
    """A step as the loop takes it; the criterion is any function of the embeddings."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    embeddings = model(images)
    penalty = constraint(embeddings, progress=0.0)
    metric = embeddings.sin().sum()
    loss = metric + constraint.through_optimizer(penalty, model, metric)
    loss.backward()
    optimizer.step()
    constraint.after_step(model, optimizer)


def test_adam_sees_the_criterion_alone_and_the_last_layer_takes_secs_gradient():
    torch.manual_seed(0)
    images, first = torch.randn(16, 5, dtype=torch.float64), Headed().double()
    with_sec, without, plain = (copy.deepcopy(first) for _ in range(3))
    step(with_sec, DecoupledSEC(eta=3.0), images)
    step(without, Constraint(), images)
    gradients = torch.autograd.grad(SEC(eta=3.0)(plain(images)), list(plain.head[-1].parameters()))
    for found, criterion, gradient in zip(
        with_sec.head[-1].parameters(), without.head[-1].parameters(), gradients, strict=True
    ):
        assert gradient.abs().max() > 0.01
        torch.testing.assert_close(found, criterion - 0.01 * gradient)
    for name, found in with_sec.body.state_dict().items():
        torch.testing.assert_close(found, without.body.state_dict()[name])


def test_the_variance_of_norms_falls_in_a_run(tmp_path):
    spread = []
    for name, changes in {"none": {}, "decoupled": {"constraint": "DecoupledSEC", "constraint.eta": 3}}.items():
        fit(tiny_recipe("rendered", changes | {"loop.steps": 100}), tmp_path / name, "cpu")
        last = [json.loads(line) for line in open(tmp_path / name / "metrics.jsonl", encoding="utf-8")][-20:]
        spread.append(sum(line["norm_variance"] for line in last if line["kind"] == "train"))
    assert spread[1] < 0.7 * spread[0]


@pytest.mark.parametrize("eta, method", [(0.0, "none"), (2.0, "sec-decoupled")])
def test_its_method(eta, method):
    assert tiny_recipe("rendered", {"constraint": "DecoupledSEC", "constraint.eta": eta}).constraint.method == method
