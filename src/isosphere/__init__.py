"""Train embeddings that lie on one sphere.

`loss = criterion(f, y) + sec(f)`: criteria take raw embeddings, SEC keeps their norms together.

Names are imported when they are first used (PEP 562), so that `isosphere --help` does not wait for torch. The list of
them is `__init__.pyi`, which type checkers read, too.
"""

import ast
import pkgutil
from importlib import import_module

_STUB = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")
_HOME = {name.name: line.module for line in _STUB.body if isinstance(line, ast.ImportFrom) for name in line.names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    try:
        if _HOME[name] == __name__:
            return import_module(f"{__name__}.{name}")
        return getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        from isosphere.errors import missing_extra

        raise missing_extra(error, f"{__name__}.{name}") from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("isosphere")
    except PackageNotFoundError:  # the source on the path, not installed
        return "0+unknown"
