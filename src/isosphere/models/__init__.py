"""Networks that embed images: a backbone by name, a head, and the preprocessing that its weights expect."""

from isosphere.models.embedder import Embedder, build_embedder

__all__ = ["Embedder", "build_embedder"]
