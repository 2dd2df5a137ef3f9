"""What is published works without the checkout: an sdist, the wheel that is built from it, and its commands."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(what: str, source: Path, folder: Path) -> Path:
    """Build `sdist` or `wheel` of a source folder, as pip does."""
    command = [sys.executable, "-c", BUILD, f"build_{what}", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    hidden = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=hidden)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    with tarfile.open(build("sdist", source, folder)) as archive:
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    with zipfile.ZipFile(build("wheel", unpacked, folder)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_file(site):
    def files(folder: Path) -> set[str]:
        paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(folder)) for path in paths}

    assert files(ROOT / "src" / "isosphere") == files(site / "isosphere")
    assert {"py.typed", "__init__.pyi"} <= files(site / "isosphere")
    assert len(list(site.glob("isosphere-*.dist-info/licenses/LICENSE"))) == 1


def run(site: Path, folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_used_without_the_checkout(site, tmp_path):
    code = "import isosphere; print(isosphere.__file__, isosphere.__version__, isosphere.SEC(0.1))"
    file, version, _ = run(site, tmp_path, "-c", code).split(maxsplit=2)
    assert Path(file).is_relative_to(site) and (site / f"isosphere-{version}.dist-info").is_dir()
    assert "train" in run(site, tmp_path, "-m", "isosphere", "--help")
    entries = (site / f"isosphere-{version}.dist-info" / "entry_points.txt").read_text().split()
    assert entries == ["[console_scripts]", "isosphere", "=", "isosphere.cli:main"]


def test_the_wheel_trains_and_draws_a_page(site, tmp_path):
    small = ["--loop.steps", "2", "--data.classes", "24", "--data.per_class", "6", "--data.size", "12"]
    small += ["--batches.size", "24", "--batches.per_class", "3", "--loop.save_every", "0", "--model.dim", "16"]
    run(site, tmp_path, "-m", "isosphere", "train", "rendered-sec", *small, "--out", "runs/one", "--device", "cpu")
    run(site, tmp_path, "-m", "isosphere", "report", "runs/one", "--out", "page.html")
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
