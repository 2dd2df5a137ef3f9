"""Train embeddings that lie on one sphere.

`loss = criterion(f, y) + sec(f)`: criteria take raw embeddings, SEC keeps their norms together.
"""

from importlib import import_module

_PLACES = {
    "isosphere.losses.norms": ("SEC", "balanced_directions"),
    "isosphere.losses.pairs": (
        "ContrastiveLoss", "MultiSimilarityLoss", "NPairLoss", "SemiHardTripletLoss", "TripletLoss",
    ),
    "isosphere.losses.contrastive": ("NTXentLoss", "SupConLoss"),
    "isosphere.losses.margins": (
        "ArcFace", "CosFace", "CosineClassifier", "LinearClassifier", "NormFace", "ProxyAnchorLoss", "SphereFace",
    ),
    "isosphere.models.embedder": ("Embedder", "build_embedder"),
    "isosphere.metrics": ("kmeans", "map_at_r", "nmi", "pairwise_f1", "r_precision", "recall_at_k"),
    "isosphere.monitor": ("NormMonitor",),
    "isosphere.train.distributed": ("gather",),
    "isosphere.train.trained": ("load_run",),
}  # fmt: skip
_HOME = {name: place for place, names in _PLACES.items() for name in names}

__all__ = sorted([*_HOME, "functional", "sphere"])


def __getattr__(name: str) -> object:
    # PEP 562: names are imported when they are first used, so that `isosphere --help` does not wait for torch.
    if name in ("functional", "sphere"):
        return import_module(f"isosphere.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'isosphere' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
