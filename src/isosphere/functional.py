"""The losses and penalties as pure functions of embeddings, as torch.nn.functional is to torch.nn."""

from isosphere.losses.balanced import balanced_directions
from isosphere.losses.binary import binary_softplus
from isosphere.losses.centers import several_centers
from isosphere.losses.contrastive import nt_xent, supcon
from isosphere.losses.lists import circle, lifted_structure, ranked_list
from isosphere.losses.margins import cosine_softmax, proxy_anchor
from isosphere.losses.norms import norm_penalty, ramp
from isosphere.losses.pairs import contrastive, multi_similarity, npair, semihard_triplet, triplet
from isosphere.losses.rankings import recall_surrogate, smooth_ap
from isosphere.losses.tuplets import decoupled_contrastive, tuplet_margin
from isosphere.losses.two_sets import info_nce, siglip

__all__ = [
    "balanced_directions",
    "binary_softplus",
    "circle",
    "contrastive",
    "cosine_softmax",
    "decoupled_contrastive",
    "info_nce",
    "lifted_structure",
    "multi_similarity",
    "norm_penalty",
    "npair",
    "nt_xent",
    "proxy_anchor",
    "ramp",
    "ranked_list",
    "recall_surrogate",
    "semihard_triplet",
    "several_centers",
    "siglip",
    "smooth_ap",
    "supcon",
    "triplet",
    "tuplet_margin",
]
