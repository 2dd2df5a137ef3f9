"""The losses as options of a recipe, with the reason for each default. The unions at the end are the registry.

Each names its `criterion`, which takes the fields as arguments. That of a `ClassLoss` takes (dim, classes) first. A
`MarginLoss` names the margin of a cosine classifier instead.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from isosphere.recipes.checks import Checked, CosineValue, Fraction, NotNegative, Positive, Range
from isosphere.recipes.own import Own


@dataclass(frozen=True)
class Triplet(Checked):
    """All triplets of the batch, squared chords (Eq. 2)."""

    criterion = "isosphere.losses:TripletLoss"
    margin: NotNegative = 1.0
    """The paper's, after Oh Song et al. Squared chords are in [0, 4]."""


@dataclass(frozen=True)
class SemiHard(Checked):
    """Triplets with the nearest negative beyond the positive (FaceNet)."""

    criterion = "isosphere.losses:SemiHardTripletLoss"
    margin: NotNegative = 0.2
    """FaceNet's and the paper's."""


@dataclass(frozen=True)
class NPair(Checked):
    """Normalized N-pair, the tuplet loss of Eq. 3."""

    criterion = "isosphere.losses:NPairLoss"
    scale: Positive = 25.0
    """What cosines are multiplied by. The paper tried 25 and 64 and kept 25."""
    negatives: Literal["positives", "all"] = "positives"
    """positives: one image of each other class, as the authors ran it. all: all other images, as in Eq. 3."""


@dataclass(frozen=True)
class MultiSimilarity(Checked):
    """Multi-similarity with its mining, in the form of its authors' code."""

    criterion = "isosphere.losses:MultiSimilarityLoss"
    alpha: Positive = 2.0
    """Sharpness for positives."""
    beta: Positive = 40.0
    """Sharpness for negatives."""
    base: CosineValue = 0.5
    """The cosine around which pairs are weighted (lambda in the paper)."""
    epsilon: NotNegative = 0.1
    """Slack of the mining: a larger one keeps more pairs."""


@dataclass(frozen=True)
class Contrastive(Checked):
    """The classic pair loss, on cosines."""

    criterion = "isosphere.losses:ContrastiveLoss"
    positive_margin: CosineValue = 1.0
    """Positives with a higher cosine cost nothing; at 1 all of them pull."""
    negative_margin: CosineValue = 0.5
    """Negatives with a lower cosine cost nothing."""


@dataclass(frozen=True)
class SupCon(Checked):
    """Supervised contrastive: softmax over all other images of the batch."""

    criterion = "isosphere.losses:SupConLoss"
    temperature: Positive = 0.1
    """What cosines are divided by; its paper's."""


@dataclass(frozen=True)
class NTXent(Checked):
    """SimCLR's loss: two views of an image share a label."""

    criterion = "isosphere.losses:NTXentLoss"
    temperature: Positive = 0.5
    """What cosines are divided by; the paper's."""
    weight: Positive = 1.0
    """What the loss is multiplied by. The authors' code has 0.5 / 0.07, halved by its gather over two GPUs."""


@dataclass(frozen=True)
class ProxyAnchor(Checked):
    """Proxies as anchors: one learned vector a class."""

    criterion = "isosphere.losses:ProxyAnchorLoss"
    margin: NotNegative = 0.1
    """Margin on the cosine; its paper's."""
    scale: Positive = 32.0
    """What cosines are multiplied by; its paper's."""


@dataclass(frozen=True)
class Softmax(Checked):
    """A plain linear classifier; the first row of Table 4."""

    criterion = "isosphere.losses:LinearClassifier"


@dataclass(frozen=True)
class NormFace(Checked):
    """Cosine softmax without a margin."""

    margin_type = "isosphere.losses:NormFace"
    scale: Positive = 64.0
    """What cosines are multiplied by (section 4.1)."""


@dataclass(frozen=True)
class SphereFace(Checked):
    """Cosine softmax with a multiplied angle."""

    margin_type = "isosphere.losses:SphereFace"
    margin: Annotated[int, Range(least=1, most=10)] = 3
    """What the angle is multiplied by. 4 does not converge on CASIA-WebFace (App. B.2)."""
    scale: Positive = 64.0
    """What cosines are multiplied by (section 4.1)."""


@dataclass(frozen=True)
class CosFace(Checked):
    """Cosine softmax with a margin on the cosine (Eq. 19)."""

    margin_type = "isosphere.losses:CosFace"
    margin: Fraction = 0.35
    """Margin on the cosine (section 4.1)."""
    scale: Positive = 64.0
    """What cosines are multiplied by (section 4.1)."""


@dataclass(frozen=True)
class ArcFace(Checked):
    """Cosine softmax with a margin on the angle."""

    margin_type = "isosphere.losses:ArcFace"
    margin: Annotated[float, Range(least=0, most=math.pi / 2)] = 0.45
    """Margin on the angle in radians. 0.5 does not converge on CASIA-WebFace (App. B.2)."""
    scale: Positive = 64.0
    """What cosines are multiplied by (section 4.1)."""


@dataclass(frozen=True)
class OwnLoss(Own):
    """A criterion of your own: (embeddings, labels) -> scalar."""


PairLoss = Triplet | SemiHard | NPair | MultiSimilarity | Contrastive | SupCon | NTXent
ClassLoss = ProxyAnchor | Softmax
MarginLoss = NormFace | SphereFace | CosFace | ArcFace
Loss = PairLoss | ClassLoss | MarginLoss | OwnLoss
