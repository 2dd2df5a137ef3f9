"""One thread in every test, and what many tests share: photographs, and a run on them."""

import os
from pathlib import Path

import pytest

# Two that share a core with another process wait for each other most of the time.
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, also in the processes that tests start


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes of five small pictures."""
    import numpy as np
    from PIL import Image

    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for label in range(10):
        (root / f"class{label}").mkdir()
        color = generator.integers(0, 255, 3)
        for number in range(5):
            noise = generator.integers(0, 30, (24, 28, 3))
            pixels = (color // 2 + noise).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class{label}" / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the photographs, from the command line."""
    from commands import isosphere
    from tiny import PHOTOS

    folder = tmp_path_factory.mktemp("walk")
    done = isosphere("train", photos, "--out", "run", "--seed", "3", *PHOTOS.split(), folder=folder)
    assert "run folder: run" in done.stdout and "R@1" in done.stdout
    return folder / "run"
