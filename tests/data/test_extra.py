"""Data and models need the extra "train", and say so at once; workers need nothing of the system."""

import os
import subprocess
import sys

import pytest
import torch

from isosphere import errors
from isosphere.data import workers

BLOCKED = """
import sys
from importlib import import_module
from isosphere import errors

for package in errors.EXTRAS["train"]:
    sys.modules[package] = None  # cannot be imported
    for module in ("isosphere.data", "isosphere.data.images", "isosphere.models", "isosphere.models.embedder"):
        try:
            import_module(module)
        except errors.MissingExtra as error:
            assert (error.package, error.extra) == (package, "train") and error.what == ".".join(module.split(".")[:2])
            assert str(error).count("pip install") == 1 and "\\n" not in str(error)
        else:
            raise AssertionError(f"{module} was imported without {package}")
    assert "torch" not in sys.modules, "the answer comes at once"
    del sys.modules[package]
import isosphere.samplers
"""


def test_a_missing_package_is_one_line_before_anything_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_packages_are_here() -> None:
    errors.need_all("train", "this test")


def test_cores_are_known_on_any_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= workers.cores() <= (os.cpu_count() or 1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert workers.cores() == os.cpu_count()


class Doubled(torch.utils.data.Dataset):
    def __getitem__(self, index: int) -> int:
        return 2 * index


@pytest.mark.parametrize("processes", [0, 2])
def test_work_comes_back_in_order_and_draws_nothing(processes: int) -> None:
    state = torch.get_rng_state()
    assert list(workers.in_workers(Doubled(), range(3, 9), processes, "doubling")) == [6, 8, 10, 12, 14, 16]
    assert list(workers.in_workers(Doubled(), [], None, "doubling")) == []
    assert torch.equal(torch.get_rng_state(), state)
