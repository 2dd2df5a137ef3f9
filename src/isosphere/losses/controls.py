"""Controls, not remedies: each does one thing that SEC does, to find out which one helps."""

import torch
from torch import Tensor, nn

from isosphere import sphere

from .constraint import Constraint, last_layer


class ShuffledPulls(Constraint):
    """A placebo: SEC's pulls, each on another embedding of the batch. They are as strong and even out nothing.

    Row i gets SEC's pull of the row half a batch away, which is of another class.

    `course` holds products of the norms' mean and standard deviation at equal parts of training, those of a run with
    SEC. The pulls get the size of that product over the batch's mean norm. So their ratio to an angular loss's gradient
    is that run's. By the batch's own spread, which they make larger, they would grow without end.
    """

    course: Tensor

    def __init__(self, eta: float, course: tuple[float, ...]) -> None:
        super().__init__()
        self.eta = eta
        self.register_buffer("course", torch.tensor(course), persistent=False)

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        lengths = sphere.norms(embeddings)
        mean = lengths.mean().detach()
        excess = (lengths.detach() - mean).roll(len(lengths) // 2)
        product = mean * excess.square().mean().sqrt()
        size = torch.where(product > 0, _at(self.course, progress) / product, 0)
        return self.eta * 2 * (size * excess * lengths).mean()

    def eta_at(self, progress: float) -> float:
        return self.eta


class ScaleCourse(Constraint):
    """Scale alone: the last layer is rescaled after each step, so that the mean norm follows a course.

    `course` holds mean norms at equal parts of training, for instance those of a run with SEC. The optimizer's moments
    are rescaled, too. An angular loss has a gradient that falls as the scale grows.
    """

    course: Tensor
    factor: Tensor

    def __init__(self, course: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("course", torch.tensor(course), persistent=False)
        self.register_buffer("factor", torch.ones(()), persistent=False)

    @torch.no_grad()
    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        self.factor.copy_(_at(self.course, progress) / sphere.norms(embeddings).mean())
        return self.factor.new_zeros(())

    @torch.no_grad()
    def after_step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        powers = {"exp_avg": -1, "momentum_buffer": -1, "exp_avg_sq": -2}
        for parameter in last_layer(model).parameters():
            parameter.mul_(self.factor)
            for name, value in optimizer.state[parameter].items():
                if name in powers:
                    value.mul_(self.factor ** powers[name])


def _at(course: Tensor, progress: Tensor | float | None) -> Tensor:
    """What a course (P,) of equal parts of training has by now, as a 0-d tensor."""
    place = torch.as_tensor(progress, device=course.device) * (len(course) - 1)
    before = place.floor().long()
    after = (before + 1).clamp(max=len(course) - 1)
    low, high = course.index_select(0, torch.stack([before, after]))  # plain indexing would wait for a GPU
    return torch.lerp(low, high, (place - before).to(low.dtype))
