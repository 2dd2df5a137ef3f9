"""Train embeddings that lie on one sphere.

`loss = criterion(f, y) + sec(f)`: criteria take raw embeddings, SEC keeps their norms together.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_PLACES = {
    "isosphere": ("data", "functional", "losses", "metrics", "models", "monitor", "sphere"),
    "isosphere.losses.contrastive": ("NTXentLoss", "SupConLoss"),
    "isosphere.losses.margins": (
        "ArcFace", "CosFace", "CosineClassifier", "LinearClassifier", "NormFace", "ProxyAnchorLoss", "SphereFace",
    ),
    "isosphere.losses.norms": ("SEC", "balanced_directions"),
    "isosphere.losses.pairs": (
        "ContrastiveLoss", "MultiSimilarityLoss", "NPairLoss", "SemiHardTripletLoss", "TripletLoss",
    ),
    "isosphere.metrics": (
        "clustering_metrics", "kmeans", "knn_accuracy", "linear_probe", "map_at_r", "nmi", "pairwise_f1",
        "r_precision", "recall_at_k", "retrieval_metrics",
    ),
    "isosphere.models.embedder": ("Embedder", "build_embedder"),
    "isosphere.monitor": ("NormMonitor",),
    "isosphere.distributed": ("gather",),
    "isosphere.inference": ("load_run",),
}  # fmt: skip
_HOME = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "ArcFace", "ContrastiveLoss", "CosFace", "CosineClassifier", "Embedder", "LinearClassifier", "MultiSimilarityLoss",
    "NPairLoss", "NTXentLoss", "NormFace", "NormMonitor", "ProxyAnchorLoss", "SEC", "SemiHardTripletLoss",
    "SphereFace", "SupConLoss", "TripletLoss", "balanced_directions", "build_embedder", "clustering_metrics", "data",
    "functional", "gather", "kmeans", "knn_accuracy", "linear_probe", "load_run", "losses", "map_at_r", "metrics",
    "models", "monitor", "nmi", "pairwise_f1", "r_precision", "recall_at_k", "retrieval_metrics", "sphere",
]  # fmt: skip

if TYPE_CHECKING:  # what _PLACES says, for those who read and do not run; they want __all__ as a plain list, too
    from isosphere import data, functional, losses, metrics, models, monitor, sphere
    from isosphere.distributed import gather
    from isosphere.inference import load_run
    from isosphere.losses.contrastive import NTXentLoss, SupConLoss
    from isosphere.losses.margins import (
        ArcFace,
        CosFace,
        CosineClassifier,
        LinearClassifier,
        NormFace,
        ProxyAnchorLoss,
        SphereFace,
    )
    from isosphere.losses.norms import SEC, balanced_directions
    from isosphere.losses.pairs import (
        ContrastiveLoss,
        MultiSimilarityLoss,
        NPairLoss,
        SemiHardTripletLoss,
        TripletLoss,
    )
    from isosphere.metrics import (
        clustering_metrics,
        kmeans,
        knn_accuracy,
        linear_probe,
        map_at_r,
        nmi,
        pairwise_f1,
        r_precision,
        recall_at_k,
        retrieval_metrics,
    )
    from isosphere.models.embedder import Embedder, build_embedder
    from isosphere.monitor import NormMonitor

    __version__: str
else:  # hidden from type checkers, to whom a name that it might give is never misspelt

    def __getattr__(name: str) -> object:
        # PEP 562: names are imported when they are first used, so that `isosphere --help` does not wait for torch.
        if name == "__version__":
            return _version()
        if name not in _HOME:
            raise AttributeError(f"module 'isosphere' has no attribute {name!r}")
        if _HOME[name] == "isosphere":
            return import_module(f"isosphere.{name}")
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("isosphere")
    except PackageNotFoundError:  # the source on the path, not installed
        return "0+unknown"
