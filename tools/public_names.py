"""Writes the lists of public names from what is there: `__init__.pyi` and `functional.py` of src/isosphere.

    python tools/public_names.py

A type checker reads the first, and so does `import isosphere`: there is no second list. A test checks both.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import isfunction, signature
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "isosphere"
FORMULAS = (
    "balanced", "binary", "centers", "contrastive", "lists", "margins", "norms", "pairs", "rankings", "tuplets",
    "two_sets",
)  # fmt: skip
"""Files of losses/ with functions of embeddings."""

PUBLIC: dict[str, tuple[str, ...] | None] = {  # None: everything in the package's __all__
    "isosphere": (
        "data", "distributed", "errors", "functional", "losses", "metrics", "models", "monitor", "samplers", "sphere",
    ),
    "isosphere.distributed": ("gather",),
    "isosphere.front": ("fit", "load_run"),
    "isosphere.gallery": ("load_gallery",),
    "isosphere.inference": ("load",),
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


def functional() -> str:
    """The text of functional.py: every function of (embeddings, ...) in the files of formulas, and the ramp of eta."""
    about = "The losses and penalties as pure functions of embeddings, as torch.nn.functional is to torch.nn."
    lines, exported = [f'"""{about}"""', ""], []
    for file in FORMULAS:
        module = import_module(f"isosphere.losses.{file}")
        own = [(name, value) for name, value in vars(module).items() if name[0] != "_" and isfunction(value)]
        own = [(name, value) for name, value in own if value.__module__ == module.__name__]
        names = sorted(name for name, value in own if name == "ramp" or _takes_embeddings(value))
        lines.append(f"from isosphere.losses.{file} import {', '.join(names)}")
        exported += names
    return "\n".join([*lines, "", "__all__ = [", *(f'    "{name}",' for name in sorted(exported)), "]", ""])


def _takes_embeddings(function: Callable) -> bool:
    return next(iter(signature(function).parameters), "") in ("embeddings", "queries")


FILES = {SOURCE / "__init__.pyi": stub, SOURCE / "functional.py": functional}

if __name__ == "__main__":
    (SOURCE / "__init__.pyi").touch()  # `import isosphere` reads it
    for path, text in FILES.items():
        path.write_text(text(), encoding="utf-8")
