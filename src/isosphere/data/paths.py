"""Many paths as one block of bytes: five million take 0.3 GB, and worker processes share them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, overload

import numpy as np

AT_ONCE = 1 << 16  # paths whose places are numbers of Python's at a time
ENCODED = {"encoding": "utf-8", "errors": "surrogateescape"}  # also a name that is not UTF-8


class Paths(Sequence[str]):
    """Paths, each from `folder` unless it is absolute. A slice or an array of indices gives `Paths` of the same block.

    `text` holds them, path i from byte `starts[i]` to `ends[i]`.
    """

    def __init__(self, text: bytes, starts: np.ndarray, ends: np.ndarray, folder: str = "") -> None:
        self.text, self.starts, self.ends, self.folder = text, starts, ends, folder

    @classmethod
    def of(cls, paths: Iterable[str], folder: str = "") -> "Paths":
        """These paths, each a text of its own; `.` and double slashes in them go."""
        if isinstance(paths, Paths):
            return paths
        parts = [_plain(path).encode(**ENCODED) for path in paths]
        ends = np.fromiter(map(len, parts), np.int64, len(parts)).cumsum()
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        return cls(b"".join(parts), starts, ends, folder)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice | np.ndarray) -> "Paths": ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice | np.ndarray):
            return Paths(self.text, self.starts[index], self.ends[index], self.folder)
        path = self.text[self.starts[index] : self.ends[index]].decode(**ENCODED)
        return os.path.join(self.folder, path) if self.folder else path

    def __iter__(self) -> Iterator[str]:
        return (path.decode(**ENCODED) for path in self.encoded())

    def encoded(self) -> Iterator[bytes]:
        """The paths as the system has them, in turn."""
        folder = os.path.join(self.folder, "").encode(**ENCODED) if self.folder else b""
        for text in self._texts():
            yield text if os.path.isabs(text) else folder + text

    def digests(self) -> np.ndarray:
        """A number of each path, int64 (N,): the same for the same path, however it is written."""
        odd = b".." in self.text
        found = (hash(os.path.normpath(text) if odd else text) for text in self._texts())
        return np.fromiter(found, np.int64, len(self))

    def _texts(self) -> Iterator[bytes]:
        for first in range(0, len(self), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            for start, end in zip(self.starts[part].tolist(), self.ends[part].tolist(), strict=True):
                yield self.text[start:end]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == its for one, its in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"Paths({len(self)} paths{f', the first {self[0]}' if len(self) else ''})"


def _plain(path: str) -> str:
    return str(PurePath(path)) if "./" in path or "//" in path else path
