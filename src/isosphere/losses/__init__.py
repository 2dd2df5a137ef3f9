"""Criteria, margins and norm constraints: `isosphere.losses.TripletLoss`. Pure functions are in `functional`."""

from .balanced import balanced_directions
from .contrastive import NTXentLoss, SupConLoss
from .margins import ArcFace, CosFace, CosineClassifier, LinearClassifier, NormFace, ProxyAnchorLoss, SphereFace
from .norms import SEC
from .own import pair_loss
from .pairs import ContrastiveLoss, MultiSimilarityLoss, NPairLoss, SemiHardTripletLoss, TripletLoss
from .sampling import RowSGD
from .sharded import ShardedClassifier

__all__ = [
    "SEC",
    "ArcFace",
    "ContrastiveLoss",
    "CosFace",
    "CosineClassifier",
    "LinearClassifier",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NTXentLoss",
    "NormFace",
    "ProxyAnchorLoss",
    "RowSGD",
    "SemiHardTripletLoss",
    "ShardedClassifier",
    "SphereFace",
    "SupConLoss",
    "TripletLoss",
    "balanced_directions",
    "pair_loss",
]
