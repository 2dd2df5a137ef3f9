"""Face packs: what every version of Python and numpy writes is read, and nothing else is obeyed."""

import io
import os
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.bins import read_bin
from isosphere.errors import DamagedFile, NotAPack, NotFound, UnreadableImages, UnsafeFile
from raised import raised


def pictures(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, (6, 5, 3), dtype=np.uint8) for _ in range(count)]


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


ENCODED = [png(image) for image in pictures(6)]
EXPECTED = torch.from_numpy(np.stack(pictures(6))).permute(0, 3, 1, 2)
SAME = [True, False, True]
TRUTHS = [SAME, tuple(SAME), list(map(int, SAME)), np.array(SAME), np.array(SAME)[:, None], np.array(SAME)[::-1][::-1]]
TRUTHS += [list(map(kind, SAME)) for kind in (np.bool_, np.uint8, np.int8, np.int32, np.int64, np.uint64)]
TRUTHS += [np.array(SAME, dtype=kind) for kind in ("u1", "i1", "i2", "<i4", ">i4", "<i8", ">i8", "u8")]
TRUTHS += [list(np.array(SAME, dtype=">i4")), np.repeat(SAME, 2)[::2]]  # the last is not contiguous


def check(path: Path) -> None:
    pixels, same = read_bin(path)
    assert torch.equal(pixels, EXPECTED) and same.dtype == torch.bool and same.tolist() == SAME


@pytest.mark.parametrize("protocol", range(6))
def test_packs_of_python_3(tmp_path: Path, protocol: int) -> None:
    arrays = [np.frombuffer(data, np.uint8) for data in ENCODED]
    columns = [array.reshape(-1, 1).copy() for array in arrays]  # as OpenCV encodes
    for images in (ENCODED, list(map(bytearray, ENCODED)), arrays, columns):
        for same in TRUTHS:
            (tmp_path / "a.bin").write_bytes(pickle.dumps((images, same), protocol=protocol))
            check(tmp_path / "a.bin")
    (tmp_path / "a.bin").write_bytes(pickle.dumps([ENCODED, SAME], protocol=protocol))
    check(tmp_path / "a.bin")


def python_2_string(data: bytes) -> bytes:
    """BINSTRING: the text of Python 2, bytes without an encoding."""
    return b"T" + struct.pack("<i", len(data)) + data


def python_2_array(data: bytes) -> bytes:
    """numpy's array as Python 2 pickles it: numpy.core, and text where Python 3 has bytes."""
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return empty + b"(K\x01(J" + struct.pack("<i", len(data)) + b"t" + kind + b"\x89" + python_2_string(data) + b"tb"


@pytest.mark.parametrize("image", [python_2_string, python_2_array])
def test_packs_of_python_2(tmp_path: Path, image) -> None:
    images = b"](" + b"".join(map(image, ENCODED)) + b"e"
    pack = b"\x80\x02" + images + b"](" + b"\x88\x89\x88" + b"e\x86."
    loaded, same = pickle.loads(pack, encoding="bytes")  # the standard library agrees on what it is
    assert [bytes(one) for one in loaded] == ENCODED and same == SAME
    (tmp_path / "a.bin").write_bytes(pack)
    check(tmp_path / "a.bin")


class Command:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.path}",)


class Evaluated(Command):
    def __reduce__(self) -> tuple:
        return eval, (f"open({str(self.path)!r}, 'w')",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("kind, named", [(Command, "posix.system"), (Evaluated, "(builtins|__builtin__).eval")])
def test_a_malicious_pack_is_refused_by_name(tmp_path: Path, protocol: int, kind: type, named: str) -> None:
    trap = tmp_path / "trap"
    for content in ((ENCODED, [*SAME, kind(trap)]), (ENCODED, SAME, kind(trap)), kind(trap)):
        (tmp_path / "a.bin").write_bytes(pickle.dumps(content, protocol=protocol))
        with raised(UnsafeFile, path=tmp_path / "a.bin") as caught:
            read_bin(tmp_path / "a.bin")
        assert re.search(named, caught.value.reason) and not trap.exists()
    pickle.loads((tmp_path / "a.bin").read_bytes())
    assert trap.exists()  # it was one indeed


@pytest.mark.parametrize(
    "pack, named",
    [
        (b"(S'true'\nios\nsystem\n.", "opcode INST"),
        (b"(c_codecs\nencode\nS'true'\no.", "opcode OBJ"),
        (b"\x80\x02cos\nsystem\n)\x81.", "os.system"),
        (b"Pfile\n.", "opcode PERSID"),
        (b"\x80\x02\x82\x01.", "opcode EXT1"),
        (pickle.dumps({"a": 1}), "opcode EMPTY_DICT"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0ccore.os.link\x93.", "asks for numpy.core.os.link"),
        (pickle.dumps((ENCODED, [open, False, True]), protocol=2), "asks for (io|_io).open"),
        (pickle.dumps(([np.array([open], dtype=object)], SAME), protocol=2), "asks for (io|_io).open"),
    ],
)
def test_foreign_opcodes_and_names_are_refused(tmp_path: Path, pack: bytes, named: str) -> None:
    (tmp_path / "a.bin").write_bytes(pack)
    with raised(UnsafeFile, path=tmp_path / "a.bin") as caught:
        read_bin(tmp_path / "a.bin")
    assert re.search(named, caught.value.reason)


def test_opcodes_are_judged_before_one_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isosphere.data.bins._Unpickler", lambda *given, **named: pytest.fail("it was loaded"))
    words = ("posix", "system")  # so that the name is fetched from the memo
    for protocol in range(6):
        for content in ((ENCODED, [Command(tmp_path / "trap")]), (words, ENCODED, [Command(tmp_path / "trap")])):
            (tmp_path / "a.bin").write_bytes(pickle.dumps(content, protocol=protocol))
            with raised(UnsafeFile) as caught:
                read_bin(tmp_path / "a.bin")
            assert "posix.system" in caught.value.reason


@pytest.mark.parametrize(
    "pack, named",
    [
        (b"\x8c\x02os\x94\x8c\x06system\x940\x8c\x06system\x93.", None),  # POP between the two
        (b"\x8c\x05numpy\x8c\x06system\x8c\x07ndarray0\x93.", None),
        (b"\x8c\x02os\x8c\x06system\x86\x94h\x00\x93.", None),  # a tuple from the memo
        (b"\x8c\x06system\x93.", None),
        (b"\x8c\x02os\x94N\x94h\x00\x8c\x06system\x93.", "os.system"),
        (b"\x8c\x05numpyq\x07\x8c\x02osq\x07h\x07\x8c\x06system\x93.", "os.system"),  # put over another
        (b"X\x02\0\0\0osr\x00\x01\0\0Vsystem\nj\x00\x01\0\0h\x01\x93.", None),
        (b"X\x02\0\0\0osr\x00\x01\0\0j\x00\x01\0\0Vsystem\n\x93.", "os.system"),
    ],
)
def test_a_name_from_the_stack_is_known_before_it_is_asked_for(tmp_path: Path, monkeypatch, pack, named) -> None:
    monkeypatch.setattr("isosphere.data.bins._Unpickler", lambda *given, **named: pytest.fail("it was loaded"))
    (tmp_path / "a.bin").write_bytes(b"\x80\x04" + pack)
    with raised(UnsafeFile) as caught:
        read_bin(tmp_path / "a.bin")
    assert (named or "a name") in caught.value.reason and ("os.system" in caught.value.reason) == bool(named)


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    "content, part, found",
    [
        ((ENCODED, np.array(SAME, dtype=object)), "arrays", "Python objects"),
        ((np.array(ENCODED, dtype=object), SAME), "arrays", "Python objects"),
        ((ENCODED, np.array(SAME, dtype=float)), "arrays", "the type 'f8'"),
        ((ENCODED, [1.0, 0.0, 1.0]), "one of the truth values", "a value of the type float"),
        ((ENCODED, [True, None, False]), "one of the truth values", "a value of the type NoneType"),
        ((ENCODED, [np.array([1]), 0, 0]), "one of the truth values", "an array of the type 'i8'"),
        ((ENCODED, None), "truth values", "a value of the type NoneType"),
        ((ENCODED, 1), "truth values", "a value of the type int"),
        ((np.zeros((6, 9), np.uint8), SAME), "images", "an array of the type 'u1'"),
        (([np.zeros(9, np.int32)] * 6, SAME), "one of the images", "an array of the type 'i4'"),
        (([[ENCODED[0]]] * 6, SAME), "one of the images", "a list of 1"),
        ((ENCODED, SAME, SAME), "content", "a tuple of 3"),
        (([np.zeros(3)], SAME), "arrays", "the type 'f8'"),
        (np.array(SAME), "content", "an array of the type 'b1'"),
        ((ENCODED, np.array([], dtype=bool)), "content", "6 images and 0 truth values"),
    ],
)
def test_what_is_harmless_and_no_pack_is_named(tmp_path: Path, protocol: int, content, part: str, found: str) -> None:
    (tmp_path / "a.bin").write_bytes(pickle.dumps(content, protocol=protocol))
    with raised(NotAPack, path=tmp_path / "a.bin", part=part, found=found):
        read_bin(tmp_path / "a.bin")


@pytest.mark.parametrize("kind", [int, np.uint8, np.int64, np.bool_])
def test_truth_values_are_0_and_1_alone(tmp_path: Path, kind: type) -> None:
    for wrong in (-1, 2, 255)[kind is np.uint8 :]:
        (tmp_path / "a.bin").write_bytes(pickle.dumps((ENCODED, [kind(1), kind(0), kind(wrong)])))
        if kind is np.bool_:  # whatever is true is 1
            assert read_bin(tmp_path / "a.bin")[1].tolist() == [True, False, True]
        else:
            with raised(NotAPack, part="one of the truth values", found=str(wrong)):
                read_bin(tmp_path / "a.bin")
            (tmp_path / "a.bin").write_bytes(pickle.dumps((ENCODED, np.array([1, 0, wrong], dtype=kind))))
            with raised(NotAPack, part="one of the truth values", found=str(wrong)):
                read_bin(tmp_path / "a.bin")


def test_other_contents_and_damage(tmp_path: Path) -> None:
    whole = pickle.dumps((ENCODED, SAME))
    small = png(pictures(1)[0][:3])
    for data, kind, fields in (
        (pickle.dumps((ENCODED[:5], SAME)), NotAPack, {"part": "content", "found": "5 images and 3 truth values"}),
        (pickle.dumps(([], [])), NotAPack, {"part": "content", "found": "0 images and 0 truth values"}),
        (pickle.dumps(((1, 2), [True])), NotAPack, {"part": "one of the images", "found": "a value of the type int"}),
        (pickle.dumps(ENCODED), NotAPack, {"part": "content", "found": "a list of 6"}),
        (whole[: len(whole) // 2], DamagedFile, {}),
        (b"", DamagedFile, {}),
        (b"\x80\x03](cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85Re](e\x86.", DamagedFile, {}),  # 2 GiB of nothing
        (b"\xff\xd8 an image", DamagedFile, {}),
        (pickle.dumps(([*ENCODED[:5], small], SAME)), NotAPack, {"part": "images"}),
    ):
        (tmp_path / "a.bin").write_bytes(data)
        with raised(kind, path=tmp_path / "a.bin", **fields):
            read_bin(tmp_path / "a.bin")
    (tmp_path / "a.bin").write_bytes(pickle.dumps(([*ENCODED[:4], b"no", b"image"], SAME)))
    with raised(UnreadableImages, total=6) as caught:
        read_bin(tmp_path / "a.bin")
    assert [failure.path for failure in caught.value.failures] == ["4 of a.bin", "5 of a.bin"]
    assert "BytesIO" not in str(caught.value)
    with raised(NotFound, path=tmp_path / "none.bin"):
        read_bin(tmp_path / "none.bin")
