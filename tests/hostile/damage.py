"""Run folders of which one file is gone, cut short, of another kind, or holds what should not be there."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TEXTS = ("recipe.json", "run.json", "result.json", "split.json", "metrics.jsonl", "test_paths.txt")
ARRAYS = ("test_embeddings.npz", "test_thumbnails.npz", "snapshots/*.npz")
ODD = (None, "odd", 7, -5, True, [], [1], {}, {"odd": 1}, float("nan"), float("inf"))
ODD_ARRAYS = (np.array("odd"), np.zeros(0), np.zeros((3, 3)), np.array([np.nan]), np.array([1], object))
CONTENTS = {
    "empty": b"", "null": b"null", "a list": b"[1, 2]", "text": b'"text"', "a number": b"3",
    "binary": b"\x80\xff\x00" * 9, "deep": b"[" * 100_000,
}  # fmt: skip


class Damage(NamedTuple):
    """What was done to which file of a run folder; content of None removes it."""

    name: str
    file: str
    content: bytes | None

    def apply(self, run: Path) -> None:
        """Do it."""
        if self.content is None:
            (run / self.file).unlink()
        else:
            (run / self.file).write_bytes(self.content)


def damages(run: Path) -> Iterator[Damage]:
    """Every damage of a run folder."""
    texts = [name for name in TEXTS if (run / name).is_file()]
    arrays = [str(path.relative_to(run)) for pattern in ARRAYS for path in sorted(run.glob(pattern))[-1:]]
    for name in (*texts, *arrays):
        whole = (run / name).read_bytes()
        yield Damage(f"{name} gone", name, None)
        for words, content in (CONTENTS | {"half": whole[: len(whole) // 2]}).items():
            yield Damage(f"{name} {words}", name, content)
    for name in texts:
        if name.endswith(".json"):
            for field, found in _changed(json.loads((run / name).read_text())):
                yield Damage(f"{name}: {field}", name, json.dumps(found).encode())
    yield from _lines(run)
    for name in arrays:
        with np.load(run / name) as held:
            kept = dict(held)
        for array in kept:
            for odd in (None, *ODD_ARRAYS):
                found = {key: value for key, value in kept.items() if key != array}
                found |= {} if odd is None else {array: odd}
                file = io.BytesIO()
                np.savez(file, **found)
                words = "gone" if odd is None else f"of {odd.dtype} {odd.shape}"
                yield Damage(f"{name}: {array} {words}", name, file.getvalue())


def _changed(held: dict[str, Any], inner: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """A JSON object with one field gone or odd, and with one field of a field so."""
    for name, value in held.items():
        yield f"less {name}", {key: its for key, its in held.items() if key != name}
        for odd in ODD if not inner else ([], {}, "odd"):
            yield f"{name} {odd!r}", held | {name: odd}
        if isinstance(value, dict) and not inner:
            for words, found in _changed(value, inner=True):
                yield f"{name}: {words}", held | {name: found}


def _lines(run: Path) -> Iterator[Damage]:
    name = "metrics.jsonl"
    lines = (run / name).read_text().splitlines()
    for number in {0, 1, len(lines) - 1}:
        for field, found in _changed(json.loads(lines[number])):
            content = "\n".join([*lines[:number], json.dumps(found), *lines[number + 1 :]])
            yield Damage(f"{name}: line {number}: {field}", name, content.encode())
