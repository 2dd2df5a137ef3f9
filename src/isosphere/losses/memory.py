"""A memory of past batches for any pair loss: cross-batch memory (XBM, Wang et al., CVPR 2020)."""

from __future__ import annotations  # torch 2.6 cannot compile inner functions whose annotations are evaluated

from collections.abc import Callable

import torch
from torch import Tensor, nn

from isosphere import sphere
from isosphere.errors import BadArgument

from .checks import check, check_dim


class CrossBatchMemory(nn.Module):
    """A pair loss of the batch against itself and the last `size` embeddings before it: `memory(embeddings, labels)`.

    The batch's rows are the anchors. What is remembered is a constant, as it was when it was embedded. So the memory
    helps once the network changes slowly: it is filled from the first call on, and used after `start` calls.

    In training each call adds the batch. With DDP gather first, and every rank keeps the whole memory.
    """

    embeddings: Tensor
    labels: Tensor
    counts: Tensor

    def __init__(self, criterion: Callable[..., Tensor], dim: int, size: int = 1024, start: int = 0) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("size", size)):
            if not isinstance(value, int) or value < 1:
                raise BadArgument(name, value, "a whole number of at least 1")
        if not isinstance(start, int) or start < 0:
            raise BadArgument("start", start, "a whole number of at least 0")
        self.criterion, self.size, self.start = criterion, size, start
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))
        self.register_buffer("counts", torch.zeros(3, dtype=torch.long))  # for checkpoints
        self.held = self.next = self.calls = 0  # of the memory: rows, where the next one goes, calls so far

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check(embeddings, labels)
        check_dim(embeddings, self.embeddings)
        rows = len(embeddings)
        if self.held and self.calls >= self.start:
            kept = self.embeddings[: self.held].to(embeddings)
            every = torch.cat([embeddings, kept]), torch.cat([labels, self.labels[: self.held].to(labels)])
            value = self.criterion(*every, anchors=slice(0, rows))
        else:
            value = self.criterion(embeddings, labels)
        if self.training:
            self._keep(embeddings, labels)
        return value

    @torch.no_grad()
    def _keep(self, embeddings: Tensor, labels: Tensor) -> None:
        """Write the batch over the oldest rows, as directions; of a batch larger than the memory its last rows."""
        newest = sphere.directions(embeddings)[-self.size :]
        places = (torch.arange(len(newest), device=self.labels.device) + self.next) % self.size
        self.embeddings[places] = newest.to(self.embeddings)
        self.labels[places] = labels[-self.size :].to(self.labels)
        self.next = (self.next + len(newest)) % self.size
        self.held, self.calls = min(self.held + len(newest), self.size), self.calls + 1
        self.counts.copy_(torch.tensor([self.held, self.next, self.calls]), non_blocking=True)

    def _load_from_state_dict(self, *args) -> None:
        super()._load_from_state_dict(*args)
        self.held, self.next, self.calls = self.counts.tolist()

    def _apply(self, fn, recurse: bool = True):
        before = self.embeddings
        super()._apply(fn, recurse)
        if self.embeddings.dtype in (torch.float16, torch.bfloat16):  # directions would be rounded for good
            self.embeddings = before.to(self.embeddings.device)
        return self

    def extra_repr(self) -> str:
        return f"size={self.size}, start={self.start}"
