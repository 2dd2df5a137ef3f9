"""What the files of a run hold: the kind of every field that somebody relies on."""

from collections.abc import Iterable
from typing import Any

KINDS: dict[type | tuple[type, ...], tuple[str, ...]] = {
    dict: ("recipe", "last", "oracle", "untrained", "versions", "hardware", "images", "counts"),
    str: ("git", "command", "started", "seen_from", "tested", "tuned_by", "cell", "name", "method", "arm", "diverged"),
    (int, float): ("seconds",),
    (str, list): ("notes", "deviation"),
    list: ("tests", "turns", "norms"),
}
"""Of run.json, result.json and the records of a file of results. Any may be null."""
WORDS = {dict: "an object", str: "text", (int, float): "a number", (str, list): "a list of sentences", list: "a list"}


def odd_fields(found: dict[str, Any], needed: Iterable[str] = ()) -> dict[str, str]:
    """Fields of another kind than they should be, with the reason; those that are `needed` must be there."""
    odd = {name: "is missing" for name in needed if found.get(name) is None}
    for kind, names in KINDS.items():
        for name in names:
            value = found.get(name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                odd[name] = f"is not {WORDS[kind]}"
    for name in ("notes", "deviation"):
        if isinstance(found.get(name), list) and not all(isinstance(words, str) for words in found[name]):
            odd[name] = f"is not {WORDS[str, list]}"
    return odd
