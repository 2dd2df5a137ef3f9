"""Frozen batch norm against torch's own in evaluation mode."""

import copy

import pytest
import torch
from torch import nn

from isosphere.errors import BadArgument
from isosphere.models.frozen import FrozenBatchNorm, freeze_batch_norm
from raised import raised


def lively(network: nn.Module) -> nn.Module:
    """The network with batch-norm statistics and parameters that matter."""
    torch.manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for tensor in (module.running_mean, module.bias.data):
                tensor.normal_()
            for tensor in (module.running_var, module.weight.data):
                tensor.uniform_(0.5, 2.0)
    return network


def plain() -> nn.Module:
    middle = nn.Sequential(nn.BatchNorm2d(8, 1e-3), nn.ReLU())
    return lively(nn.Sequential(nn.Conv2d(3, 8, 3), middle, nn.Conv2d(8, 4, 1)))


def test_equals_evaluation_mode_in_value_and_gradient_even_after_train() -> None:
    reference, images = plain().eval(), torch.randn(4, 3, 6, 5)
    frozen = freeze_batch_norm(copy.deepcopy(reference)).train()
    before = copy.deepcopy(frozen.state_dict())
    for network in (reference, frozen):
        network(images).square().sum().backward()
    torch.testing.assert_close(frozen(images), reference(images))
    torch.testing.assert_close(frozen[0].weight.grad, reference[0].weight.grad)
    assert all(torch.equal(value, before[key]) for key, value in frozen.state_dict().items())  # nothing was updated
    assert [name for name, _ in frozen.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_state_dicts_are_interchangeable_with_and_without_counters() -> None:
    reference = plain()
    frozen = freeze_batch_norm(copy.deepcopy(reference))
    assert list(frozen.state_dict()) != [] and set(frozen.state_dict()) == set(reference.state_dict())
    other = lively(plain())
    other[1][0].running_mean.add_(1)
    state = {key: value for key, value in other.state_dict().items() if "num_batches" not in key}
    frozen.load_state_dict(state, strict=True)
    images = torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(frozen(images), other.eval()(images))
    other.load_state_dict(frozen.state_dict(), strict=True)


def test_half_precision_in_gives_half_precision_out_computed_in_float32() -> None:
    norm = lively(nn.BatchNorm2d(16)).eval()
    inputs = torch.randn(2, 16, 4, 4).bfloat16()
    outputs = freeze_batch_norm(copy.deepcopy(norm))(inputs)
    assert outputs.dtype == torch.bfloat16
    assert torch.equal(outputs, norm(inputs.float()).bfloat16())


@pytest.mark.parametrize("norm, shape", [(nn.BatchNorm1d(6), (5, 6)), (nn.BatchNorm3d(6), (2, 6, 2, 3, 4))])
def test_other_dimensions(norm: nn.Module, shape: tuple[int, ...]) -> None:
    reference, inputs = lively(norm).eval(), torch.randn(shape)
    torch.testing.assert_close(freeze_batch_norm(copy.deepcopy(reference))(inputs), reference(inputs))


def test_timm_batch_norm_keeps_its_activation() -> None:
    from timm.layers import BatchNormAct2d

    reference = lively(nn.Sequential(BatchNormAct2d(8, act_layer=nn.SiLU))).eval()
    frozen, inputs = freeze_batch_norm(copy.deepcopy(reference)).train(), torch.randn(2, 8, 3, 3)
    assert isinstance(frozen[0], FrozenBatchNorm)
    torch.testing.assert_close(frozen(inputs), reference(inputs))


def test_compiles_to_one_graph() -> None:
    frozen, images = freeze_batch_norm(plain()), torch.randn(2, 3, 6, 6)
    compiled = torch.compile(frozen, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), frozen(images))


def test_what_cannot_be_frozen_is_named() -> None:
    class Odd(nn.BatchNorm2d):
        pass

    with raised(BadArgument, name="module", value="Odd"):
        freeze_batch_norm(nn.Sequential(Odd(3)))
    without = nn.BatchNorm2d(3, track_running_stats=False)
    with raised(BadArgument, name="module", value=without):
        freeze_batch_norm(without)
