"""The losses as options of a recipe, with the reason for each default. The unions at the end are the registry.

Each names its `criterion`, which takes the fields as arguments. That of a `ClassLoss` takes (dim, classes) first. A
`MarginLoss` names the margin of a cosine classifier instead.
"""

import math
from dataclasses import dataclass
from typing import Literal

from isosphere.recipes.checks import within


@dataclass(frozen=True)
class Triplet:
    """All triplets of the batch, squared chords (Eq. 2)."""

    criterion = "isosphere.losses:TripletLoss"
    margin: float = 1.0
    """As in the paper, after Oh Song et al.; chords lie in [0, 4]."""


@dataclass(frozen=True)
class SemiHard:
    """Triplets with the nearest negative beyond the positive (FaceNet)."""

    criterion = "isosphere.losses:SemiHardTripletLoss"
    margin: float = 0.2
    """As in FaceNet and the paper."""


@dataclass(frozen=True)
class NPair:
    """Normalized N-pair, the tuplet loss of Eq. 3."""

    criterion = "isosphere.losses:NPairLoss"
    scale: float = 25.0
    """The paper tried 25 and 64 and kept 25."""
    negatives: Literal["positives", "all"] = "positives"
    """The other classes' positives, as the authors ran it, or all other images, as Eq. 3 reads."""


@dataclass(frozen=True)
class MultiSimilarity:
    """Multi-similarity with its mining, in the form of its authors' code."""

    criterion = "isosphere.losses:MultiSimilarityLoss"
    alpha: float = 2.0
    """Sharpness for positives."""
    beta: float = 40.0
    """Sharpness for negatives."""
    base: float = 0.5
    """The cosine around which pairs are weighted (lambda in the paper)."""
    epsilon: float = 0.1
    """Slack of the mining."""


@dataclass(frozen=True)
class Contrastive:
    """The classic pair loss, on cosines."""

    criterion = "isosphere.losses:ContrastiveLoss"
    positive_margin: float = 1.0
    """Positives with a higher cosine cost nothing; at 1 all of them pull."""
    negative_margin: float = 0.5
    """Negatives with a lower cosine cost nothing."""


@dataclass(frozen=True)
class SupCon:
    """Supervised contrastive: softmax over all other images of the batch."""

    criterion = "isosphere.losses:SupConLoss"
    temperature: float = 0.1
    """As in its paper."""


@dataclass(frozen=True)
class NTXent:
    """SimCLR's loss: two views of an image share a label."""

    criterion = "isosphere.losses:NTXentLoss"
    temperature: float = 0.5
    """As in the paper."""
    weight: float = 1.0
    """What the loss is multiplied by; the authors' code has 0.5 / 0.07, halved by its gather over two GPUs."""


@dataclass(frozen=True)
class ProxyAnchor:
    """Proxies as anchors: one learned vector a class."""

    criterion = "isosphere.losses:ProxyAnchorLoss"
    margin: float = 0.1
    """As in its paper."""
    scale: float = 32.0
    """As in its paper."""


@dataclass(frozen=True)
class Softmax:
    """A plain linear classifier; the first row of Table 4."""

    criterion = "isosphere.losses:LinearClassifier"

@dataclass(frozen=True)
class NormFace:
    """Cosine softmax without a margin."""

    margin_type = "isosphere.losses:NormFace"
    scale: float = 64.0
    """Section 4.1."""


@dataclass(frozen=True)
class SphereFace:
    """Cosine softmax with a multiplied angle."""

    margin_type = "isosphere.losses:SphereFace"
    margin: int = 3
    """4 does not converge on CASIA-WebFace (App. B.2)."""
    scale: float = 64.0
    """Section 4.1."""

    def __post_init__(self) -> None:
        within(self, 1, 10, "margin", "a multiple of the angle")


@dataclass(frozen=True)
class CosFace:
    """Cosine softmax with a margin on the cosine (Eq. 19)."""

    margin_type = "isosphere.losses:CosFace"
    margin: float = 0.35
    """Section 4.1."""
    scale: float = 64.0
    """Section 4.1."""

    def __post_init__(self) -> None:
        within(self, 0, 1, "margin", "a difference of cosines")


@dataclass(frozen=True)
class ArcFace:
    """Cosine softmax with a margin on the angle."""

    margin_type = "isosphere.losses:ArcFace"
    margin: float = 0.45
    """In radians; 0.5 does not converge on CASIA-WebFace (App. B.2)."""
    scale: float = 64.0
    """Section 4.1."""

    def __post_init__(self) -> None:
        within(self, 0, math.pi / 2, "margin", "an angle in radians")


PairLoss = Triplet | SemiHard | NPair | MultiSimilarity | Contrastive | SupCon | NTXent
ClassLoss = ProxyAnchor | Softmax
MarginLoss = NormFace | SphereFace | CosFace | ArcFace
Loss = PairLoss | ClassLoss | MarginLoss
