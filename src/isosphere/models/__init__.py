"""Networks that embed images: a backbone by name, a head, and the preprocessing that its weights expect."""

from isosphere.errors import need_all

need_all("train", "isosphere.models")

from isosphere.models.embedder import Embedder, build_embedder  # noqa: E402
from isosphere.models.expected import Expected, expects  # noqa: E402

__all__ = ["Embedder", "Expected", "build_embedder", "expects"]
