"""One thread and one cache in every test, and what many tests share: photographs, and a run on them."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browser import Browser

# Two that share a core with another process wait for each other most of the time.
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, also in the processes that tests start
# The user's own cache is left alone. Processes that tests start have this one, too.
os.environ["ISOSPHERE_CACHE"] = tempfile.mkdtemp(prefix="isosphere-cache-")
atexit.register(shutil.rmtree, os.environ["ISOSPHERE_CACHE"], ignore_errors=True)


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
    done = isosphere("train", "photos-sec", photos, "--out", "run", "--seed", "3", *PHOTOS.split(), folder=folder)
    assert "run folder: run" in done.stdout and "R@1" in done.stdout
    return folder / "run"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Browser]":
    """A page of a headless Chromium; skipped without one, unless ISOSPHERE_REQUIRE_BROWSER is set."""
    from browser import Browser, find_browser

    if find_browser() is None:
        if os.environ.get("ISOSPHERE_REQUIRE_BROWSER"):
            pytest.fail("ISOSPHERE_REQUIRE_BROWSER is set, but there is no Chromium or Chrome on the PATH")
        pytest.skip("no Chromium or Chrome on the PATH: apt-get install chromium")
    page = Browser(tmp_path_factory.mktemp("profile"))
    yield page
    page.close()
