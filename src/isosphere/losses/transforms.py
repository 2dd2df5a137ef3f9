"""Values with gradients that are known, and what torch.func and second derivatives make of them.

A loss computes its gradients itself, with its value and without autograd. `scalar` joins both to a tensor that
backpropagates. Under `torch.func.grad`, `vjp`, `jacrev`, `jvp`, `jacfwd`, `vmap` and forward-mode autograd the same
computation runs once for each sample on plain tensors. Second derivatives are refused with `Unsupported`.
"""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from isosphere.errors import Unsupported

from .checks import check_loss

Computed = tuple[Tensor, Tensor, tuple[Tensor, ...]]  # the sum of a loss, its divisor, gradients of the sum


def transformed(*tensors: Tensor) -> bool:
    """Whether a transform of torch.func or forward-mode autograd is at work on any of these."""
    if torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(wrapped(one) or forward_ad.unpack_dual(one).tangent is not None for one in tensors)


def wanted(*inputs: Tensor) -> bool:
    """Whether a backward pass may ask for the gradients by these."""
    return torch.is_grad_enabled() and any(values.requires_grad for values in inputs)


def with_slopes(function: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
    """function(inputs), and the slopes of its sum by inputs from autograd; called where autograd is off."""

    def summed(inputs: Tensor) -> tuple[Tensor, Tensor]:
        values = function(inputs)
        return values.sum(), values

    if torch.compiler.is_compiling():
        slopes, values = torch.func.grad(summed, has_aux=True)(inputs)
        return values, slopes
    with torch.enable_grad():  # quicker than torch.func, which a compiler needs
        leaf = inputs.detach().requires_grad_()
        total, values = summed(leaf)
        return values.detach(), torch.autograd.grad(total, leaf)[0]


def scalar(
    compute: Callable[..., Computed], inputs: tuple[Tensor, ...], others: tuple[Tensor, ...] = (), **sources: Tensor
) -> Tensor:
    """A loss that backpropagates to `inputs`, from `compute(gradients wanted or not, *inputs, *others)`.

    `sources` are looked through by name if the loss is not finite.
    """
    if transformed(*inputs, *others):
        total, divisor, *_ = _Transformed.apply(compute, len(inputs), tuple(sources), *inputs, *others)
        return total / divisor
    gradients = wanted(*inputs)
    with torch.no_grad():
        total, divisor, gradients = compute(gradients, *inputs, *others)
    check_loss(total, **sources)
    return attached(total, inputs, gradients) / divisor


def untransformed(loss: Callable[..., Tensor], inputs: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> Tensor:
    """`loss(*inputs, *others)` under a transform: run on plain tensors, with its gradients by inputs from autograd."""

    def compute(gradients: bool, *tensors: Tensor) -> Computed:
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in tensors[: len(inputs)]]
            value = loss(*leaves, *tensors[len(inputs) :])
        return value.detach(), torch.ones_like(value), torch.autograd.grad(value, leaves)

    return scalar(compute, inputs, others)


def attached(value: Tensor, inputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> Tensor:
    """The scalar value with its gradients by inputs."""
    return _Attached.apply(value, *inputs, *gradients) if wanted(*inputs) else value


def once(gradients: list[Tensor | None], outer: Tensor, inputs: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients by inputs whose own derivatives by these are refused; called in a backward pass."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() or transformed(outer, *inputs)):
        return gradients
    return [None if gradient is None else _Once.apply(gradient, *inputs) for gradient in gradients]


class _Once(torch.autograd.Function):
    """The first argument; who differentiates it by the others is refused, as it would be a second derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, *inputs: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        if any(ctx.needs_input_grad[1:]):
            raise _no_second()
        return outer, *(None for _ in ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx, tangent: Tensor, *tangents: Tensor | None) -> Tensor:
        if any(one is not None for one in tangents):
            raise _no_second()
        return tangent.clone()


def _no_second() -> Unsupported:
    return Unsupported("a loss", "second derivatives", "leave out create_graph, hessian or nested transforms")


class _Attached(torch.autograd.Function):
    """A scalar whose gradients by some tensors are already known: forward(value, *inputs, *gradients)."""

    @staticmethod
    def forward(ctx, value: Tensor, *inputs_and_gradients: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs_and_gradients)
        return value.clone()

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.saved_tensors) // 2
        inputs, gradients = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        return None, *once([outer * gradient for gradient in gradients], outer, inputs), *(None for _ in gradients)


class _Transformed(torch.autograd.Function):
    """The same for transforms, which need the computation inside: sum, divisor and gradients."""

    @staticmethod
    def forward(
        compute: Callable[..., Computed], count: int, names: tuple[str, ...], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        total, divisor, gradients = compute(True, *tensors)
        check_loss(total, **dict(zip(names, tensors, strict=False)))
        return total, divisor, *gradients

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        _, ctx.count, _, *tensors = inputs
        _, *constants = output
        ctx.others = len(tensors) - ctx.count
        ctx.mark_non_differentiable(*constants)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors[: ctx.count], *constants[1:])
        ctx.save_for_forward(*tensors[: ctx.count], *constants[1:])

    @staticmethod
    def backward(ctx, outer: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        inputs, gradients = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        found = [None if outer is None else outer * gradient for gradient in gradients]
        return None, None, None, *once(found, gradients[0] if outer is None else outer, inputs), *[None] * ctx.others

    @staticmethod
    def jvp(ctx, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs, gradients = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        moved = zip(gradients, tangents[3:], strict=False)
        total = sum((gradient * tangent).sum() for gradient, tangent in moved if tangent is not None)
        return once([total], total, inputs)[0], None, *(None for _ in gradients)

    @staticmethod
    def vmap(info, in_dims: tuple, compute: Callable[..., Computed], count: int, names: tuple[str, ...], *tensors):
        samples = []
        for index in range(info.batch_size):
            chosen = zip(tensors, in_dims[3:], strict=True)
            sample = [values if dim is None else values.select(dim, index) for values, dim in chosen]
            samples.append(_Transformed.apply(compute, count, names, *sample))
        return tuple(torch.stack(parts) for parts in zip(*samples, strict=True)), (0,) * (count + 2)
