import json

import pytest
import torch
from torch import nn

from isosphere.losses.controls import ScaleCourse, ShuffledPulls
from isosphere.losses.norms import SEC
from isosphere.train.loop import fit
from tiny import tiny_recipe


def embeddings(count=12):
    rows = torch.randn(count, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (rows * torch.linspace(0.5, 3, count, dtype=torch.float64)[:, None]).requires_grad_()


def test_a_placebo_has_the_pulls_of_sec_on_other_rows():
    rows = embeddings()
    (wanted,) = torch.autograd.grad(SEC(eta=0.3)(rows), rows)
    lengths = rows.detach().norm(dim=1)
    product = float(lengths.std(correction=0) * lengths.mean())
    (found,) = torch.autograd.grad(ShuffledPulls(0.3, (product, 3 * product))(rows, progress=0.5), rows)
    unit = (rows / rows.norm(dim=1, keepdim=True)).detach()
    pulls = [(gradient * unit).sum(1) for gradient in (wanted, found)]
    torch.testing.assert_close(pulls[1], 2 * pulls[0].roll(6))
    torch.testing.assert_close(found, pulls[1][:, None] * unit)


def test_a_run_follows_the_course(tmp_path):
    changes = {"constraint": "ScaleCourse", "constraint.course": "4,8", "optimizer.lr": 1e-4}
    fit(tiny_recipe("rendered", changes), tmp_path / "run", "cpu")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    norms = [line["norm_mean"] for line in lines if line["kind"] == "train"]
    assert norms[0] < 3  # of the random start
    assert norms[4:] == pytest.approx([4 + 4 * step / 20 for step in range(3, 19)], rel=0.1)


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(4, 3))


@pytest.mark.parametrize("progress, wanted", [(0.0, 2.0), (0.25, 3.0), (0.75, 6.0), (1.0, 8.0)])
def test_scale_follows_its_course_and_directions_do_not_change(progress, wanted):
    torch.manual_seed(0)
    model, images = Headed(), torch.randn(20, 4)
    control = ScaleCourse((2.0, 4.0, 8.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    before = model.head(images).detach()
    assert control(before, progress=torch.tensor(progress)) == 0
    model.head(images).square().sum().backward()
    optimizer.step()
    moments = {p: {k: v.clone() for k, v in its.items()} for p, its in optimizer.state.items()}
    control.after_step(model, optimizer)
    after = model.head(images)
    assert float(after.detach().norm(dim=1).mean()) == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(nn.functional.normalize(after), nn.functional.normalize(before))
    factor = float(control.factor)
    for parameter, its in moments.items():  # a gradient falls as the scale grows, its square twice as fast
        torch.testing.assert_close(optimizer.state[parameter]["exp_avg"], its["exp_avg"] / factor)
        torch.testing.assert_close(optimizer.state[parameter]["exp_avg_sq"], its["exp_avg_sq"] / factor**2)
