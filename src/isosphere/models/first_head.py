"""A first head that keeps what the backbone knows: the principal components of its features."""

import torch
from torch import Tensor, nn

from isosphere.errors import Incompatible, Option


@torch.no_grad()
def start_as_pca(head: nn.Sequential, features: Tensor) -> None:
    """Make the head's embeddings the leading principal components of these features (N, F), in place.

    The weights get the root mean square of torch's random start. So a learning rate means the same for both. Batch norm
    starts with the features' own mean and variance. Few images have few components: then random directions across
    them, the same each time, fill the rest. Rows of zeros would never learn from a loss on cosines.
    """
    linear = last_linear(head)
    norm = head[0] if isinstance(head[0], nn.BatchNorm1d) else None
    if isinstance(head[0], nn.LayerNorm):
        features = head[0](features.to(linear.weight))
    rows = features.double().cpu()  # eigh in double precision on the CPU gives the same signs and order everywhere
    variance, mean = torch.var_mean(rows, 0, correction=0)
    centered = rows - mean
    values, vectors = torch.linalg.eigh(centered.T @ centered)  # (F, F), eigenvalues ascending
    rank = int((values > values[-1] * max(rows.shape) * torch.finfo(rows.dtype).eps).sum())
    components = vectors.flip(1)[:, : min(rank, linear.out_features)]  # (F, R)
    components = torch.cat([components, _across(components, linear.out_features)], 1).T  # (D, F)
    largest = components.abs().argmax(1, keepdim=True)
    components = components * components.gather(1, largest).sign()
    if norm is not None:
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        components = components * (variance + norm.eps).sqrt()
    weight = components / components.square().mean().sqrt() * (3 * linear.in_features) ** -0.5
    linear.weight.copy_(weight)
    if linear.bias is not None:
        linear.bias.copy_(torch.zeros(len(weight)) if norm is not None else -(weight @ mean))


def last_linear(head: nn.Sequential) -> nn.Linear:
    """The layer that starts as PCA; a head that cannot is refused."""
    linear, before = head[-1], isinstance(head[0], nn.BatchNorm1d | nn.LayerNorm)
    if not isinstance(linear, nn.Linear) or len(head) != 1 + before:
        remedies = (Option("model.head", "bn_fc"), Option("model.head_start", "random"))
        raise Incompatible(("model.head", "model.head_start"), "only bn_fc, ln_fc and fc can start as PCA", remedies)
    if linear.out_features > linear.in_features:
        remedies = (Option("model.dim", linear.in_features), Option("model.head_start", "random"))
        reason = f"{linear.in_features} features have no {linear.out_features} principal components"
        raise Incompatible(("model.dim", "model.head_start"), reason, remedies)
    return linear


def _across(components: Tensor, dim: int) -> Tensor:
    """Unit vectors at right angles to these columns (F, R) and to each other, as many as lack to `dim`."""
    features, rank = components.shape
    drawn = torch.randn(features, dim - rank, dtype=components.dtype, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # once leaves rounding
        drawn = drawn - components @ (components.T @ drawn)
    return torch.linalg.qr(drawn)[0]
