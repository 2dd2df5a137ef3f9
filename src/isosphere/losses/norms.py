"""The norm constraint: one penalty whose radius makes it SEC, SEC-EMA, a fixed radius or L2-reg, and its rival.

penalty = mean((|f| - radius)^2), where radius is the batch's mean norm (SEC, section 3.3), its running mean
(SEC-EMA, Eq. 31), the first batch's mean or any constant (App. C.1), or 0 (L2-reg, Eq. 30).
"""

import math
from numbers import Real

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isosphere import sphere

from .slopes import check_embeddings, check_finite, reads_values, warn

RADII = ("batch", "ema", "initial")


def norm_penalty(embeddings: Tensor, radius: Tensor | float | None = None, relative: bool = False) -> Tensor:
    """mean((|f| - radius)^2), or mean((|f| / radius - 1)^2) if relative, (N, D) -> scalar.

    A radius of None is the batch's mean norm, detached. No embedding, or a relative batch of zero vectors, gives zero.
    An embedding that is not finite raises on CPU, as in the losses; elsewhere it makes the penalty NaN or infinite.
    """
    check_embeddings(embeddings)
    if relative and isinstance(radius, (int, float)) and radius <= 0:
        raise ValueError(f"relative norm penalty divides by the radius, so it must be positive, not {radius}")
    lengths = sphere.norms(embeddings)
    if not lengths.numel():
        return lengths.sum()
    if radius is None:
        radius = lengths.detach().mean()
    if relative and isinstance(radius, Tensor):  # 0 / 0 counts as 1; any other division by zero, and NaN, must show
        nothing = (lengths == 0) & (radius == 0)
        lengths, radius = torch.where(nothing, 1.0, lengths), torch.where(nothing, 1.0, radius)
    value = (lengths / radius - 1 if relative else lengths - radius).square().mean()
    if reads_values(value) and not torch.isfinite(value):
        check_finite(embeddings=embeddings)
    return value


def ramp(progress: Tensor | float, begin: float = 0.0, end: float = 0.0) -> Tensor | float:
    """0 before `begin`, 1 from `end` on, linear between, in fractions of training (Eq. 29, 32, App. B.2).

    (0, 0) is 1 everywhere.
    """
    if end == begin:
        return (progress >= begin) * 1.0
    rise = (progress - begin) / (end - begin)
    return rise.clamp(0, 1) if isinstance(rise, Tensor) else min(max(rise, 0.0), 1.0)


class _BalancedDirections(torch.autograd.Function):
    @staticmethod
    def forward(ctx, embeddings: Tensor) -> Tensor:
        unit = sphere.directions(embeddings)
        ctx.save_for_backward(unit, sphere.norms(embeddings).mean())
        ctx.dtype = embeddings.dtype
        return unit

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:
        unit, mean_norm = ctx.saved_tensors
        tangential = gradient - (gradient * unit).sum(-1, keepdim=True) * unit
        # A zero vector has no direction to turn, a batch of zeros no mean to divide by: both get gradient zero.
        turnable = (unit != 0).any(-1, keepdim=True)
        return torch.where(turnable, tangential / torch.where(mean_norm > 0, mean_norm, 1), 0).to(ctx.dtype)


def balanced_directions(embeddings: Tensor) -> Tensor:
    """The directions f / |f|, (N, D) -> (N, D), whose backward pass divides by the mean norm instead of each own norm.

    The other way to equal direction updates: nothing pulls at the norms, they no longer scale the gradient of Eq. 4.
    """
    return _BalancedDirections.apply(embeddings)


class Constraint(nn.Module):
    """What a training loop asks of a constraint. By itself it does nothing; a subclass overrides what it needs.

    A constraint may act on the first weights (`start`), on the gradient of the embeddings (`inputs`), on the
    embeddings (`forward`, a penalty), or on the model after a step (`after_step`).
    """

    sync = True

    def start(self, model: nn.Module) -> None:
        """Change the first weights; called once, before training."""

    def inputs(self, embeddings: Tensor) -> Tensor:
        """What the criterion gets in place of the embeddings (N, D)."""
        return embeddings

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        """The penalty, already weighted, (N, D) -> scalar."""
        return sphere.raised(embeddings.detach()).new_zeros(())

    def after_step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Change the model, and what the optimizer holds of it, after the optimizer's step."""

    def eta_at(self, progress: float) -> float:
        """The penalty's weight when this fraction of training lies behind."""
        return 0.0


class BalancedDirections(Constraint):
    """`balanced_directions` as a constraint: the criterion's gradient is divided by the mean norm."""

    def inputs(self, embeddings: Tensor) -> Tensor:
        return balanced_directions(embeddings)


class SEC(Constraint):
    """The spherical embedding constraint, already weighted: `loss = criterion(f, y) + sec(f)` (Eq. 17, 18).

    eta       weight of the penalty.
    radius    "batch": mean norm of the batch; "ema": its running mean (Eq. 31); "initial": the first batch's mean, or
              what `set_radius` gave; a number: that constant, 0.0 being L2-reg (Eq. 30).
    rho       weight of the newest batch in the running mean.
    relative  penalize |f| / radius - 1, so that eta does not depend on the scale of the embeddings.
    ramp      (begin, end) in fractions of training between which eta rises from 0; then call `sec(f, progress=t / T)`.
    sync      where torch.distributed is initialized, take the mean norm over all ranks (one small all-reduce), which
              makes SEC exact under DDP if all ranks have batches of one size, as DDP averages their penalties; only
              while training with gradients on, so that one rank may evaluate alone. Switch off where embeddings are
              already gathered.

    "ema" and "initial" keep `running_radius`, which belongs in a checkpoint: save and load `sec.state_dict()`.
    With gradient accumulation the radius is each micro-batch's own, and "ema" moves at each call; to be exact give the
    whole batch's mean norm, a number: `eta * functional.norm_penalty(f, mean_norm)`.

    Inside `torch.utils.checkpoint` use_reentrant=False is supported; with True the running mean is never updated.
    """

    def __init__(
        self,
        eta: float = 1.0,
        radius: str | float | Tensor = "batch",
        rho: float = 0.01,
        relative: bool = False,
        ramp: tuple[float, float] | None = None,
        sync: bool = True,
    ):
        super().__init__()
        if isinstance(radius, str) and radius not in RADII:
            raise ValueError(f"radius is one of {', '.join(RADII)} or a number, not {radius!r}")
        radius = radius if isinstance(radius, str) else _number("radius", radius)
        eta, rho = _number("eta", eta), _number("rho", rho)
        if relative and radius == 0:
            raise ValueError("relative=True divides by the radius, so it cannot go with radius=0.0 (L2-reg)")
        if rho > 1:
            raise ValueError(f"rho must lie in [0, 1], not {rho}")
        pair = isinstance(ramp, (tuple, list)) and len(ramp) == 2
        if ramp is not None and not (pair and 0 <= ramp[0] <= ramp[1] <= 1):
            raise ValueError(f"ramp must be (begin, end) with 0 <= begin <= end <= 1, not {ramp!r}")
        self.eta, self.radius, self.rho, self.relative = eta, radius, rho, relative
        self.ramp, self.sync = ramp, sync
        self.warned = False
        if radius in ("ema", "initial"):
            # NaN until the first batch: one buffer is both the value and whether there is one.
            self.register_buffer("running_radius", torch.tensor(float("nan")))

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        check_embeddings(embeddings)
        if self.ramp is not None and progress is None:
            raise ValueError("this SEC has a ramp: call sec(embeddings, progress=step / steps)")
        if not torch.compiler.is_compiling() and not self.warned:
            self._warn_if_normalized(embeddings)
        learning = self.training and torch.is_grad_enabled()
        penalty = norm_penalty(embeddings, self._radius(embeddings, learning), self.relative)
        return self.eta * (1.0 if self.ramp is None else ramp(progress, *self.ramp)) * penalty

    def eta_at(self, progress: float) -> float:
        return self.eta * (1.0 if self.ramp is None else float(ramp(progress, *self.ramp)))

    @torch.no_grad()
    def set_radius(self, value: float | Tensor) -> None:
        """Start the running radius from `value`, for instance the mean norm over the training set (App. C.1).

        It must be finite and above 0; a tensor on a GPU is taken unread, so that nothing waits for it.
        """
        if self.radius not in ("ema", "initial"):
            raise ValueError(f"radius={self.radius!r} keeps no running radius to set")
        if not isinstance(value, Tensor) or reads_values(value):
            value = _number("radius", value, zero=False)
        self.running_radius.fill_(value)

    def extra_repr(self) -> str:
        words = ("eta", "radius", "rho", "relative", "ramp", "sync")
        return ", ".join(f"{word}={getattr(self, word)!r}" for word in words)

    @torch.no_grad()
    def _radius(self, embeddings: Tensor, learning: bool) -> Tensor | float:
        if isinstance(self.radius, float):
            return self.radius
        if self.radius == "batch":
            return self._mean_norm(embeddings, learning)
        updating = learning and not _in_backward()
        mean = self._mean_norm(embeddings, updating)
        running = self.running_radius.to(mean.dtype)
        rho = self.rho if self.radius == "ema" else 0.0
        first = torch.where(mean > 0, mean, running)  # a batch of zeros is no beginning
        updated = torch.where(running.isnan(), first, torch.lerp(running, mean, rho))
        updated = torch.where(mean.isfinite(), updated, running)
        if updating:
            self.running_radius.copy_(updated)
            running = updated
        return torch.where(running.isnan(), mean, running)

    def _mean_norm(self, embeddings: Tensor, over_ranks: bool) -> Tensor:
        lengths = sphere.norms(embeddings)
        over_ranks = over_ranks and self.sync and dist.is_available() and dist.is_initialized()
        if not over_ranks or dist.get_world_size() == 1:
            return lengths.mean()
        total = torch.stack([lengths.sum(), lengths.new_full((), len(lengths))])
        dist.all_reduce(total)
        return total[0] / total[1]

    @torch.no_grad()
    def _warn_if_normalized(self, embeddings: Tensor) -> None:
        # Looked at once, in the first eager call: it reads one value from the device.
        if embeddings.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        self.warned = True
        tolerance = 1e-5 if embeddings.dtype in (torch.float32, torch.float64) else 1e-2
        if len(embeddings) and bool(((sphere.norms(embeddings) - 1).abs() < tolerance).all()):
            warn(
                "all embeddings have norm 1: the model normalizes its output, so SEC can do nothing; "
                "pass it the raw embeddings"
            )

    def _apply(self, fn, recurse: bool = True):
        # The running radius is never kept in half precision: an update of rho = 0.01 is lost in bfloat16's rounding.
        before = getattr(self, "running_radius", None)
        super()._apply(fn, recurse)
        if before is not None and self.running_radius.dtype in (torch.float16, torch.bfloat16):
            self.running_radius = before.to(self.running_radius.device)
        return self


def l2_reg(eta: float = 1e-3, ramp: tuple[float, float] | None = None) -> SEC:
    """L2-reg, already weighted: eta * mean(|f|^2) (Eq. 30)."""
    return SEC(eta, 0.0, ramp=ramp)


def _number(name: str, value: float | Tensor, zero: bool = True) -> float:
    """The setting as a float, from a number or a tensor without dimensions; finite and at least 0, or above it."""
    number = isinstance(value, Real) or (isinstance(value, Tensor) and value.ndim == 0)
    if not number or isinstance(value, bool) or not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise ValueError(f"{name} must be a finite number {'of at least' if zero else 'above'} 0, not {value!r}")
    return float(value)


def _in_backward() -> bool:
    """Whether this forward pass is a recomputation inside a backward one (checkpointing): the mean moved already."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
