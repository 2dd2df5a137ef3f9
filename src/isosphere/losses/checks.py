"""What losses and constraints are given: settings, embeddings, labels. What cannot be is refused with a typed error.

Values of tensors are read only where nothing waits for them: on the CPU, outside of torch.compile and torch.func.
"""

import math
import sys
import warnings
from numbers import Real

import torch
from torch import Tensor

from isosphere import sphere
from isosphere.errors import BadArgument, LossOverflow, NotFinite

PASSED = ("isosphere", "torch", "lightning", "pytorch_lightning")  # packages whose lines a warning does not name


def reads_values(values: Tensor) -> bool:
    """Whether the code may look at values; elsewhere it would wait for a device, or there are none to look at."""
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(values)


def number(name: str, value: float | Tensor, least: float = -math.inf, most: float = math.inf) -> float:
    """The setting as a float, from a number or a constant tensor without dimensions; finite, and within both limits."""
    constant = isinstance(value, Tensor) and value.ndim == 0 and not value.requires_grad
    known = constant or (isinstance(value, Real) and not isinstance(value, bool))
    if not known or not math.isfinite(value) or not least <= value <= most:
        limits = f" from {least:g} to {most:g}" if math.isfinite(most) else f" of at least {least:g}"
        raise BadArgument(name, value, f"a finite number{limits if math.isfinite(least) else ''}")
    return float(value)


def check_numbers(least: float = -math.inf, most: float = math.inf, **settings: float) -> None:
    """Refuse settings that are not finite numbers within both limits, by name."""
    for name, value in settings.items():
        number(name, value, least, most)


def check_positive(**settings: float) -> None:
    """Refuse settings that are not finite numbers above 0, by name."""
    for name, value in settings.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < math.inf:
            raise BadArgument(name, value, "a finite number above 0")


def check_embeddings(embeddings: Tensor) -> None:
    """Refuse anything but a tensor (N, D) of floats."""
    if not isinstance(embeddings, Tensor):
        raise BadArgument("embeddings", type(embeddings), "a torch tensor")
    if embeddings.ndim != 2:
        raise BadArgument("embeddings", tuple(embeddings.shape), "of shape (N, D)")
    if not embeddings.is_floating_point():
        raise BadArgument("embeddings", embeddings.dtype, "of floating point")


def check_dim(embeddings: Tensor, weights: Tensor) -> None:
    """Refuse embeddings (N, D) for weights (C, D) of another D."""
    if embeddings.shape[-1] != weights.shape[1]:
        raise BadArgument("embeddings", tuple(embeddings.shape), f"of shape (N, {weights.shape[1]}), as class weights")


def check(embeddings: Tensor, labels: Tensor, weights: Tensor | None = None, several: bool = False) -> None:
    """Refuse anything but embeddings (N, D) of floats and labels (N,) of integers; for heads with weights (C, D).

    `several` lets in multi-hot labels (N, C), too: bools, or integers 0 and 1.
    """
    check_embeddings(embeddings)
    if not isinstance(labels, Tensor):
        raise BadArgument("labels", type(labels), "a torch tensor")
    # A single column is no multi-hot label, but rather class numbers (N, 1).
    multi_hot, rows = several and labels.ndim == 2 and labels.shape[1] != 1, len(embeddings)
    if labels.shape[: 1 if multi_hot else None] != embeddings.shape[:1]:
        expected = f"of shape ({rows},), one for each embedding" + f", or multi-hot ({rows}, C)" * several
        raise BadArgument("labels", tuple(labels.shape), expected)
    if labels.is_floating_point() or labels.is_complex() or (labels.dtype == torch.bool and not multi_hot):
        raise BadArgument("labels", labels.dtype, "integers, say labels.long()")
    if labels.device != embeddings.device:
        raise BadArgument("labels", labels.device, f"on the device of the embeddings, {embeddings.device}")
    if multi_hot and labels.dtype != torch.bool and reads_values(labels) and labels.numel():
        low, high = labels.aminmax()
        if low < 0 or high > 1:
            raise BadArgument("labels", int(low if low < 0 else high), "0 or 1 where they are multi-hot (N, C)")
    if weights is None:
        return
    check_dim(embeddings, weights)
    if reads_values(labels) and len(labels):
        low, high = labels.aminmax()
        if low < 0 or high >= len(weights):
            raise BadArgument("labels", int(low if low < 0 else high), f"from 0 to {len(weights) - 1}")


def check_anchors(anchors: slice | None) -> None:
    """Refuse anything but a slice of rows that follow each other."""
    if anchors is not None and (not isinstance(anchors, slice) or anchors.step not in (None, 1)):
        raise BadArgument("anchors", anchors, "a slice of rows such as slice(0, 64), or None for all")


def check_finite(**sources: Tensor) -> None:
    """Raise NotFinite for the first row (N, D) that is not finite, by name; only where values may be read."""
    for name, source in sources.items():
        broken = ~torch.isfinite(source).all(-1)
        if broken.any():
            raise NotFinite(name, int(broken.int().argmax()), len(source))


def check_loss(value: Tensor, **sources: Tensor) -> None:
    """Refuse a loss that is not finite, where it may be read, and name the row of a source that made it so."""
    if not reads_values(value):
        return
    if not torch.isfinite(value):
        check_finite(**sources)
        raise LossOverflow(value.item())
    if "embeddings" in sources and reads_values(sources["embeddings"]):
        _warn_of_zeros(sources["embeddings"].detach())


def _warn_of_zeros(embeddings: Tensor) -> None:
    """Say it where embeddings are not zero, but so small that their norms are."""
    small = embeddings[sphere.norms(embeddings) == 0]
    if len(small) and (lost := int((small != 0).any(-1).sum())):
        warn(
            f"{lost} of {len(embeddings)} embeddings are so small that their norms are 0: they count as zero vectors, "
            "without a direction or a gradient; make the last layer's weights larger"
        )


def warn(message: str) -> None:
    """A warning at the line that called us, outside of isosphere, torch and Lightning; Python shows it there once."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in PASSED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
