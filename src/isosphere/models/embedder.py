"""`Embedder`: any backbone by name, a head, and the preprocessing of its weights."""

import difflib
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isosphere.errors import BadArgument, DamagedFile, NotFound, UnfitWeights, UnknownName, UnsafeFile
from isosphere.models.bn_inception import BNInception
from isosphere.models.cifar_resnet import CIFAR10, CIFAR100, resnet18_cifar, resnet50_cifar
from isosphere.models.frozen import freeze_batch_norm
from isosphere.models.preprocessing import IMAGENET, UNIT, Preprocessing
from isosphere.models.resnet_v1 import ResNet50V1
from isosphere.models.se_resnet_ir import FACE_BACKBONES
from isosphere.models.small_cnn import SmallCNN

OURS: dict[str, Callable[[], nn.Module]] = {
    "small_cnn": SmallCNN,
    "resnet50_v1": ResNet50V1,
    "bn_inception": BNInception,
    "resnet18_cifar": resnet18_cifar,
    "resnet50_cifar": resnet50_cifar,
    **FACE_BACKBONES,
}
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

    def parameter_groups(
        self, lr: float, backbone_lr: float | None, weight_decay: float, decay_batch_norm: bool = False
    ) -> list[dict]:
        """Parameters for an optimizer: head and backbone with their learning rates, batch norm decayed if asked."""
        groups = []
        for part, part_lr in ((self.head, lr), (self.backbone, lr if backbone_lr is None else backbone_lr)):
            plain: list[nn.Parameter] = []
            normalizing: list[nn.Parameter] = []
            for module in part.modules():
                chosen = normalizing if hasattr(module, "running_mean") else plain  # synchronized ones have it, too
                chosen += [p for p in module.parameters(recurse=False) if p.requires_grad]
            groups += [{"params": plain, "lr": part_lr, "weight_decay": weight_decay}] if plain else []
            decay = weight_decay if decay_batch_norm else 0.0
            groups += [{"params": normalizing, "lr": part_lr, "weight_decay": decay}] if normalizing else []
        return groups


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
    size: int | None = None,
) -> Embedder:
    """An `Embedder` from a backbone's name (ours, timm's or torchvision's) and, if given, a local weight file.

    `preprocessing` names a data set whose mean and std replace the backbone's own. `size` is the side of the images in
    pixels, for backbones made for one size.
    """
    network, features, own, classifier = build_backbone(backbone, size)
    if preprocessing is not None and preprocessing not in PREPROCESSINGS:
        raise BadArgument("preprocessing", preprocessing, f"{', '.join(PREPROCESSINGS)} or None")
    if weights is not None:
        load_backbone(network, weights, classifier)
    if freeze_bn:
        network = freeze_batch_norm(network)
    return Embedder(network, features, PREPROCESSINGS.get(preprocessing or "", own), head, dim)


def build_backbone(name: str, size: int | None = None) -> tuple[nn.Module, int, Preprocessing, str]:
    """(network giving pooled features, their number, preprocessing, name of the classifier that was left out)."""
    if name in OURS:
        network: Any = OURS[name]()
        return network, network.num_features, getattr(network, "preprocessing", IMAGENET), ""
    library, _, plain = name.rpartition("/")
    import timm  # heavy: only where a big backbone is asked for
    import torchvision.models

    if library in ("", "timm") and timm.is_model(plain):
        network = _timm_network(plain, size)
        settings = network.pretrained_cfg
        preprocessing = Preprocessing(mean=tuple(settings["mean"]), std=tuple(settings["std"]))
        features = getattr(network, "head_hidden_size", None) or network.num_features
        return network, features, preprocessing, str(settings.get("classifier", ""))
    if library in ("", "torchvision") and plain in torchvision.models.list_models(module=torchvision.models):
        # These two would also return the output of side branches while they train.
        extra = {"aux_logits": False} if plain in ("googlenet", "inception_v3") else {}
        network = torchvision.models.get_model(plain, weights=None, **extra)
        linear = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise BadArgument("backbone", name, "with a linear classifier, before which the features are taken")
        classifier = linear[-1]
        features = network.get_submodule(classifier).in_features
        network.set_submodule(classifier, nn.Identity())
        return network, features, IMAGENET, classifier
    names = [*OURS, *timm.list_models(), *torchvision.models.list_models(module=torchvision.models)]
    near = difflib.get_close_matches(plain, sorted(set(names)), n=3)
    raise UnknownName("backbone", name, near or list(OURS))


def _timm_network(name: str, size: int | None) -> nn.Module:
    """timm's network without its classifier. Transformers, which ask for the images' size, get it."""
    import timm

    if size is not None:
        try:
            return timm.create_model(name, num_classes=0, img_size=size)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
    return timm.create_model(name, num_classes=0)


def load_backbone(network: nn.Module, path: str, classifier: str) -> None:
    """Load a weight file into the backbone. A classifier's weights may be superfluous; none may be missing."""
    state = read_weights(path)
    wanted = network.state_dict()
    dropped = tuple(f"{name}." for name in (classifier, "fc", "last_linear", "classifier", "head.fc") if name)
    state = {key: value for key, value in state.items() if key in wanted or not key.startswith(dropped)}
    problems = {
        "missing": [key for key in wanted if key not in state and not key.endswith("num_batches_tracked")],
        "unknown": [key for key in state if key not in wanted],
        "of another shape": [key for key in wanted if key in state and wanted[key].shape != state[key].shape],
        "not finite": [key for key, value in state.items() if not value.isfinite().all()],
    }
    for problem, keys in problems.items():
        if keys:
            raise UnfitWeights(path, problem, keys)
    network.load_state_dict(state, strict=False)


def read_weights(path: str) -> dict[str, Tensor]:
    """A state_dict from .safetensors, or from .pth with torch's loader that runs no code."""
    file = Path(path)
    if not file.is_file():
        raise NotFound(path, "weight file")
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise DamagedFile(path, str(error)) from error
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFile(path, "is damaged, or holds more than tensors and could run code") from error
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise DamagedFile(path, str(error)) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    pairs = state.items() if isinstance(state, dict) else [(None, None)]
    if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in pairs):
        raise DamagedFile(path, "it does not hold a state_dict of tensors")
    return {key.removeprefix("module."): value for key, value in state.items()}
