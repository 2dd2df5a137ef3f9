"""Files of results that had other names in older versions. Nothing else knows those."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

_RESNET18 = "table5_cifar10_backbone=resnet18_cifar"
_BEGIN, _LR = "simclr_cifar10_untuned", "lr=0.4464285714285714"
_ETA = "table5_cifar10_untuned_eta"
_LONG, _SHORT = f"steps=20_{_LR}_weight_decay=0.00028_warmup", "steps20_lr0.446_weight_decay0.00028_warmup"
RENAMED = {
    "table3_cub200": "retrieval_cub200",
    "table3_cars196": "retrieval_cars196",
    "table4_lfw": "faces_lfw",
    "table4_lfw_eta=0.1": "faces_lfw_eta0.1",
    "table4_lfw_eta=25": "faces_lfw_eta25",
    _RESNET18: "simclr_cifar10_resnet18",
    f"table5_cifar10_tuned-by={_RESNET18}": "simclr_cifar10_tuned_by_resnet18",
    f"table5_cifar100_backbone=resnet18_cifar_tuned-by={_RESNET18}": "simclr_cifar100_resnet18_tuned_by_cifar10",
    "table5_cifar10_untuned_89170790": f"{_BEGIN}_resnet18_lr0.112_weight_decay0.0014",
    f"{_ETA}=0.35000000000000003_backbone=resnet18_cifar_{_LR}": f"{_BEGIN}_eta0.35_resnet18_lr0.446",
    f"{_ETA}=10.0_backbone=resnet18_cifar_{_LR}": f"{_BEGIN}_eta10_resnet18_lr0.446",
    f"table5_cifar10_untuned_{_LONG}=0.0": f"{_BEGIN}_{_SHORT}0",
    f"table5_cifar10_untuned_{_LONG}=0.1": f"{_BEGIN}_{_SHORT}0.1",
}
"""Names of before, without their suffix -> today's."""
NAMESAKES = ("data.size", "data.scale", "data.seed", "data.per_class")  # of other groups' fields


def results_path(path: Path) -> Path:
    """A file of results that is there. One by an older name is found under today's, with or without its suffix."""
    name = path.name.removesuffix(".json")
    now = path.with_name(f"{RENAMED.get(name, name)}.json")
    return path if path.exists() or not now.is_file() else now


def older_name(start: str, marks: Sequence[str], changes: Mapping[str, str], tuned_by: str) -> str:
    """What the file of an experiment was called when its name held its identity."""
    fields = {key: key if key in NAMESAKES else key.split(".")[-1] for key in sorted(changes)}
    parts = [*marks, *(f"{field}={changes[key]}" for key, field in fields.items())]
    parts += [f"tuned-by={tuned_by}"] if tuned_by else []
    suffix = "".join(f"_{part}".replace("/", "-") for part in parts)
    if len(suffix) <= 80:
        return start + suffix
    short = [*marks, *(["tuned-by"] if tuned_by else []), hashlib.sha256(suffix.encode()).hexdigest()[:8]]
    return start + "".join(f"_{part}" for part in short)
