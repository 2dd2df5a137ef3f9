"""One cache of decoded images for every source: what the first stage of a view gives, on disk."""

from .images import CachedSet
from .opening import cached, placed

__all__ = ["CachedSet", "cached", "placed"]
