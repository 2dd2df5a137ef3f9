"""Qdrant, for more than one machine: vectors with path and label in a collection of a cluster, searched with filters.

An API key is taken from the environment, QDRANT_API_KEY. The client's own mode on disk is not used: it unpickles.
"""

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isosphere.errors import BadArgument, need

if TYPE_CHECKING:
    from ..gallery import Gallery
    from . import Progress

BATCH = 1024  # points in one request
SCROLL = 10_000


class Qdrant:
    """A collection with a point for each row: its number, its vector, and its path and label as payload."""

    filters, spare = True, 1

    def __init__(self, client: Any, collection: str, models: Any) -> None:
        self.client, self.collection, self.models = client, collection, models

    def search(self, queries: Tensor, k: int, labels: list[str] | None) -> np.ndarray:
        """Numbers of rows (Q, k), -1 for none."""
        models = self.models
        kept = None
        if labels is not None:
            match = models.FieldCondition(key="label", match=models.MatchAny(any=labels))
            kept = models.Filter(must=[match])
        asked = [
            models.QueryRequest(query=row, limit=k, filter=kept) for row in queries.cpu().float().numpy().tolist()
        ]
        found = np.full((len(asked), k), -1, np.int64)
        for start in range(0, len(asked), BATCH):
            answers = self.client.query_batch_points(self.collection, requests=asked[start : start + BATCH])
            for row, answer in enumerate(answers, start):
                found[row, : len(answer.points)] = [point.id for point in answer.points]
        return found

    def sync(self, gallery: "Gallery", progress: "Progress | None" = None) -> None:
        """Delete, upload and relabel what has changed."""
        models = self.models
        if not self.client.collection_exists(self.collection):
            size = gallery.manifest.dim
            vectors = models.VectorParams(size=size, distance=models.Distance.COSINE, datatype=models.Datatype.FLOAT16)
            self.client.create_collection(self.collection, vectors_config=vectors)
            self.client.create_payload_index(self.collection, "label", models.PayloadSchemaType.KEYWORD)
        held = dict(self._points())
        wanted = set(gallery.ids.tolist())
        gone = [number for number in held if number not in wanted]
        for start in range(0, len(gone), SCROLL):
            self.client.delete(self.collection, models.PointIdsList(points=gone[start : start + SCROLL]))
        ids = gallery.ids.tolist()
        new = [row for row, number in enumerate(ids) if number not in held]
        for start in range(0, len(new), BATCH):
            rows = new[start : start + BATCH]
            vectors = gallery.vectors[torch.tensor(rows)].tolist()
            points = [
                models.PointStruct(id=ids[row], vector=vector, payload=_payload(gallery, row))
                for row, vector in zip(rows, vectors, strict=True)
            ]
            self.client.upsert(self.collection, points, wait=True)
            if progress is not None:
                progress(min(start + BATCH, len(new)), len(new))
        for row, number in enumerate(ids):
            if number in held and held[number] != (payload := _payload(gallery, row)):
                self.client.set_payload(self.collection, payload, points=[number])

    def _points(self) -> Any:
        """The number and payload of every point."""
        offset = None
        while True:
            points, offset = self.client.scroll(self.collection, limit=SCROLL, offset=offset, with_payload=True)
            yield from ((point.id, point.payload) for point in points)
            if offset is None:
                return


def _payload(gallery: "Gallery", row: int) -> dict[str, str]:
    """Path and label as text that any client can read."""
    path = os.fsencode(gallery.paths[row]).decode("utf-8", "replace")
    return {"path": path, "label": gallery.labels[row].encode("utf-8", "replace").decode()}


def check(url: str | None) -> None:
    """Refuse what is no address; a path would be the client's mode on disk."""
    need("qdrant_client", "qdrant", "this engine")
    if url is None or not re.match(r"https?://", url):
        raise BadArgument("url", url, "the address of a Qdrant, as http://localhost:6333")


def connected(url: str) -> Any:
    """A client of the cluster at this address."""
    module = need("qdrant_client", "qdrant", "this engine")
    check(url)
    return module.QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"))


def opened(gallery: "Gallery", name: str, options: dict[str, Any]) -> Qdrant:
    """The collection at `options["url"]`, which is called as the gallery if `collection` says nothing else."""
    models = need("qdrant_client.models", "qdrant", "this engine")
    return Qdrant(connected(options.get("url") or ""), options["collection"], models)
