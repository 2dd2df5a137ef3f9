"""The losses and penalties as pure functions of embeddings, as torch.nn.functional is to torch.nn."""

from isosphere.losses.balanced import balanced_directions
from isosphere.losses.contrastive import nt_xent, supcon
from isosphere.losses.margins import cosine_softmax, proxy_anchor
from isosphere.losses.norms import norm_penalty, ramp
from isosphere.losses.pairs import contrastive, multi_similarity, npair, semihard_triplet, triplet

__all__ = [
    "balanced_directions",
    "contrastive",
    "cosine_softmax",
    "multi_similarity",
    "norm_penalty",
    "npair",
    "nt_xent",
    "proxy_anchor",
    "ramp",
    "semihard_triplet",
    "supcon",
    "triplet",
]
