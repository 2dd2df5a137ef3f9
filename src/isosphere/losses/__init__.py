"""Criteria, margins and norm constraints: `isosphere.losses.TripletLoss`. Pure functions are in `functional`."""

from .balanced import balanced_directions
from .binary import SphereFace2
from .centers import SoftTripleLoss, SubCenterArcFace
from .contrastive import NTXentLoss, SupConLoss
from .lists import CircleLoss, LiftedStructureLoss, RankedListLoss
from .margins import ArcFace, CosFace, CosineClassifier, LinearClassifier, NormFace, ProxyAnchorLoss, SphereFace
from .memory import CrossBatchMemory
from .norm_margins import AdaFace, MagFace
from .norms import SEC
from .own import pair_loss
from .pairs import ContrastiveLoss, MultiSimilarityLoss, NPairLoss, SemiHardTripletLoss, TripletLoss
from .rankings import RecallSurrogateLoss, SmoothAPLoss
from .sampling import RowSGD
from .sharded import ShardedClassifier
from .tuplets import DecoupledContrastiveLoss, TupletMarginLoss
from .two_sets import InfoNCELoss, SigLIPLoss

__all__ = [
    "SEC",
    "AdaFace",
    "ArcFace",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFace",
    "CosineClassifier",
    "CrossBatchMemory",
    "DecoupledContrastiveLoss",
    "InfoNCELoss",
    "LiftedStructureLoss",
    "LinearClassifier",
    "MagFace",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NTXentLoss",
    "NormFace",
    "ProxyAnchorLoss",
    "RankedListLoss",
    "RecallSurrogateLoss",
    "RowSGD",
    "SemiHardTripletLoss",
    "ShardedClassifier",
    "SigLIPLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SphereFace",
    "SphereFace2",
    "SubCenterArcFace",
    "SupConLoss",
    "TripletLoss",
    "TupletMarginLoss",
    "balanced_directions",
    "pair_loss",
]
