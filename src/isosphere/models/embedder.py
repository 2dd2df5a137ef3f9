"""`Embedder`: any backbone by name, a head, and the preprocessing of its weights."""

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from typing_extensions import Self

from isosphere.errors import BadArgument
from isosphere.models.backbones import build_backbone
from isosphere.models.cifar_resnet import CIFAR10, CIFAR100
from isosphere.models.frozen import freeze_batch_norm
from isosphere.models.groups import parameter_groups
from isosphere.models.hub import Size
from isosphere.models.pooling import set_pooling
from isosphere.models.preprocessing import IMAGENET, UNIT, Preprocessing
from isosphere.models.weights import load_backbone

PREPROCESSINGS = {"cifar10": CIFAR10, "cifar100": CIFAR100, "imagenet": IMAGENET, "unit": UNIT}


class Embedder(nn.Module):
    """Backbone and head: uint8 RGB or gray images (N, C, H, W) -> raw embeddings (N, dim), float32.

    Floats are taken, too, if they are from 0 to 255.
    """

    def __init__(self, backbone: nn.Module, features: int, preprocessing: Preprocessing, head: str, dim: int):
        super().__init__()
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.head = build_head(head, features, dim)
        self.dim = dim
        self.knows_range = False
        self.origin: dict[str, Any] | None = None  # what builds the backbone again without a hub
        self.resting: tuple[nn.Parameter, ...] | None = None  # the backbone's, while it rests

    def features(self, images: Tensor) -> Tensor:
        """What the backbone gives to the head, (N, C, H, W) -> (N, features)."""
        if images.is_floating_point() and not torch.compiler.is_compiling():
            self._check_range(images)
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        return self.backbone(self.preprocessing(images.to(self.precision)))

    @property
    def precision(self) -> torch.dtype:
        """The type of the head's weights."""
        last: Any = self.head[-1]
        return last.weight.dtype

    def _check_range(self, images: Tensor) -> None:
        """Warn of floats that are not from 0 to 255. Only the first are read, as reading waits for a GPU."""
        capturing = images.is_cuda and torch.cuda.is_current_stream_capturing()
        if self.knows_range or capturing or not images.numel():
            return
        self.knows_range = True
        low, high = (float(value) for value in images.detach().aminmax())
        if low < 0 or 0 < high <= 1:
            text = f"pixels are from {low:.3g} to {high:.3g}, where the model takes 0 to 255 and normalizes by itself"
            warnings.warn(text, stacklevel=6)  # at the line that called the model

    def forward(self, images: Tensor) -> Tensor:
        return self._headed(self.features(images))  # (N, dim)

    def from_floats(self, pixels: Tensor) -> Tensor:
        """Float pixels of 0..255 in the form in which `forward` takes floats (N, C, H, W)."""
        return pixels

    def both(self, images: Tensor) -> Tensor:
        """Features and embeddings by one pass, (N, C, H, W) -> (N, features + dim)."""
        features = self.features(images)
        embeddings = self._headed(features)
        return torch.cat([features.to(embeddings.dtype), embeddings], 1)

    def _headed(self, features: Tensor) -> Tensor:
        dtype = self.precision
        # The head is a sliver of the work and its output's norm is what we train: keep it out of half precision.
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features.to(dtype))

    def rest(self, resting: bool) -> None:
        """Let the backbone rest, or learn again. At rest it has no gradients, and its batch norm does not train."""
        if resting and self.resting is None:
            self.resting = tuple(parameter for parameter in self.backbone.parameters() if parameter.requires_grad)
        for parameter in self.resting or ():
            parameter.requires_grad_(not resting)
        self.resting = self.resting if resting else None
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.resting is not None:
            self.backbone.eval()
        return self

    def parameter_groups(
        self,
        lr: float,
        backbone_lr: float | None,
        weight_decay: float,
        spared: str = "batch_norm",
        layer_decay: float = 1.0,
    ) -> list[dict]:
        """Parameters for an optimizer: head and backbone with their learning rates; `groups` says the rest."""
        backbone_lr = lr if backbone_lr is None else backbone_lr
        backbone = parameter_groups(
            self.backbone, backbone_lr, weight_decay, spared, layer_decay, self.resting or ()
        ) if backbone_lr else []  # fmt: skip
        return parameter_groups(self.head, lr, weight_decay, spared) + backbone


class SharedDropout(nn.Module):
    """Dropout that is the same on any number of ranks. All draw for the whole batch and take their own rows."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training:
            return rows
        shared = dist.is_available() and dist.is_initialized()
        rank, world = (dist.get_rank(), dist.get_world_size()) if shared else (0, 1)
        kept = torch.rand(world * len(rows), *rows.shape[1:], device=rows.device) >= self.p
        return rows * kept[rank * len(rows) :][: len(rows)] / (1 - self.p)


def build_head(kind: str, features: int, dim: int) -> nn.Sequential:
    """The paper's BN and FC, FC alone (App. B.1), SimCLR's two-layer MLP, ArcFace's end, or none: (N, F) -> (N, dim).

    ln_fc has a layer norm without weights before the last layer, as ProxyNCA++. After it an angular loss undoes one.

    The weights of ArcFace's last batch norm stay at 1, as its authors have them. So the mean squared norm of a training
    batch is dim plus the squared biases. There SEC can even out the norms, but not shrink them.
    """
    if kind == "bn_fc":
        return nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, dim))
    if kind == "ln_fc":
        return nn.Sequential(nn.LayerNorm(features, elementwise_affine=False), nn.Linear(features, dim))
    if kind == "fc":
        return nn.Sequential(nn.Linear(features, dim))
    if kind == "mlp":
        return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, dim))
    if kind == "dropout_fc_bn":
        last = nn.BatchNorm1d(dim)
        last.weight.requires_grad_(False)
        return nn.Sequential(SharedDropout(0.4), nn.Linear(features, dim), last)
    if kind == "none":
        return nn.Sequential()
    raise BadArgument("head", kind, "bn_fc, ln_fc, fc or mlp, dropout_fc_bn for faces, or none")


def build_embedder(
    backbone: str,
    head: str = "bn_fc",
    dim: int = 512,
    weights: str | None = None,
    freeze_bn: bool = False,
    preprocessing: str | None = None,
    size: Size | None = None,
    pretrained: bool = False,
    pooling: str | None = None,
    origin: dict[str, Any] | None = None,
) -> Embedder:
    """An `Embedder` from a backbone's name (ours, timm's or torchvision's) and, if given, a local weight file.

    `pretrained` loads timm's weights from its hub. `preprocessing` names a data set whose mean and std replace the
    backbone's own. `size` is the side of the images, or height and width, for backbones made for one size. `pooling` is
    avg, max, both, gem or token, and by default the backbone's own. `origin` is that of an `Embedder` to build again.
    """
    if preprocessing is not None and preprocessing not in PREPROCESSINGS:
        raise BadArgument("preprocessing", preprocessing, f"{', '.join(PREPROCESSINGS)} or None")
    network, features, own, classifier, origin = build_backbone(backbone, size, pretrained, origin)
    if weights is not None:
        load_backbone(network, weights, classifier)
    if freeze_bn:
        network = freeze_batch_norm(network)
    if pooling is not None:
        set_pooling(network, pooling, backbone)
        ours: Any = network
        features = ours.num_features if hasattr(network, "maps") else features
    built = Embedder(network, features, PREPROCESSINGS.get(preprocessing or "", own), head, dim)
    built.origin = origin
    return built
