"""What is published works without the checkout: an sdist, the wheel that is built from it, and its commands."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TREE = ("benchmarks", "docs", "examples", "results", "src", "tests", "tools")
TOP = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "MANIFEST.in", "README.md")


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """A folder with the sdist and the wheel, built of a copy: setuptools writes next to the source."""
    folder = tmp_path_factory.mktemp("published")
    hidden = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in TREE:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=hidden)
    for name in (*TOP, "pyproject.toml"):
        shutil.copy(ROOT / name, folder / "source")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "source"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "eprecat" not in done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def site(published) -> Path:
    """A folder with what the wheel installs."""
    (wheel,) = published.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(published.parent / "site")
    return published.parent / "site"


def test_a_registry_takes_both(published):
    command = [sys.executable, "-m", "twine", "check", "--strict", *published.iterdir()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert len(list(published.iterdir())) == 2 and done.returncode == 0, done.stdout


def test_the_sdist_holds_all_that_the_tests_read(published):
    (sdist,) = published.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    paths = [path.relative_to(ROOT) for name in TREE for path in (ROOT / name).rglob("*") if path.is_file()]
    made = {"__pycache__", "isosphere.egg-info"}
    assert {path.as_posix() for path in paths if not made & {*path.parts}} <= held
    assert {*TOP, "pyproject.toml"} <= held
    assert sdist.stat().st_size < 10e6


def test_the_citation_is_of_this_version_and_names_the_paper(site):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software" and citation["message"]
    assert (site / f"{citation['title'].partition(':')[0]}-{citation['version']}.dist-info").is_dir()
    (paper,) = citation["references"]
    assert paper["title"] == "Deep Metric Learning with Spherical Embedding" and paper["year"] == 2020
    assert [author["family-names"] for author in paper["authors"]] == ["Zhang", "Li", "Zhang"]


def test_the_wheel_holds_every_file(site):
    def files(folder: Path) -> set[str]:
        paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(folder)) for path in paths}

    assert files(ROOT / "src" / "isosphere") == files(site / "isosphere")
    assert {"py.typed", "__init__.pyi", "report/page/page.css"} <= files(site / "isosphere")
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"isosphere"}, "and no tests"
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
