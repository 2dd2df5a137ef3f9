"""What a gallery says of itself, in `manifest.json`: its version, its model, its vectors, where its images are.

The manifest names the folder with all the rest. So a change is seen whole or not at all.
"""

import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from isosphere import files
from isosphere.errors import DamagedFile, NotAGallery, OtherVersion
from isosphere.runs.folder import parsed

from .codes import STORED

MANIFEST = "manifest.json"
VERSION = 1


@dataclass(frozen=True)
class ModelOf:
    """Which model embedded the images: its run folder seen from the gallery, its weights' hash, its preprocessing."""

    run: str
    hash: str
    preprocessing: dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """`count` unit vectors of `dim` numbers, kept in the folder `data` as `stored` says.

    The model gives `width` numbers. `next_id` is above every row's own number, which no other row gets again.
    `sources` are folders or CSVs of images, seen from the gallery. Vectors that were given have no `model`. `engines`
    are the options of each, and the `data` that it has.
    """

    data: str
    count: int
    dim: int
    width: int
    stored: str = "float16"
    normalized: bool = True
    next_id: int = 0
    sources: list[str] = field(default_factory=list)
    model: ModelOf | None = None
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest; it is on the disk when this returns."""
    held = {"version": VERSION, **asdict(manifest)}
    with files.replacing(folder / MANIFEST, durable=True) as file:
        file.write((json.dumps(held, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a gallery; anything else is refused."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotAGallery(folder, MANIFEST)
    held = parsed(path)
    if held.get("version", VERSION) != VERSION:
        raise OtherVersion(path, f"its version is {held['version']}, this isosphere reads {VERSION}", "version")
    try:
        model = held["model"] and ModelOf(**held["model"])
        found = Manifest(**{one.name: held[one.name] for one in fields(Manifest)} | {"model": model})
        if not all(isinstance(its, dict) for its in found.engines.values()):
            raise ValueError("engines have no options")
        if not re.fullmatch(r"data-\d+", found.data) or not all(isinstance(its, str) for its in found.sources):
            raise ValueError("data and sources are no names")
        if found.stored not in STORED or not found.normalized:
            raise ValueError(f"vectors kept as {found.stored}, normalized {found.normalized}")
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(path, f"{type(error).__name__}: {error}") from error
