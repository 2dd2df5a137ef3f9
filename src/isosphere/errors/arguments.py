"""Arguments and options that cannot be, and dependencies that are missing."""

from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from .base import InputError, IsosphereError, Option

EXTRAS = {  # the packages of each extra, by the names that are imported
    "train": ("torchvision", "timm", "scipy", "PIL", "safetensors", "rich", "matplotlib"),
    "parquet": ("pyarrow",),
    "huggingface": ("datasets",),
    "search": ("usearch", "pyarrow"),
    "qdrant": ("qdrant_client",),
    "tensorboard": ("tensorboard",),
    "lightning": ("lightning", "pytorch_lightning"),
    "oracles": ("sklearn", "pytorch_metric_learning"),
    "serve": ("starlette", "uvicorn"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "bench": ("faiss", "lightly"),
}


@dataclass(eq=False)
class MissingExtra(IsosphereError, ImportError):
    """A dependency of an extra that is not installed."""

    text: ClassVar[str] = "{what} needs {package}: pip install 'isosphere[{extra}]'"
    code: ClassVar[int] = 2
    what: str
    package: str
    extra: str


def need(package: str, extra: str, what: str) -> Any:
    """The module of an extra, or the one line that names the command which installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(what, package.split(".")[0], extra) from error


def need_all(extra: str, what: str) -> None:
    """Refuse at once if a package of the extra is missing, without the time that importing them takes."""
    for package in EXTRAS[extra]:
        try:
            found = find_spec(package) is not None
        except ImportError:
            found = False
        if not found:
            raise MissingExtra(what, package, extra)


def missing_extra(error: ImportError, what: str) -> ImportError:
    """The error that names the extra, for an import of one of its packages; else the error itself."""
    if isinstance(error, MissingExtra):
        return replace(error, what=what)
    if not isinstance(error, ModuleNotFoundError):
        return error
    package = (error.name or "").split(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    return error if extra is None else MissingExtra(what, package, extra)


@dataclass(eq=False)
class BadArgument(InputError):
    """An argument or a recipe's field with a value that cannot be."""

    text: ClassVar[str] = "{name} must be {expected}, not {value!r}"
    name: str | Option
    value: Any
    expected: str


@dataclass(eq=False)
class UnknownField(InputError):
    """A field that no recipe has; `near` are those like it, or all that could be meant."""

    text: ClassVar[str] = "{field} is not a field of the recipe; did you mean {near}?"
    field: Option
    near: tuple[Option, ...]


@dataclass(eq=False)
class UnknownRecipe(InputError):
    """A name that no recipe has; `near` are those like it."""

    text: ClassVar[str] = "{name} is neither a recipe nor a path; did you mean {near}?"
    name: str
    near: tuple[str, ...]


@dataclass(eq=False)
class UnfillableBatch(InputError):
    """A batch of more classes or images than there are; `most` is the largest that can be drawn."""

    text: ClassVar[str] = "a batch of {batch} needs {needed} {what}, but training has {found}; use at most {most}"
    batch: int
    needed: int
    what: str
    found: int
    most: Option


@dataclass(eq=False)
class Incompatible(InputError):
    """Fields of a recipe that do not go together."""

    text: ClassVar[str] = "{reason}; use {remedies}"
    fields: tuple[str, ...]
    reason: str
    remedies: tuple[Option, ...]


@dataclass(eq=False)
class WrongSize(InputError):
    """A backbone that cannot take images of the recipe's size."""

    backbone: str
    size: int | str
    reason: str

    @property
    def text(self) -> str:
        """A whole number is the side of a square."""
        size = self.size if isinstance(self.size, str) else f"{self.size}x{self.size}"
        return f"{{backbone}} cannot take {size} pixels: {{reason}}; choose another size or backbone"


@dataclass(eq=False)
class UnknownName(InputError):
    """A name that nothing has; `known` are all names, or the nearest ones."""

    text: ClassVar[str] = "there is no {what} {name!r}; try {known}"
    what: str
    name: str
    known: list[str]


@dataclass(eq=False)
class NotImportable(InputError):
    """An import path that leads nowhere."""

    text: ClassVar[str] = "cannot import {path}: {reason}"
    path: str
    reason: str


@dataclass(eq=False)
class NeedsObject(InputError):
    """A part of a run that was an object, which nothing but Python can give again."""

    text: ClassVar[str] = "this run has its own {part}, {path}, made in Python: give it again as {part}=..."
    part: str
    path: str


@dataclass(eq=False)
class OtherSource(InputError):
    """A part of a run whose source has changed since it was trained."""

    text: ClassVar[str] = "the {part} {path} is not what this run was trained with: put it back, or use {remedy}"
    part: str
    path: str
    remedy: Option
