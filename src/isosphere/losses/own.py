"""`pair_loss`: a pair loss of your own, from a function of a block of cosines."""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, overload

import torch
from torch import Tensor

from isosphere.errors import BadArgument

from .checks import check
from .slopes import over_pairs
from .transforms import transformed, wanted, with_slopes

P = ParamSpec("P")
Rows = Callable[Concatenate[Tensor, Tensor, Tensor, P], Tensor]
RowsAndSlopes = Callable[Concatenate[Tensor, Tensor, Tensor, P], tuple[Tensor, Tensor]]
Loss = Callable[Concatenate[Tensor, Tensor, P], Tensor]


@overload
def pair_loss(function: Rows[P]) -> Loss[P]: ...
@overload
def pair_loss(*, slopes: Literal[True]) -> Callable[[RowsAndSlopes[P]], Loss[P]]: ...
def pair_loss(function: Callable | None = None, *, slopes: bool = False) -> Callable:
    """Makes a loss `(embeddings, labels, ...) -> scalar` of a function `(cosines, positive, negative, ...) -> (B,)`.

    The function gets B rows of the batch at a time, each argument (B, N): cosines with all N samples, and masks. In
    `positive` are the pairs that share a label, in `negative` the others. A sample's pair with itself is in neither.
    It returns a loss for each row, which must depend on that row alone.

    The loss takes raw embeddings (N, D), and labels (N,) or multi-hot (N, C). It is the mean over all N rows, also
    those without a positive. More arguments are settings: `loss(embeddings, labels, margin=0.2)`. They are constants.

    Autograd finds the slopes, d loss / d cosines, one block at a time. With `@pair_loss(slopes=True)` the function
    returns them itself: (losses (B,), slopes (B, N)). Use masks and `torch.where` instead of boolean indexing. Then
    torch.compile makes one graph. A decorated function is pickled by its name.
    """
    return partial(_decorated, closed=slopes) if function is None else _decorated(function, closed=False)


def _decorated(function: Callable, closed: bool) -> Callable:
    if not callable(function):
        raise BadArgument("function", function, "a function of (cosines, positive, negative)")
    settings = list(inspect.signature(function).parameters.values())[3:]

    @wraps(function)
    def loss(embeddings: Tensor, labels: Tensor, *args: Any, anchors: slice | None = None, **kwargs: Any) -> Tensor:
        check(embeddings, labels, several=True)
        for value in (*args, *kwargs.values()):
            if isinstance(value, Tensor) and value.requires_grad:
                raise BadArgument("a setting of a pair loss", "a tensor that requires a gradient", "a constant")
        learning = wanted(embeddings) or transformed(embeddings, labels)

        def rows(cosines: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            def losses(cosines: Tensor) -> Tensor:
                found = function(cosines, positive, negative, *args, **kwargs)
                return _checked(found, cosines.shape[:1], cosines.requires_grad)

            if closed:
                found = function(cosines, positive, negative, *args, **kwargs)
                if not isinstance(found, tuple) or len(found) != 2:
                    raise BadArgument("the result of a pair loss", type(found), "(losses (B,), slopes (B, N))")
                value, slopes = _checked(found[0], cosines.shape[:1]), _checked(found[1], cosines.shape)
            else:
                value, slopes = with_slopes(losses, cosines) if learning else (losses(cosines), cosines)
            return value.sum(), slopes, cosines.new_full((), len(cosines))

        return over_pairs(embeddings, labels, rows, anchors=anchors)

    shown = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("embeddings", "labels")]
    loss.__signature__ = inspect.Signature([*shown, *settings])  # type: ignore[attr-defined]
    return loss


def _checked(found: Any, shape: torch.Size, learning: bool = False) -> Tensor:
    """What a function returned, if it is a tensor of this shape, and has a graph if learning."""
    if not isinstance(found, Tensor) or found.shape != shape:
        value = tuple(found.shape) if isinstance(found, Tensor) else type(found)
        raise BadArgument("the result of a pair loss", value, f"a tensor of shape {tuple(shape)}")
    if learning and not (found.requires_grad or torch.compiler.is_compiling()):
        expected = "computed from the cosines; no loss is 0 * cosines.sum(1)"
        raise BadArgument("the result of a pair loss", "a constant", expected)
    return found
