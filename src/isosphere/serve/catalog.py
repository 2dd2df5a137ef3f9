"""What may be said of a gallery's images: number, label, path below its source, and where the picture is."""

import hashlib
from collections import Counter
from typing import Any

import numpy as np

from isosphere.gallery import Gallery

MOST = 50  # labels that are proposed at once


class Catalog:
    """A gallery's rows in words. Images are named by their own numbers, which they keep when others come and go."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery, self._names = gallery, gallery.names
        self._ids = np.asarray(gallery.ids)
        self._order = np.argsort(self._ids)
        self.counts = Counter(gallery.labels) if gallery.labeled else Counter()
        state = f"{gallery.folder.resolve()}\n{gallery.manifest}"
        self._state = hashlib.sha256(state.encode(errors="surrogateescape")).hexdigest()[:12]
        self.about: dict[str, Any] = {
            "name": gallery.folder.resolve().name,
            "images": len(gallery),
            "labels": len(self.counts),
            "dim": gallery.manifest.width,
        }

    def row(self, number: int) -> int | None:
        """The row of the image with this number."""
        if not 0 <= number < 2**63:
            return None
        place = int(np.searchsorted(self._ids, number, sorter=self._order))
        row = int(self._order[place]) if place < len(self._order) else -1
        return row if row >= 0 and self._ids[row] == number else None

    def item(self, row: int) -> dict[str, Any]:
        """An image as the interface shows it."""
        number = int(self._ids[row])
        picture = f"/thumbnails/{number}?of={self._state}" if self._gallery.thumbnail(row) else None
        label = self._gallery.labels[row] if self.counts else None
        return {"id": number, "label": label, "path": self._names[row], "thumbnail": picture}

    def sample(self, count: int, labels: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """Some images, evenly spread over the rows, of these labels or of all."""
        chosen = self._gallery.chosen(labels or None)
        rows = range(len(self._ids)) if chosen is None else chosen.tolist()
        return [self.item(rows[place]) for place in np.unique(np.linspace(0, len(rows) - 1, count).astype(int))]

    def like(self, text: str) -> list[dict[str, Any]]:
        """Labels that contain a text, in upper or lower case; those that begin with it first."""
        wanted = text.casefold()
        found = [(not name.casefold().startswith(wanted), name) for name in self.counts if wanted in name.casefold()]
        return [{"label": name, "images": self.counts[name]} for _, name in sorted(found)[:MOST]]
