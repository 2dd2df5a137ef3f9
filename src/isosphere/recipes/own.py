"""Parts of a run that are your own: an import path, and a hash of the source by which they are known again."""

import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pkgutil import resolve_name
from types import CodeType
from typing import Any, ClassVar, Literal

from isosphere.errors import BadArgument, NeedsObject, NotImportable, Option, OtherSource
from isosphere.recipes.checks import Checked

PARTS = ("data", "model", "loss", "constraint", "evaluation")
"""Groups of a recipe that can be of your own."""
ANY = "any"
"""In place of a hash: the source is not compared."""
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

ADDRESS = re.compile(r"[\w.<>]*\.(\w+) object at 0x\w+| at 0x\w+")
"""What differs from process to process, or from module to module, in how an object shows itself."""


@dataclass(frozen=True)
class Own(Checked):
    """A part that is not ours."""

    path: str = ""
    """Where it is: package.module:attribute. A class is made without arguments."""
    source: str = ""
    """A hash of its source, which the run fills in; resuming asks for the same. `any` takes whatever is there."""
    given: Literal["path", "object"] = "path"
    """Whether the path is enough to find it, or it was an object that only Python can give again."""

    kept: ClassVar[tuple[str, ...]] = ()
    """Fields that it takes over from the part which it replaces."""


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
    module, name = str(named.__module__), named.__qualname__
    try:
        found = module != "__main__" and attrgetter(name)(sys.modules.get(module)) is value
    except AttributeError:  # a lambda, or something made inside a function
        found = False
    return {"path": f"{module}:{name}", "source": source_hash(value), "given": "path" if found else "object"}


def find(part: str, option: Own, given: Any = None) -> Any:
    """The object of an option: the one that was given, else what its path names. Another source is refused."""
    if given is None:
        if option.given == "object":
            raise NeedsObject({"evaluation": "evaluate"}.get(part, part), option.path)
        given = resolve(option.path)
    if option.source not in ("", ANY, source_hash(given)):
        raise OtherSource(part, option.path, Option(f"{part}.source", ANY))
    return given


def same(part: str, then: Own, now: Own) -> None:
    """Refuse a part of another source than a run was begun with; it may have moved to another module."""
    if ANY in (then.source, now.source):
        return
    if then.source != now.source or (not now.source and then.path != now.path):
        raise OtherSource(part, now.path, Option(f"{part}.source", ANY))


def made(part: str, value: Any, **sizes: int) -> Any:
    """An object as it is; of a class, or a partial of one, a new object made with those of the sizes that it names."""
    return called(part, value, **sizes) if inspect.isclass(_unbound(value)) else value


def called(part: str, maker: Callable[..., Any], **sizes: int) -> Any:
    """What a class or function makes of those of the sizes that it names."""
    try:
        signature = inspect.signature(maker)
        chosen = {name: size for name, size in sizes.items() if name in signature.parameters}
        signature.bind(**chosen)
    except (TypeError, ValueError) as error:
        least = f"one that can be called with {' and '.join(sizes) or 'no arguments'}"
        raise BadArgument(part, f"{own_name(described(maker)['path'])}: {error}", least) from None
    return maker(**chosen)


# ---------------------------------------------------------------- source


def source_hash(value: Any) -> str:
    """Twelve letters of the source of a function or of an object's class, and of its settings as far as it shows them.

    Empty where Python has no source, as for what is built in.
    """
    if isinstance(value, tuple):
        return "".join(map(source_hash, value))
    named = _named(value)
    source = _source(named)
    settings = "" if named is value else repr((value.args, value.keywords) if isinstance(value, partial) else value)
    settings = ADDRESS.sub(r"\1", settings)
    return hashlib.sha256((source + settings).encode()).hexdigest()[:12] if source else ""


def _named(value: Any) -> Any:
    """The function or class behind a value; of several the first's."""
    value = _unbound(value[0] if isinstance(value, tuple) else value)
    return value if inspect.isclass(value) or inspect.isroutine(value) else type(value)


def _unbound(value: Any) -> Any:
    """What a `functools.partial` calls; anything else as it is."""
    while isinstance(value, partial):
        value = value.func
    return value


def _source(named: Any) -> str:
    """The text of a function or class with the plain values it was made with; of a lambda, or at a prompt, its code."""
    members = [named] if inspect.isroutine(named) else [*vars(named).values()]
    functions = [member for member in members if inspect.isfunction(member)]
    try:
        if named.__name__ == "<lambda>":  # whose text is the whole statement around it
            raise OSError
        text = inspect.getsource(named)
    except (OSError, TypeError):
        text = "".join(str(_code(function.__code__)) for function in functions)
    closed = [value for function in functions for value in _closed(function) if isinstance(value, int | float | str)]
    return f"{text}{closed}" if text else ""


def _closed(function: Any) -> list[Any]:
    """Values that a function has from where it was made."""
    return [*(function.__defaults__ or ()), *inspect.getclosurevars(function).nonlocals.values()]


def _code(code: CodeType) -> list[Any]:
    """What compiled code does, wherever it stands in a file."""
    constants = [_code(one) if isinstance(one, CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset)
                 else repr(one) for one in code.co_consts]  # fmt: skip
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]
