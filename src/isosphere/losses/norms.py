"""The norm constraint: one penalty whose radius makes it SEC, SEC-EMA, a fixed radius or L2-reg.

penalty = mean((|f| - radius)^2). The radius is one of these:

- the batch's mean norm: SEC (section 3.3),
- its running mean: SEC-EMA (Eq. 31),
- the first batch's mean, or a constant (App. C.1),
- 0: L2-reg (Eq. 30).
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument, Unsupported

from .checks import check_embeddings, check_loss, number, reads_values, warn
from .constraint import Constraint
from .transforms import transformed

RADII = ("batch", "ema", "initial", "learned")


def norm_penalty(embeddings: Tensor, radius: Tensor | float | None = None, relative: bool = False) -> Tensor:
    """mean((|f| - radius)^2), or mean((|f| / radius - 1)^2) if relative, (N, D) -> scalar.

    A radius of None is the batch's mean norm, detached. No embedding, or a relative batch of zero vectors, gives zero.
    A penalty that is not finite raises on CPU, as the losses do. On a GPU it becomes NaN or infinite.
    """
    check_embeddings(embeddings)
    if relative and isinstance(radius, (int, float)) and radius <= 0:
        raise BadArgument("radius", radius, "above 0, as a relative penalty divides by it")
    lengths = sphere.norms(embeddings)
    if not lengths.numel():
        return lengths.sum()
    if radius is None:
        radius = lengths.detach().mean()
    given = radius
    if relative and isinstance(radius, Tensor):  # 0 / 0 counts as 1; any other division by zero, and NaN, must show
        nothing = (lengths == 0) & (radius == 0)
        lengths, radius = torch.where(nothing, 1.0, lengths), torch.where(nothing, 1.0, radius)
    value = (lengths / radius - 1 if relative else lengths - radius).square().mean()
    divided_by_zero = relative and isinstance(given, Tensor) and reads_values(given) and not given.all()
    if not divided_by_zero:  # which is not the embeddings' fault, and shows
        check_loss(value, embeddings=embeddings)
    return value


def ramp(progress: Tensor | float, begin: float = 0.0, end: float = 0.0) -> Tensor | float:
    """0 before `begin`, 1 from `end` on, linear between, in fractions of training (Eq. 29, 32, App. B.2).

    (0, 0) is 1 everywhere.
    """
    if end == begin:
        return (progress >= begin) * 1.0
    rise = (progress - begin) / (end - begin)
    return rise.clamp(0, 1) if isinstance(rise, Tensor) else min(max(rise, 0.0), 1.0)


def risen(progress: Tensor | float | None, over: tuple[float, float] | None) -> Tensor | float:
    """The share of eta that counts by now: what a constraint's ramp gives, or 1 without one."""
    if over is None:
        return 1.0
    if progress is None:
        raise BadArgument("progress", progress, "step / steps, as this constraint has a ramp")
    return ramp(progress, *over)


class SEC(Constraint):
    """The spherical embedding constraint, already weighted: `loss = criterion(f, y) + sec(f)` (Eq. 17, 18).

    - `eta`: weight of the penalty.
    - `radius`: what norms are pulled to, see below.
    - `rho`: weight of the newest batch in the running mean.
    - `relative`: penalize |f| / radius - 1, so that eta does not depend on the scale of the embeddings.
    - `ramp`: (begin, end), fractions of training between which eta rises from 0. Then call `sec(f, progress=t / T)`.
    - `sync`: take the mean norm over all ranks where torch.distributed is initialized (one small all-reduce).

    `radius` is one of these:

    - "batch": the batch's mean norm.
    - "ema": its running mean (Eq. 31), kept in `running_radius`.
    - "initial": the first batch's mean, or what `set_radius` gave, kept in `running_radius`.
    - "learned": a parameter, `learned_radius`, that begins at the first mean and is trained (Ring loss).
    - a number: that constant. 0.0 is L2-reg (Eq. 30).

    Save and load what is kept with `sec.state_dict()`. For "learned" give `sec.parameters()` to the optimizer, and wrap
    SEC in DDP, too.

    DDP averages the penalties of the ranks. With `sync` SEC is exact there, also if ranks have batches of other sizes:
    a penalty is weighted by its rank's rows. It acts only in training with gradients on, so one rank may evaluate
    alone. Switch it off if embeddings are already gathered.

    With gradient accumulation the radius is each micro-batch's own, and "ema" moves at each call. To be exact give the
    whole batch's mean norm, a number: `eta * functional.norm_penalty(f, mean_norm)`. Inside `torch.utils.checkpoint`
    use_reentrant=False is supported. With True the running mean is never updated.
    """

    running_radius: Tensor
    learned_radius: nn.Parameter

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
        if (isinstance(radius, str) and radius not in RADII) or (isinstance(radius, Tensor) and radius.requires_grad):
            raise BadArgument("radius", radius, f"one of {', '.join(RADII)}, or a constant")
        radius = radius if isinstance(radius, str) else number("radius", radius, 0)
        eta, rho = number("eta", eta, 0), number("rho", rho, 0, 1)
        if relative and radius == 0:
            raise BadArgument("radius", radius, "above 0, as relative=True divides by it")
        pair = isinstance(ramp, (tuple, list)) and len(ramp) == 2
        if ramp is not None and not (pair and 0 <= ramp[0] <= ramp[1] <= 1):
            raise BadArgument("ramp", ramp, "(begin, end) with 0 <= begin <= end <= 1")
        self.eta, self.radius, self.rho, self.relative = eta, radius, rho, relative
        self.ramp, self.sync = ramp, sync
        self.warned = False
        if radius in ("ema", "initial"):
            # NaN until the first batch: one buffer is both the value and whether there is one.
            self.register_buffer("running_radius", torch.tensor(float("nan")))
        if radius == "learned":
            self.learned_radius = nn.Parameter(torch.tensor(float("nan")))

    def forward(self, embeddings: Tensor, *, progress: Tensor | float | None = None) -> Tensor:
        check_embeddings(embeddings)
        share = risen(progress, self.ramp)
        if not torch.compiler.is_compiling() and not self.warned:
            self._warn_if_normalized(embeddings)
        learning = self.training and torch.is_grad_enabled()
        with torch.no_grad():
            mean, weight = self._mean_norm(embeddings, learning)
        penalty = norm_penalty(embeddings, self._radius(embeddings, mean, learning), self.relative)
        return self.eta * share * weight * penalty

    def eta_at(self, progress: float) -> float:
        return self.eta * float(risen(progress, self.ramp))

    @torch.no_grad()
    def set_radius(self, value: float | Tensor) -> None:
        """Start the radius from `value`, for instance the mean norm over the training set (App. C.1).

        It must be finite and above 0. A tensor on a GPU is not read, so nothing waits for it.
        """
        if self.radius not in RADII[1:]:
            raise BadArgument("radius", self.radius, f"one of {', '.join(RADII[1:])} to be set")
        if not isinstance(value, Tensor) or reads_values(value):
            value = number("value", value, torch.finfo(torch.float32).tiny)
        (self.learned_radius if self.radius == "learned" else self.running_radius).fill_(value)

    def extra_repr(self) -> str:
        words = ("eta", "radius", "rho", "relative", "ramp", "sync")
        return ", ".join(f"{word}={getattr(self, word)!r}" for word in words)

    def _radius(self, embeddings: Tensor, mean: Tensor, learning: bool) -> Tensor | float:
        if isinstance(self.radius, float):
            return self.radius
        if self.radius == "batch":
            return mean
        with torch.no_grad():
            radius = self._kept_radius(embeddings, mean, learning and not _in_backward())
        if self.radius == "learned":
            learned = self.learned_radius * 1  # a copy, as the parameter may change before the backward pass
            radius = torch.where(learned.isnan(), radius, learned.to(radius.dtype))
        return radius

    def _kept_radius(self, embeddings: Tensor, mean: Tensor, updating: bool) -> Tensor:
        """The radius that is kept, moved by this batch if it is `updating`."""
        kept = self.learned_radius if self.radius == "learned" else self.running_radius
        if updating and transformed(embeddings):
            raise Unsupported(f"SEC(radius={self.radius!r})", "torch.func while training", "call sec.eval() first")
        running = kept.to(mean.dtype)
        rho = self.rho if self.radius == "ema" else 0.0
        first = torch.where(mean > 0, mean, running)  # a batch of zeros is no beginning
        updated = torch.where(running.isnan(), first, torch.lerp(running, mean, rho))
        updated = torch.where(mean.isfinite(), updated, running)
        if updating:
            kept.copy_(updated)
            running = updated
        return torch.where(running.isnan(), mean, running)

    def _mean_norm(self, embeddings: Tensor, over_ranks: bool) -> tuple[Tensor, Tensor | float]:
        """The mean norm, and what makes DDP's mean of the ranks' penalties that of all rows: 1 where all have as many.
        """
        lengths = sphere.norms(embeddings.detach())  # which forward-mode autograd wants, too
        over_ranks = over_ranks and self.sync and dist.is_available() and dist.is_initialized()
        if not over_ranks or dist.get_world_size() == 1:
            return lengths.mean(), 1.0
        if transformed(embeddings):
            raise Unsupported("SEC over several ranks", "torch.func while training", "use SEC(sync=False)")
        total = torch.stack([lengths.sum(), lengths.new_full((), len(lengths))])
        dist.all_reduce(total)
        return total[0] / total[1], len(lengths) * dist.get_world_size() / total[1]

    @torch.no_grad()
    def _warn_if_normalized(self, embeddings: Tensor) -> None:
        # Looked at once, in the first eager call: it reads one value from the device.
        capturing = embeddings.is_cuda and torch.cuda.is_current_stream_capturing()
        if capturing or transformed(embeddings) or not len(embeddings):
            return
        self.warned = True
        lengths = sphere.norms(embeddings)
        mean, spread = torch.stack([lengths.mean(), lengths.std(correction=0) / lengths.mean()]).tolist()
        if sphere.is_normalized(mean, spread):
            warn(
                "all embeddings have norm 1: the model normalizes its output, so SEC can do nothing; "
                "pass it the raw embeddings"
            )

    def _apply(self, fn, recurse: bool = True):
        # A radius is never kept in half precision: an update of rho = 0.01 is lost in bfloat16's rounding.
        names = [name for name in ("running_radius", "learned_radius") if hasattr(self, name)]
        before = [getattr(self, name).data for name in names]
        super()._apply(fn, recurse)
        for name, value in zip(names, before, strict=True):
            radius = getattr(self, name)
            if radius.dtype in (torch.float16, torch.bfloat16):
                radius.data = value.to(radius.device)
        return self


def l2_reg(eta: float = 1e-3, ramp: tuple[float, float] | None = None) -> SEC:
    """L2-reg, already weighted: eta * mean(|f|^2) (Eq. 30)."""
    return SEC(eta, 0.0, ramp=ramp)


def _in_backward() -> bool:
    """Whether this forward pass is a recomputation inside a backward one (checkpointing): the mean moved already."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
