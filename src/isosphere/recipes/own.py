"""Parts of a run that are your own: an import path, and a hash of the source by which they are known again."""

import hashlib
import inspect
import marshal
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, Literal

from isosphere.errors import NeedsObject, NotImportable, OtherSource
from isosphere.recipes.checks import Checked

PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Own(Checked):
    """A part that is not ours."""

    path: str = ""
    """Where it is: package.module:attribute. A class is made without arguments."""
    source: str = ""
    """A hash of its source, which the run fills in; resuming asks for the same."""
    given: Literal["path", "object"] = "path"
    """Whether the path is enough to find it, or it was an object that only Python can give again."""


@dataclass(frozen=True)
class Objects:
    """The parts that were given as objects; None where there is none."""

    data: Any = None
    model: Any = None
    loss: Any = None
    constraint: Any = None
    evaluation: Any = None


NO_OBJECTS = Objects()


def is_path(text: object) -> bool:
    """Whether this is an import path, `package.module:attribute`."""
    return isinstance(text, str) and PATH.fullmatch(text) is not None


def own_name(path: str) -> str:
    """What a part is called: the last word of its path."""
    return path.rpartition(":")[2].rpartition(".")[2].strip("<>")


def resolve(path: str) -> Any:
    """What an import path names; modules in the current folder are found, too."""
    if not is_path(path):
        raise NotImportable(path, "it is not package.module:attribute")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return resolve_name(path)
    except Exception as error:  # a user's module may raise anything
        raise NotImportable(path, f"{type(error).__name__}: {error}") from error


def described(value: Any) -> dict[str, str]:
    """Path, source hash and whether the path is enough, as the fields of an `Own`."""
    named = _named(value)
    path = f"{named.__module__}:{named.__qualname__}"
    try:
        found = resolve(path) is value and named.__module__ != "__main__"
    except NotImportable:  # a lambda, or something made inside a function
        found = False
    return {"path": path, "source": source_hash(value), "given": "path" if found else "object"}


def source_hash(value: Any) -> str:
    """Twelve letters of the source of a function or of an object's class, and of its settings as far as it shows them.

    Empty where Python has no source, as for a class typed at the prompt.
    """
    if isinstance(value, tuple):
        return "".join(map(source_hash, value))
    named = _named(value)
    try:
        # The source of a lambda is the whole statement around it, so its code counts instead.
        is_lambda = getattr(named, "__name__", "") == "<lambda>"
        source = marshal.dumps(named.__code__) if is_lambda else inspect.getsource(named).encode()
    except (OSError, TypeError):
        return ""
    settings = "" if inspect.isclass(value) or inspect.isroutine(value) else re.sub(r" at 0x\w+", "", repr(value))
    return hashlib.sha256(source + settings.encode()).hexdigest()[:12]


def _named(value: Any) -> Any:
    """The function or class behind a value; of several the first's."""
    while isinstance(value, partial | tuple):
        value = value[0] if isinstance(value, tuple) else value.func
    return value if inspect.isclass(value) or inspect.isroutine(value) else type(value)


def find(part: str, option: Own, given: Any = None, strict: bool = True) -> Any:
    """The object of an option: the one that was given, else what its path names; `strict` refuses another source."""
    if given is None:
        if option.given == "object":
            raise NeedsObject(part, option.path)
        given = resolve(option.path)
    if strict and option.source and source_hash(given) != option.source:
        raise OtherSource(part, option.path)
    return given


def made(value: Any, **sizes: Any) -> Any:
    """An object as it is; of a class a new one, given those of the sizes that it names."""
    if not inspect.isclass(value):
        return value
    return called(value, **sizes)


def called(maker: Callable[..., Any], **sizes: Any) -> Any:
    """What a class or function makes of those of the sizes that it names."""
    names = inspect.signature(maker).parameters
    return maker(**{name: size for name, size in sizes.items() if name in names})
