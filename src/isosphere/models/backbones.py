"""Backbones by name: ours, timm's with or without weights from its hub, torchvision's."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from isosphere.errors import BadArgument, Incompatible, Option, UnknownName
from isosphere.models import hub
from isosphere.models.bn_inception import BNInception
from isosphere.models.cifar_resnet import resnet18_cifar, resnet50_cifar
from isosphere.models.preprocessing import IMAGENET, Preprocessing
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


class Backbone(NamedTuple):
    """A network that gives pooled features, what its weights expect, and the classifier that was left out.

    `origin` builds one of timm's again without its hub. It holds plain values, which a checkpoint keeps.
    """

    network: nn.Module
    features: int
    preprocessing: Preprocessing
    classifier: str
    origin: dict[str, Any] | None = None


def build_backbone(
    name: str, size: hub.Size | None = None, pretrained: bool = False, origin: dict[str, Any] | None = None
) -> Backbone:
    """The backbone of this name, for images of this size if it is made for one.

    `pretrained` loads timm's weights from its hub. With an `origin` no hub is asked.
    """
    library, plain = library_of(name)
    if library == "timm":
        return Backbone(*hub.build(plain, size, pretrained, origin))
    if pretrained:
        remedies = (Option("model.weights", "FILE"), Option("model.backbone", "timm/resnet50"))
        reason = f"{name} is not one of timm's networks, which alone have weights on the hub"
        raise Incompatible(("model.pretrained", "model.backbone"), reason, remedies)
    if library == "ours":
        ours: Any = OURS[plain]()
        return Backbone(ours, ours.num_features, getattr(ours, "preprocessing", IMAGENET), "")
    return _torchvision(name, plain)


def library_of(name: str) -> tuple[str, str]:
    """Whose a backbone is, "ours", "timm" or "torchvision", and its name there. A name that nobody has is refused."""
    if name in OURS:
        return "ours", name
    if hub.is_source(name):
        return "timm", name
    library, _, plain = name.rpartition("/")
    import timm  # heavy: only where a big backbone is asked for
    import torchvision.models

    if library in ("", "timm") and timm.is_model(plain):
        return "timm", plain
    theirs = torchvision.models.list_models(module=torchvision.models)
    if library in ("", "torchvision") and plain in theirs:
        return "torchvision", plain
    near = difflib.get_close_matches(plain, sorted({*OURS, *timm.list_models(), *theirs}), n=3)
    raise UnknownName("backbone", name, near or list(OURS))


def _torchvision(name: str, plain: str) -> Backbone:
    import torchvision.models

    # These two would also return the output of side branches while they train.
    extra = {"aux_logits": False} if plain in ("googlenet", "inception_v3") else {}
    network = torchvision.models.get_model(plain, weights=None, **extra)
    linear = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise BadArgument("backbone", name, "with a linear classifier, before which the features are taken")
    classifier = linear[-1]
    features = network.get_submodule(classifier).in_features
    network.set_submodule(classifier, nn.Identity())
    return Backbone(network, features, IMAGENET, classifier)
