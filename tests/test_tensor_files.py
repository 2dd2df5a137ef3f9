"""Files of torch.save that are damaged, or that would run code."""

import io
import os
import pickle
import traceback
import zipfile
from pathlib import Path

import pytest
import torch

from isosphere.errors import DamagedFile, UnsafeFile
from isosphere.tensor_files import read_tensors
from raised import raised


class Malicious:
    """Runs a command where it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self):
        return os.system, (f"touch {self.made}",)


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as held:
        held.writestr("a", "b")
    return file.getvalue()


GOOD = saved({"step": 3, "weights": torch.zeros(4000)})
FLIPPED = bytes([*GOOD[:9000], GOOD[9000] ^ 1, *GOOD[9001:]])
DAMAGED = {
    "empty": b"", "cut": GOOD[: len(GOOD) // 2], "text": b"hello", "zip": zipped(), "one bit": FLIPPED,
    "old": pickle.dumps({"step": 3}), "noise": bytes(range(256)) * 20,
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused_in_our_words(content, tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with raised(DamagedFile, path=path) as caught:
        read_tensors(path, ours=True)
    assert "weights_only" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("place", ["alone", "inside", "module"])
def test_a_file_that_would_run_code_is_refused_and_runs_none(place, weights, ours, tmp_path):
    path, made = tmp_path / "checkpoint.pt", tmp_path / "made"
    value = {"alone": Malicious(made), "inside": {"recipe": [Malicious(made)]}, "module": torch.nn.Linear(2, 2)}[place]
    path.write_bytes(saved(value))
    with raised(UnsafeFile, path=path) as caught:
        read_tensors(path, ours, weights)
    assert not made.exists()
    assert "weights_only" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("content", [pickle.dumps(Malicious(Path("made"))), b"hello", b"\x80\x02}"])
def test_weights_of_others_may_be_of_an_old_format_but_not_malicious(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("weights.pth").write_bytes(content)
    with pytest.raises((UnsafeFile, DamagedFile)):
        read_tensors("weights.pth")
    assert os.listdir() == ["weights.pth"]
    torch.save({"a": torch.ones(2)}, "weights.pth", _use_new_zipfile_serialization=False)
    assert torch.equal(read_tensors("weights.pth")["a"], torch.ones(2))


def test_plain_values_can_be_had_without_weights(tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(GOOD)
    assert read_tensors(tmp_path / "checkpoint.pt", weights=False)["step"] == 3
