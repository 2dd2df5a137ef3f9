"""Face packs such as lfw.bin and cfp_fp.bin: pickles of encoded images, and which pairs are one person.

A pickle can run anything, so a pack is read twice. First its opcodes are checked, and nothing runs before all are known
to be harmless. Then it is loaded with stand-ins for the few names that packs contain. Python 2 or 3 may have written
it. Images may be bytes, bytearrays or numpy's arrays. Truth values may be bool or int, numpy's, or an array of these.
Neither numpy nor any other module is called.
"""

import io
import pickle
import pickletools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isosphere.errors import DamagedFile, NotAPack, NotFound, UnreadableImage, UnreadableImages, UnsafeFile

from .decoding import decode


class ForeignPickle(Exception):
    """Something in a pickle that no pack of faces contains."""


class ForeignType(Exception):
    """Harmless, but not what this part of a pack holds."""

    def __init__(self, part: str, found: str, expected: str) -> None:
        super().__init__(part, found, expected)


def read_bin(path: str | Path, workers: int = 8) -> tuple[Tensor, Tensor]:
    """Pixels of all images, uint8 (2P, 3, H, W), pairs in a row. The second, bool (P,), is whether a pair is one
    person.
    """
    from rich.progress import track

    path = Path(path)
    if not path.is_file():
        raise NotFound(path, "pack of face pairs")
    encoded, same = _contents(path)

    def pixels(place: int) -> Tensor | UnreadableImage:
        try:
            return decode(io.BytesIO(encoded[place]), f"{place} of {path.name}")
        except UnreadableImage as error:
            return error

    with ThreadPoolExecutor(workers) as pool:  # threads are enough: PIL decodes without the interpreter's lock
        found = list(track(pool.map(pixels, range(len(encoded))), "reading faces", len(encoded), transient=True))
    failures = [image for image in found if isinstance(image, UnreadableImage)]
    if failures:
        raise UnreadableImages(failures, len(found))
    images = [image for image in found if isinstance(image, Tensor)]
    sizes = sorted({tuple(image.shape[1:]) for image in images})
    if len(sizes) > 1:
        raise NotAPack(path, "images", f"of {len(sizes)} sizes, such as {sizes[0]} and {sizes[1]}", "of one size")
    return torch.stack(images), torch.tensor(same)


def _contents(path: Path) -> tuple[list[bytes], list[bool]]:
    """The two lists of a pack, checked in form and number."""
    try:
        with open(path, "rb") as file:
            _judge((opcode.name, argument) for opcode, argument, _ in pickletools.genops(file))
            file.seek(0)
            both = _Unpickler(file, encoding="bytes").load()  # Python 2's text was bytes, and is bytes here
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise ForeignType("content", _kind(both), "images and truth values")
        images, same = both
        same = same.values() if isinstance(same, _Array) else same
        names = {"images": "bytes", "truth values": "bool or int"}
        for name, values, kinds in (("images", images, (bytes, bytearray, _Array)), ("truth values", same, int)):
            if not isinstance(values, tuple | list):
                raise ForeignType(name, _kind(values), "a list")
            for value in values:
                if not isinstance(value, kinds):
                    raise ForeignType(f"one of the {name}", _kind(value), names[name])
        if not len(images) == 2 * len(same) > 0:
            found = f"{len(images)} images and {len(same)} truth values"
            raise ForeignType("content", found, "two images for each truth value")
        if not set(same) <= {0, 1}:
            raise ForeignType("one of the truth values", str(min(set(same) - {0, 1})), "0 or 1")
        images = [image.encoded() if isinstance(image, _Array) else bytes(image) for image in images]
    except ForeignPickle as error:
        raise UnsafeFile(path, str(error)) from None
    except ForeignType as error:
        raise NotAPack(path, *error.args) from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise DamagedFile(path, f"it is no pack of face pairs: {error}") from error
    return images, list(map(bool, same))


def _judge(opcodes: Iterable[tuple[str, Any]]) -> None:
    """Refuse foreign opcodes and names before one runs. A name from the stack must be two strings just pushed."""
    memo: dict[Any, str | None] = {}
    top: list[str | None] = []  # what is known to be on top of the stack: strings, or None for what is none
    for opcode, argument in opcodes:
        if opcode not in OPCODES:
            raise ForeignPickle(f"uses the pickle opcode {opcode}")
        if opcode in ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"):
            top.append(argument)
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            top.append(memo.get(argument))
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if opcode == "MEMOIZE" else argument] = top[-1] if top else None
        elif opcode != "FRAME":
            if opcode == "GLOBAL":
                _admitted(argument.replace(" ", "."))
            elif opcode == "STACK_GLOBAL":
                if len(top) < 2 or None in top[-2:]:
                    raise ForeignPickle("asks for a name that the opcodes before do not give")
                _admitted(".".join(map(str, top[-2:])))
            top = []


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        return _admitted(f"{module}.{name}")


class _Type:
    """Stands for numpy's dtype, of truth values or integers: b1, u1, i8 and the like."""

    def __init__(self, code: str | bytes, *rest: object) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code
        self.order: Literal["little", "big"] = "little"
        if self.code not in TYPES:
            kind = "Python objects" if str(self.code).startswith("O") else f"the type {self.code!r}"
            raise ForeignType("arrays", kind, "truth values of bool or int, and images of bytes")

    def __setstate__(self, state: tuple) -> None:
        """Of the state only the order of the bytes matters."""
        self.order = "big" if state[1] in (">", b">") else "little"

    def values(self, data: bytes) -> list[int]:
        """The numbers that these bytes are; whatever is a true bool is 1."""
        size = int(self.code[1])
        if len(data) % size:
            raise ForeignType("arrays", f"{len(data)} bytes", f"a whole number of the type {self.code!r}")
        signed, parts = self.code[0] == "i", (data[at : at + size] for at in range(0, len(data), size))
        found = [int.from_bytes(part, self.order, signed=signed) for part in parts]
        return [int(value != 0) for value in found] if self.code[0] == "b" else found


class _Array:
    """Stands for numpy's array: its bytes and their type."""

    def __init__(self, *rest: object) -> None:
        self.data = b""
        self.kind: Any = None

    def __setstate__(self, state: tuple) -> None:
        self.kind, self.data = state[2], state[4]

    def values(self) -> list[int]:
        return self.kind.values(self.data)

    def encoded(self) -> bytes:
        if self.kind.code != "u1":
            raise ForeignType("one of the images", _kind(self), "bytes")
        return self.data


def _bytes(text: str | bytes = "", encoding: str = "latin1") -> bytes:
    """Bytes, also as Python 3 writes them for Python 2: as text of which every letter is a byte."""
    return text if isinstance(text, bytes) else text.encode("latin1")


def _buffer(data: bytes | bytearray, kind: _Type, *rest: object) -> _Array:
    array = _Array()
    array.__setstate__((1, (), kind, False, bytes(data)))
    return array


def _truth(kind: _Type, data: bytes) -> int:
    (value,) = kind.values(data)
    return value


def _kind(value: object) -> str:
    """The type of what was found, in words."""
    if isinstance(value, _Array):
        return f"an array of the type {value.kind.code!r}"
    name = type(value).__name__
    return f"a {name} of {len(value)}" if isinstance(value, tuple | list) else f"a value of the type {name}"


def _admitted(name: str) -> object:
    if name not in ADMITTED:
        raise ForeignPickle(f"asks for {name}")
    return ADMITTED[name]


TYPES = {"b1", *(f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8))}
ADMITTED = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Type,
    "_codecs.encode": _bytes,
    "__builtin__.bytes": _bytes,
    "builtins.bytes": _bytes,
    "__builtin__.bytearray": _bytes,
    "builtins.bytearray": _bytes,
}
for _package in ("numpy.core", "numpy._core"):  # before and since numpy 2
    ADMITTED[f"{_package}.multiarray._reconstruct"] = _Array
    ADMITTED[f"{_package}.numeric._frombuffer"] = _buffer
    ADMITTED[f"{_package}.multiarray.scalar"] = _truth
OPCODES = set(
    """PROTO FRAME STOP MARK POP TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE LIST EMPTY_LIST APPEND APPENDS NONE NEWTRUE
    NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET
    LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD""".split()
)
