import pytest
import torch

from isosphere.errors import Interrupted
from isosphere.losses.first_weights import L2SP, CutInitialization
from isosphere.train import loop
from isosphere.train.loop import fit, prepare
from tiny import tiny_recipe

CPU = torch.device("cpu")


def test_a_cut_divides_the_last_layer_alone():
    model = prepare(tiny_recipe("rendered"), CPU).model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    CutInitialization(3.0).start(model)
    for name, value in model.state_dict().items():
        factor = 3.0 if name.startswith("head.1.") else 1.0
        torch.testing.assert_close(value, before[name] / factor if factor > 1 else before[name])


def test_a_run_begins_with_shorter_embeddings(tmp_path):
    changes = {"loop.steps": 1, "optimizer.lr": 1e-9}
    plain, cut = (
        fit(tiny_recipe("rendered", changes | more), tmp_path / name, "cpu")["last"]["norm_mean"]
        for name, more in {"plain": {}, "cut": {"constraint": "CutInitialization", "constraint.factor": 4}}.items()
    )
    assert plain / cut == pytest.approx(4, rel=1e-3)


def test_the_penalty_is_the_distance_to_the_first_weights():
    model, constraint = prepare(tiny_recipe("rendered"), CPU).model, L2SP(eta=0.5)
    constraint.start(model)
    parameters = [p for p in model.backbone.parameters() if p.requires_grad]
    assert float(constraint.through_optimizer(torch.zeros(()), model, torch.zeros(())).detach()) == 0
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.1)
    found = constraint.through_optimizer(torch.zeros(()), model, torch.zeros(()))
    count = sum(parameter.numel() for parameter in parameters)
    assert float(found.detach()) == pytest.approx(0.25 * 0.01 * count, rel=1e-4)
    gradients = torch.autograd.grad(found, parameters)
    assert all(torch.allclose(gradient, torch.full_like(gradient, 0.05), rtol=1e-3) for gradient in gradients)


def test_a_resumed_run_knows_its_first_weights(tmp_path, monkeypatch):
    changes = {"constraint": "L2SP", "constraint.eta": 1.0, "loop.steps": 10}
    whole = fit(tiny_recipe("rendered", changes), tmp_path / "whole", "cpu")
    monkeypatch.setattr(loop, "_asked_to_stop", lambda run, caught: run.step == 5)
    with pytest.raises(Interrupted):
        fit(tiny_recipe("rendered", changes), tmp_path / "parts", "cpu")
    monkeypatch.undo()
    parts = fit(tiny_recipe("rendered", changes), tmp_path / "parts", "cpu", resume=True)
    assert parts["last"] == whole["last"]
