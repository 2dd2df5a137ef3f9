"""ResNet-IR's shapes, parameter counts and wiring, and ArcFace's head in an `Embedder`."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isosphere import build_embedder, distributed
from isosphere.errors import BadArgument
from isosphere.models.backbones import OURS
from isosphere.models.embedder import build_head
from isosphere.models.se_resnet_ir import BLOCKS, ResNetIR, UnitIR
from raised import raised


def parameters(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def counted(blocks: tuple[int, ...], se: bool, middle_norm: bool) -> int:
    """Parameters written out layer by layer, with the head's to 512 dimensions."""
    total, before = 3 * 64 * 9 + 2 * 64 + 64, 64  # stem: convolution, BN, PReLU
    for width, units in zip((64, 128, 256, 512), blocks, strict=True):
        for unit in range(units):
            total += 2 * before + 9 * before * width + width + 9 * width * width + 2 * width
            total += 2 * width if middle_norm else 0
            total += 2 * width * (width // 16) if se else 0
            if unit == 0 and before != width:
                total += before * width + 2 * width
            before = width
    return total + 2 * 512 + (7 * 7 * 512 * 512 + 512) + 2 * 512  # BN, FC, BN


@pytest.mark.parametrize("depth", sorted(BLOCKS))
@pytest.mark.parametrize("se", [False, True])
@pytest.mark.parametrize("middle_norm", [False, True])
def test_parameter_counts_of_every_depth(depth, se, middle_norm):
    assert 2 * sum(BLOCKS[depth]) + 2 == depth
    with torch.device("meta"):
        network = OURS[f"{'se_' * se}resnet{depth}_ir{'_bn' * middle_norm}"]()
        head = build_head("dropout_fc_bn", ResNetIR.num_features, 512)
    assert parameters(network, head) == counted(BLOCKS[depth], se, middle_norm)


def test_parameter_counts_that_others_publish():
    with torch.device("meta"):
        head = build_head("dropout_fc_bn", ResNetIR.num_features, 512)
        assert parameters(OURS["se_resnet50_ir"](), head) == 43_797_696
        # AdaFace's IR-18 has the middle batch norm, and no weight and bias in the last one.
        assert parameters(OURS["resnet18_ir_bn"](), head) == 24_020_352 + 2 * 512
        # insightface's R50 also projects the first stage's shortcut. Its ONNX file keeps one bias of a batch norm that
        # follows a convolution (stem, second and third of a unit, shortcut), and weight, bias, mean and variance of the
        # others (first of a unit, last two).
        projected = parameters(OURS["resnet50_ir_bn"](), head) + 64 * 64 + 2 * 64
        firsts = sum(2 * before - 2 * width - width for before, width in ((64, 64), (64, 128), (128, 256), (256, 512)))
        assert projected + firsts - 64 + 2 * 512 + 2 * 512 == 43_590_976


@pytest.mark.parametrize("se", [False, True])
def test_shapes_of_every_stage(se):
    network, seen = ResNetIR(18, se), []
    for stage in network.stages:
        stage.register_forward_hook(lambda *call: seen.append(tuple(call[-1].shape)))
    with torch.no_grad():
        features = network(torch.randn(2, 3, 112, 112))
        assert network.stem(torch.randn(1, 3, 112, 112)).shape == (1, 64, 112, 112)
    assert seen == [(2, 64, 56, 56), (2, 128, 28, 28), (2, 256, 14, 14), (2, 512, 7, 7)]
    assert features.shape == (2, 25_088) == (2, network.num_features)


@pytest.mark.parametrize(
    ("channels", "width", "stride", "se", "middle"),
    [(16, 16, 1, False, False), (16, 16, 2, True, False), (16, 32, 2, True, True), (32, 32, 1, False, True)],
)
def test_one_unit_by_hand(channels, width, stride, se, middle):
    torch.manual_seed(0)
    unit = UnitIR(channels, width, stride, se, middle).eval()
    for name, buffer in unit.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    state = {name: value.detach() for name, value in unit.state_dict().items()}

    def norm(values: Tensor, name: str) -> Tensor:
        mean, variance, weight, bias = (
            state[f"{name}.{key}"].view(-1, 1, 1) for key in ("running_mean", "running_var", "weight", "bias")
        )
        return (values - mean) / (variance + 1e-5).sqrt() * weight + bias

    inputs = torch.randn(2, channels, 6, 6)
    names = iter(f"residual.{place}" for place in range(9))
    outputs = norm(inputs, next(names))
    outputs = F.conv2d(outputs, state[f"{next(names)}.weight"], padding=1)
    outputs = norm(outputs, next(names)) if middle else outputs
    slope = state[f"{next(names)}.weight"].view(-1, 1, 1)
    outputs = torch.where(outputs > 0, outputs, slope * outputs)
    outputs = F.conv2d(outputs, state[f"{next(names)}.weight"], padding=1, stride=stride)
    outputs = norm(outputs, next(names))
    if se:
        name = next(names)
        squeezed = outputs.mean((2, 3)) @ state[f"{name}.squeeze.weight"][:, :, 0, 0].T
        gates = 1 / (1 + (-(squeezed.clamp(min=0) @ state[f"{name}.excite.weight"][:, :, 0, 0].T)).exp())
        outputs = outputs * gates[:, :, None, None]
    if channels == width:
        shortcut = F.max_pool2d(inputs, 1, stride)
    else:
        shortcut = F.conv2d(inputs, state["projection.0.weight"], stride=stride)
        shortcut = norm(shortcut, "projection.1")
    with torch.no_grad():
        torch.testing.assert_close(unit(inputs), outputs + shortcut, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_embedder("se_resnet18_ir", "dropout_fc_bn", dim=16)


def test_an_embedder_with_arcfaces_head(model):
    images = torch.randint(0, 256, (3, 3, 112, 112), dtype=torch.uint8)
    expected = (images.numpy().astype(np.float64) - 127.5) / 128
    np.testing.assert_allclose(model.preprocessing(images).numpy(), expected, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert model.train()(images).dtype == torch.float32
    embeddings = model(images)
    assert embeddings.shape == (3, 16) and embeddings.dtype == torch.float32
    embeddings[:, 0].exp().sum().backward()
    embeddings = embeddings.detach()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.requires_grad)
    # The last batch norm's weights stay at 1, so that it fixes the batch's mean squared norm.
    assert [name for name, parameter in model.named_parameters() if not parameter.requires_grad] == ["head.2.weight"]
    assert (model.head[2].weight == 1).all()
    assert float(embeddings.square().sum(1).mean()) == pytest.approx(16, rel=1e-3)
    assert float(embeddings.norm(dim=1).std()) > 0.1
    features = torch.randn(6, model.backbone.num_features)
    assert not torch.equal(model.head(features), model.head(features))  # dropout, in training alone
    model.eval()
    assert torch.equal(model.head(features), model.head[2](model.head[1](features)))


def test_batch_norm_has_no_weight_decay_and_all_else_has(model):
    groups = model.parameter_groups(lr=1.0, backbone_lr=None, weight_decay=0.1)
    decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    for module in model.modules():
        for parameter in (p for p in module.parameters(recurse=False) if p.requires_grad):
            assert decays[id(parameter)] == (0.0 if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) else 0.1)


def test_bad_sizes_and_depths():
    with raised(BadArgument, name="images", value=(96, 112)):
        build_embedder("resnet18_ir", "dropout_fc_bn")(torch.zeros(2, 3, 96, 112, dtype=torch.uint8))
    with raised(BadArgument, name="depth", value=101):
        ResNetIR(101)


def test_every_batch_norm_is_synchronized_over_ranks(model, monkeypatch):
    images = torch.randint(0, 256, (2, 3, 112, 112), dtype=torch.uint8)
    expected = model.eval()(images)
    plain = [module for module in model.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    monkeypatch.setattr(distributed, "world", lambda: 2)
    synced = distributed.synchronize_batch_norm(copy.deepcopy(model))
    assert sum(isinstance(module, distributed.SyncedBatchNorm) for module in synced.modules()) == len(plain)
    assert isinstance(synced.head[-1], distributed.SyncedBatchNorm)
    torch.testing.assert_close(synced(images), expected, rtol=1e-4, atol=1e-4)


def test_dropout_keeps_its_share_and_the_mean():
    torch.manual_seed(0)
    dropped = build_head("dropout_fc_bn", 1000, 4)[0].train()(torch.ones(200, 1000))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.4, abs=0.01)
    torch.testing.assert_close(dropped[dropped > 0].unique(), torch.tensor([1 / 0.6]))
