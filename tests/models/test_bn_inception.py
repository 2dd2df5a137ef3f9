"""BN-Inception's names, shapes, parameter count and wiring."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from isosphere.models.bn_inception import BNInception


@pytest.fixture(scope="module")
def network() -> BNInception:
    torch.manual_seed(0)
    return BNInception(classes=1000).eval()


def test_parameter_count_and_names_of_the_checkpoint(network: BNInception) -> None:
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_295_240
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    # A few of the checkpoint's own keys from its beginning, its irregular blocks and its end.
    expected = {
        "conv1_7x7_s2.weight": (64, 3, 7, 7),
        "conv1_7x7_s2_bn.running_var": (64,),
        "conv2_3x3_reduce.bias": (64,),
        "inception_3a_1x1.weight": (64, 192, 1, 1),
        "inception_3c_double_3x3_2.weight": (96, 96, 3, 3),
        "inception_4a_pool_proj_bn.weight": (128,),
        "inception_4d_double_3x3_1.weight": (192, 160, 3, 3),
        "inception_4e_3x3.weight": (192, 128, 3, 3),
        "inception_5a_1x1.weight": (352, 1056, 1, 1),
        "inception_5b_double_3x3_reduce.weight": (192, 1024, 1, 1),
        "last_linear.weight": (1000, 1024),
    }
    assert {name: shapes[name] for name in expected} == expected
    assert not any(name.startswith(("inception_3c_1x1", "inception_4e_pool")) for name in shapes)
    assert len([name for name in shapes if name.endswith("_bn.weight")]) == 69


def test_shapes_of_every_block(network: BNInception) -> None:
    """224 px: 56 and 28 after the stem's pools, 28 in stage 3, 14 in stage 4, 7 in stage 5."""
    seen, block = {}, network.block
    network.block = lambda name, inputs: seen.setdefault(name, block(name, inputs))
    try:
        with torch.no_grad():
            assert network(torch.randn(1, 3, 224, 224)).shape == (1, 1024)
            assert network.logits(torch.randn(1, 3, 64, 64)).shape == (1, 1000)
    finally:
        del network.block
    channels = {"3a": 256, "3b": 320, "3c": 576, "4a": 576, "4b": 576, "4c": 608, "4d": 608, "4e": 1056}
    channels |= {"5a": 1024, "5b": 1024}
    sizes = {"3a": 28, "3b": 28, "4e": 7, "5a": 7, "5b": 7}
    assert {name: tuple(out.shape) for name, out in seen.items()} == {
        name: (1, count, sizes.get(name, 14), sizes.get(name, 14)) for name, count in channels.items()
    }


def test_one_block_by_hand(network: BNInception) -> None:
    """Block 5b (maximum pool, all four branches) and 3c (halving) written out."""
    state = network.state_dict()

    def unit(name: str, inputs: Tensor, stride: int = 1) -> Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        out = F.conv2d(inputs, weight, bias, stride, padding=weight.shape[-1] // 2)
        names = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(out, *(state[f"{name}_bn.{key}"] for key in names), eps=1e-5).clamp(min=0)

    inputs = torch.randn(2, 1024, 7, 7)
    double = unit("inception_5b_double_3x3_1", unit("inception_5b_double_3x3_reduce", inputs))
    branches = [
        unit("inception_5b_1x1", inputs),
        unit("inception_5b_3x3", unit("inception_5b_3x3_reduce", inputs)),
        unit("inception_5b_double_3x3_2", double),
        unit("inception_5b_pool_proj", F.max_pool2d(inputs, 3, 1, 1)),
    ]
    with torch.no_grad():
        torch.testing.assert_close(network.block("5b", inputs), torch.cat(branches, 1))
    inputs = torch.randn(2, 320, 28, 28)
    double = unit("inception_3c_double_3x3_1", unit("inception_3c_double_3x3_reduce", inputs))
    branches = [
        unit("inception_3c_3x3", unit("inception_3c_3x3_reduce", inputs), stride=2),
        unit("inception_3c_double_3x3_2", double, stride=2),
        F.max_pool2d(inputs, 3, 2, ceil_mode=True),
    ]
    with torch.no_grad():
        torch.testing.assert_close(network.block("3c", inputs), torch.cat(branches, 1))
    average = F.avg_pool2d(torch.ones(1, 192, 28, 28), 3, 1, 1)  # zeros beyond the border count, as in Caffe
    assert average[0, 0, 0, 0] == pytest.approx(4 / 9)


def test_the_checkpoint_loads_with_and_without_its_classifier(network: BNInception) -> None:
    state = {key: value for key, value in network.state_dict().items() if "num_batches" not in key}
    bare = BNInception().eval()
    bare.load_state_dict(state, strict=True)
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(bare(images), network(images))
    assert "last_linear.weight" in state  # loading does not alter the caller's dict
    with pytest.raises(RuntimeError):
        bare.load_state_dict({key: value for key, value in state.items() if key != "inception_4c_1x1.weight"})
