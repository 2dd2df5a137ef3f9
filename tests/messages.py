"""The golden file of messages: every error type with an example, in the words of Python and of the command line.

`python tests/messages.py` writes it again, after a change of words or of types. It keeps the examples, which may be
edited in the file, and makes new ones for new types.
"""

import typing
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any

from isosphere import errors
from isosphere.errors import IsosphereError, Option

FILE = Path(__file__).parent / "golden" / "messages.txt"
BY_NAME = {
    "path": "runs/a/recipe.json", "folder": "runs/a", "file": "metrics.jsonl", "place": "./photos", "name": "margin",
    "reason": "line 3 is cut short", "expected": "a number above 0", "holder": "process 7 on host since 10:00",
    "changes": {"loop.steps": (4, 120)}, "values": {"loss": 3.25}, "counts": {"people": (20, 21)}, "signal": 15,
    "command": "isosphere train", "package": "timm", "extra": "train", "what": "isosphere train",
}  # fmt: skip
"""Examples of fields, by their names."""
BY_TYPE = {str: "something", int: 3, float: 0.5, bool: True, Option: Option("data.skip_unreadable", True)}


def example(kind: type[IsosphereError]) -> IsosphereError:
    """An error of this type with made-up fields."""
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: BY_NAME.get(field.name) or _value(hints[field.name]) for field in fields(kind)})


def _value(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return _value(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (tuple, list):
        return typing.get_origin(hint)([_value(typing.get_args(hint)[0])])
    if typing.get_origin(hint) is dict:
        return {"something": _value(typing.get_args(hint)[1])}
    return BY_TYPE.get(hint, -1)


def read() -> dict[str, tuple[IsosphereError, list[str]]]:
    """What the file holds: the name of each type, its example and the two messages."""
    found = {}
    for block in FILE.read_text(encoding="utf-8").split("\n\n") if FILE.is_file() else ():
        first, *messages = block.splitlines()
        found[first.partition("(")[0]] = first, [message.strip() for message in messages]
    names = vars(errors)
    return {
        name: (eval(first, dict(names)) if name in names else None, messages)  # noqa: S307 - our own file
        for name, (first, messages) in found.items()
    }


def messages(error: IsosphereError) -> list[str]:
    """An error in the words of Python and of the command line."""
    return [errors.words(error, errors.as_argument), errors.words(error, errors.as_flag)]


def write() -> None:
    """Write the file for the types and words that there are."""
    held, blocks = read(), []
    for kind in sorted(errors.kinds(), key=lambda kind: kind.__name__):
        error = held.get(kind.__name__, (None, []))[0] or example(kind)
        blocks.append("\n    ".join([repr(error), *messages(error)]))
    FILE.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
