"""The losses as options of a recipe, with the reason for each default. The unions at the end are the registry.

Each names its `criterion`, which takes the fields as arguments. That of a `ClassLoss` takes (dim, classes) first. A
`MarginLoss` names the margin of a cosine classifier instead.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from isosphere.recipes.checks import Checked, CosineValue, Count, Fraction, InOrder, NotNegative, Positive, Range
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
class Circle(Checked):
    """Circle loss: each pair is weighed by how far it is from its optimum."""

    criterion = "isosphere.losses:CircleLoss"
    margin: Fraction = 0.4
    """Positives are pulled to a cosine of 1 - margin, negatives pushed to margin; its paper's for retrieval."""
    scale: Positive = 80.0
    """What weighted cosines are multiplied by; its paper's for retrieval."""


@dataclass(frozen=True)
class LiftedStructure(Checked):
    """Lifted structure, generalized to all positives and negatives of an anchor."""

    criterion = "isosphere.losses:LiftedStructureLoss"
    margin: NotNegative = 1.0
    """How much farther than positives negatives must be, in distances of directions."""


@dataclass(frozen=True)
class RankedList(Checked):
    """Ranked list: positives within a ball around the anchor, negatives outside of a larger one."""

    criterion = "isosphere.losses:RankedListLoss"
    margin: NotNegative = 0.4
    """Width of the shell between both balls; its paper's."""
    boundary: Positive = 1.2
    """Radius of the larger ball, as a distance of directions; its paper's."""
    temperature: Positive = 10.0
    """How much more the nearest negatives count; its paper's."""


@dataclass(frozen=True)
class TupletMargin(Checked):
    """Tuplet margin: the N-pair loss with a margin on the positive's angle."""

    criterion = "isosphere.losses:TupletMarginLoss"
    margin: Annotated[float, Range(least=0, most=math.pi / 2)] = 0.1
    """Margin on the angle in radians; its paper's 5.73 degrees."""
    scale: Positive = 64.0
    """What cosines are multiplied by; its paper's."""


@dataclass(frozen=True)
class DecoupledContrastive(Checked):
    """Contrastive softmax whose denominator has the negatives alone."""

    criterion = "isosphere.losses:DecoupledContrastiveLoss"
    temperature: Positive = 0.1
    """What cosines are divided by; its paper's."""


@dataclass(frozen=True)
class SmoothAP(Checked):
    """Smoothed average precision: a loss on the ranks of positives."""

    criterion = "isosphere.losses:SmoothAPLoss"
    temperature: Positive = 0.01
    """What differences of cosines are divided by; its paper's."""
    per_class: Annotated[int, Range(least=2)] | None = None
    """The most images of a class in a batch. A GPU need not be asked then, and the step can be compiled."""


@dataclass(frozen=True)
class RecallSurrogate(Checked):
    """Smoothed Recall@k, mean over several k."""

    criterion = "isosphere.losses:RecallSurrogateLoss"
    ks: Annotated[tuple[Count, ...], InOrder(strict=True)] = (1, 2, 4, 8, 16)
    """The numbers of neighbors; its paper's."""
    temperature: Positive = 0.01
    """What differences of cosines are divided by; its paper's."""
    rank_temperature: Positive = 1.0
    """What k less the rank is divided by; its paper's."""
    per_class: Annotated[int, Range(least=2)] | None = None
    """The most images of a class in a batch. A GPU need not be asked then, and the step can be compiled."""


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
    length: Positive | None = None
    """The norm that all embeddings get first, as L2-constrained softmax has it; none leaves them as they are."""


@dataclass(frozen=True)
class SoftTriple(Checked):
    """Softmax over soft choices among several centers of each class."""

    criterion = "isosphere.losses:SoftTripleLoss"
    margin: NotNegative = 0.01
    """Margin on the cosine; its paper's."""
    scale: Positive = 20.0
    """What cosines are multiplied by; its paper's."""
    centers: Count = 10
    """Centers of each class; its paper's."""
    temperature: Positive = 0.1
    """How soft the choice among them is; its paper's."""
    spread: NotNegative = 0.2
    """Weight of the distances between the centers of a class; its paper's."""


@dataclass(frozen=True)
class SubCenterArcFace(Checked):
    """ArcFace on the nearest of several centers of each class, for labels with noise."""

    criterion = "isosphere.losses:SubCenterArcFace"
    margin: Annotated[float, Range(least=0, most=math.pi / 2)] = 0.5
    """Margin on the angle in radians; its paper's."""
    scale: Positive = 64.0
    """What cosines are multiplied by; its paper's."""
    centers: Count = 3
    """Centers of each class; its paper's."""


@dataclass(frozen=True)
class SphereFace2(Checked):
    """One binary classifier for each class, with a margin on the cosine."""

    criterion = "isosphere.losses:SphereFace2"
    margin: NotNegative = 0.4
    """Margin on the cosine; its paper's."""
    scale: Positive = 40.0
    """What cosines are multiplied by."""
    balance: Annotated[float, Range(above=0, below=1)] = 0.7
    """Share of the true class in the loss; its paper's."""
    power: Positive = 3.0
    """A cosine c counts as 2 ((c + 1) / 2) ^ power - 1; its paper's."""


@dataclass(frozen=True)
class MagFace(Checked):
    """Softmax whose margin grows with the norm of an embedding. It uses what SEC evens out."""

    criterion = "isosphere.losses:MagFace"
    margins: Annotated[tuple[Positive, Positive], InOrder(strict=True)] = (0.45, 0.8)
    """Least and largest margin on the angle in radians; its paper's."""
    norms: Annotated[tuple[Positive, Positive], InOrder(strict=True)] = (10.0, 110.0)
    """Norms that have these margins; its paper's."""
    scale: Positive = 64.0
    """What cosines are multiplied by; its paper's."""
    weight: Positive = 35.0
    """Weight of the term that makes embeddings longer; its paper's."""


@dataclass(frozen=True)
class AdaFace(Checked):
    """Softmax whose margin moves from the angle to the cosine as the norm grows. It uses what SEC evens out."""

    criterion = "isosphere.losses:AdaFace"
    margin: Annotated[float, Range(least=0, most=math.pi / 2)] = 0.4
    """The margin; its paper's."""
    sharpness: Positive = 0.333
    """How many standard deviations of the norms make the whole difference, inverted; its paper's."""
    scale: Positive = 64.0
    """What cosines are multiplied by; its paper's."""
    rho: Fraction = 0.01
    """Weight of the newest batch in the running mean and deviation of norms; its authors'."""


@dataclass(frozen=True)
class ProxyNCA(Checked):
    """Proxy-NCA++: softmax over one proxy a class, without a margin."""

    margin_type = "isosphere.losses:NormFace"
    scale: Positive = 18.0
    """Squared chords over a temperature of 1/9, its paper's, are cosines times 18."""


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


PairLoss = (
    Triplet | SemiHard | NPair | MultiSimilarity | Contrastive | SupCon | NTXent | Circle | LiftedStructure | RankedList
    | TupletMargin | DecoupledContrastive | SmoothAP | RecallSurrogate
)  # fmt: skip
ClassLoss = ProxyAnchor | Softmax | SoftTriple | SubCenterArcFace | SphereFace2 | MagFace | AdaFace
MarginLoss = NormFace | SphereFace | CosFace | ArcFace | ProxyNCA
Loss = PairLoss | ClassLoss | MarginLoss | OwnLoss
