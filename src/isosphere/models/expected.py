"""What a backbone expects of its images, and how much it gives, without building it in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isosphere.errors import UnknownName
from isosphere.models import hub
from isosphere.models.backbones import build_backbone, library_of

SIZES = {"_cifar": (32, 32), "_ir": (112, 112), "_ir_bn": (112, 112), "_v1": (224, 256), "bn_inception": (224, 256)}
"""Size and shorter side of our networks, by how their names end; others take any size."""
FILES = {"resnet50_msra": "resnet50_v1", "resnet50_caffe": "resnet50_v1", "bn_inception": "bn_inception"}
"""How files are named whose networks go by another name."""
INTERPOLATIONS = ("bilinear", "bicubic")


@dataclass(frozen=True)
class Expected:
    """Side of the images and the shorter side before the crop, None where any will do; how pixels are computed."""

    size: int | None
    shorter: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str  # bilinear or bicubic
    features: int


def expects(backbone: str) -> Expected:
    """What the weights of this name expect. Of `hf_hub:` and `local-dir:` names it is in their config.json."""
    library, plain = library_of(backbone)
    with torch.device("meta"):
        built = build_backbone(backbone)
    size, shorter, interpolation = _SETTINGS[library](plain)
    return Expected(size, shorter, built.preprocessing.mean, built.preprocessing.std, interpolation, built.features)


def named_like(file: str) -> str:
    """The backbone that a weight file is named after: efficientnet_lite0_ra-37913777.pth. Nothing where it is none."""
    name = Path(file).name.partition("-")[0].partition(".")[0]
    for known, backbone in FILES.items():
        if name.startswith(known):
            return backbone
    while name:
        try:
            library_of(name)
        except UnknownName:
            name = name.rpartition("_")[0]
        else:
            return name
    return ""


def _of_ours(name: str) -> tuple[int | None, int | None, str]:
    size, shorter = next((sizes for end, sizes in SIZES.items() if name.endswith(end)), (None, None))
    return size, shorter, "bilinear"


def _of_timm(name: str) -> tuple[int, int, str]:
    found = hub.settings_of(name)
    size = int(found["input_size"][-1])
    asked = str(found["interpolation"])
    return size, int(size / found["crop_pct"]), asked if asked in INTERPOLATIONS else "bicubic"


def _of_torchvision(name: str) -> tuple[int, int, str]:
    """Of torchvision's best weights of that name."""
    import torchvision.models

    view: Any = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    return view.crop_size[0], view.resize_size[0], view.interpolation.value


_SETTINGS: Any = {"ours": _of_ours, "timm": _of_timm, "torchvision": _of_torchvision}
