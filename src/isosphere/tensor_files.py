"""Files of `torch.save`, also a stranger's: read without running code from them, and refused in words of ours."""

import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

from isosphere.errors import DamagedFile, UnsafeFile


def read_tensors(path: str | Path, ours: bool = False, weights: bool = True) -> Any:
    """Tensors and plain values on the CPU. One of `ours` is a zip whose checksums are right.

    Without `weights` the tensors stay on the disk, for the sake of the plain values.

    torch's messages are left out: they advise to switch its safety off.
    """
    import torch

    try:
        if ours:
            _check_zip(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles of other protocols
            return torch.load(path, map_location="cpu", weights_only=True, mmap=None if weights else True)
    except DamagedFile:
        raise
    except pickle.UnpicklingError:
        raise UnsafeFile(path, "is damaged, or holds more than tensors and could run code") from None
    except OSError as error:
        raise DamagedFile(path, error.strerror or str(error)) from None
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise DamagedFile(path, f"torch cannot read it ({type(error).__name__})") from None


def _check_zip(path: str | Path) -> None:
    """torch itself does not check them: a flipped bit would be another weight."""
    if not zipfile.is_zipfile(path):
        raise DamagedFile(path, "it is cut short, or is not a file of torch.save")
    try:
        with zipfile.ZipFile(path) as held:
            broken = held.testzip()
    except Exception as error:
        raise DamagedFile(path, f"it is damaged ({type(error).__name__})") from None
    if broken:
        raise DamagedFile(path, f"the checksum of its part {broken} is wrong")
