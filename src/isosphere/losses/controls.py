"""Controls, not remedies: each does one thing that SEC does, to find out which one helps."""

import torch
from torch import Tensor, nn

from isosphere import sphere

from .constraint import Constraint, last_layer


class ShuffledPulls(Constraint):
    """A placebo: SEC's pulls, each on another embedding of the batch. They are as strong and even out nothing.

    Row i gets SEC's pull of the row half a batch away, which is of another class.
    """

    def __init__(self, eta: float = 0.1) -> None:
        super().__init__()
        self.eta = eta

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        lengths = sphere.norms(embeddings)
        excess = (lengths - lengths.mean()).detach().roll(len(lengths) // 2)
        return self.eta * 2 * (excess * lengths).mean()

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
        place = torch.as_tensor(progress, device=self.course.device) * (len(self.course) - 1)
        before = place.floor().long()
        after = (before + 1).clamp(max=len(self.course) - 1)
        low, high = self.course.index_select(0, torch.stack([before, after]))  # plain indexing would wait for a GPU
        wanted = torch.lerp(low, high, (place - before).to(low.dtype))
        self.factor.copy_(wanted / sphere.norms(embeddings).mean())
        return self.factor.new_zeros(())

    @torch.no_grad()
    def after_step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        powers = {"exp_avg": -1, "momentum_buffer": -1, "exp_avg_sq": -2}
        for parameter in last_layer(model).parameters():
            parameter.mul_(self.factor)
            for name, value in optimizer.state[parameter].items():
                if name in powers:
                    value.mul_(self.factor ** powers[name])
