"""Writes src/isosphere/__init__.pyi, the list of public names, from what the sub-packages export.

    python tools/public_names.py

A type checker reads that file, and so does `import isosphere`: there is no second list. A test checks that it is new.
"""

from importlib import import_module
from pathlib import Path

STUB = Path(__file__).parents[1] / "src" / "isosphere" / "__init__.pyi"

PUBLIC: dict[str, tuple[str, ...] | None] = {  # None: everything in the package's __all__
    "isosphere": (
        "data", "distributed", "errors", "functional", "losses", "metrics", "models", "monitor", "samplers", "sphere",
    ),
    "isosphere.distributed": ("gather",),
    "isosphere.inference": ("load_run",),
    "isosphere.losses": None,
    "isosphere.metrics": None,
    "isosphere.models": None,
    "isosphere.monitor": ("NormMonitor",),
    "isosphere.samplers": ("ClassBatches",),
}  # fmt: skip


def stub() -> str:
    """The text of the file: an import for each name, in the form that marks it as public."""
    lines = ['"""Public names, written by tools/public_names.py; names are imported when first used."""', ""]
    for place, chosen in PUBLIC.items():
        names = sorted(chosen or import_module(place).__all__)
        lines += [f"from {place} import {name} as {name}" for name in names]
    return "\n".join([*lines, "", "__version__: str", ""])


if __name__ == "__main__":
    STUB.touch()  # `import isosphere` reads it
    STUB.write_text(stub(), encoding="utf-8")
