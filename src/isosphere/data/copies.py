"""Files with the same bytes under other names."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from .images import Images


def copies_of(tests: Sequence[Images], train: Images) -> dict[str, str]:
    """Test files that hold the bytes of a training file, and of which one. A cache has the digests of its files."""
    files = [images for images in tests if images.paths is not None]
    digests: list[Any] = [getattr(images, "digests", None) for images in (train, *files)]
    if train.paths is not None and None not in digests:
        trained = dict(zip(digests[0], train.paths, strict=True))
        paths = chain.from_iterable(images.paths or () for images in files)
        pairs = zip(paths, chain.from_iterable(digests[1:]), strict=True)
        return {path: trained[digest] for path, digest in pairs if digest in trained}
    tested = list(dict.fromkeys(path for images in files for path in images.paths or ()))
    return find_copies(tested, train.paths or ())


def find_copies(paths: Sequence[str], others: Sequence[str], workers: int = 8) -> dict[str, str]:
    """Files that hold the bytes of one of the others, and of which one. Files of a size of their own are not read."""
    with ThreadPoolExecutor(workers) as pool:  # threads are enough: what takes time is the disk
        sizes = [list(pool.map(os.path.getsize, files)) for files in (paths, others)]
        both = set(sizes[0]).intersection(sizes[1])
        alike = [
            [file for file, size in zip(files, its, strict=True) if size in both]
            for files, its in zip((paths, others), sizes, strict=True)
        ]
        digests = [pool.map(_digest, files) for files in alike]
        known = dict(zip(digests[1], alike[1], strict=True))
        return {path: known[digest] for path, digest in zip(alike[0], digests[0], strict=True) if digest in known}


def _digest(path: str) -> bytes:
    return hashlib.blake2b(Path(path).read_bytes()).digest()
