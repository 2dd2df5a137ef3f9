"""The site builds strictly, has every page and every public name, and fetches nothing; the Python of its pages runs."""

import html
import re
import subprocess
import sys
import typing
from base64 import b64decode
from fnmatch import fnmatch
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from fontTools.ttLib import TTFont
from PIL import Image

import isosphere
import ranks
from browser import Browser, find_browser
from isosphere import cli, runs
from isosphere.metrics import registry
from isosphere.recipes import schema
from test_readme import blocks

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def reference():
    """tools/docs_reference.py, which finds formulas.py next to it."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import docs_reference
    finally:
        sys.path.pop(0)
    return docs_reference


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it; a page outside of the navigation, or a dead link, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def text(site) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))


def test_the_site_has_every_page(site):
    assert [page for page in PAGES if not (site / page.with_suffix(".html")).is_file()] == []


def test_no_page_fetches_anything(text):
    assert not re.findall(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="(?:https?:)?//[^"]+', text)


def test_formulas_are_shown_without_a_script(text):
    assert "<math" in text and "arithmatex" not in text
    formulas = "".join(re.findall(r"<math.*?</math>", text, re.DOTALL))
    shown = {*html.unescape(re.sub(r"<[^>]+>", "", formulas))}
    assert "\\" not in shown, "a command of LaTeX that the converter does not know"
    style = (ROOT / "docs" / "assets" / "formulas.css").read_text(encoding="utf-8")
    (font,) = re.findall(r"base64,([^\")]+)", style)
    known = TTFont(BytesIO(b64decode(font))).getBestCmap()
    italic = {chr(ord(letter) - ord("a") + 0x1D44E) for letter in shown if "a" <= letter <= "z" and letter != "h"}
    assert {letter for letter in shown | italic if ord(letter) not in known} == set()


def test_every_public_loss_and_metric_has_its_formula_and_no_other_has(reference):
    losses = {*isosphere.losses.__all__, *reference.constraint_places()} - {*reference.NO_LOSS}
    named = [name for family in reference.FAMILIES.values() for name in family.formulas]
    assert sorted(named) == sorted({*losses, *isosphere.metrics.__all__})
    assert {kind.built_by for kind in typing.get_args(schema.Constraint) if hasattr(kind, "built_by")} - {
        f"{module}:{name}" for name, module in reference.constraint_places().items()
    } == {schema.Baseline.built_by}


def test_every_pure_function_is_in_the_reference(text):
    assert [name for name in isosphere.functional.__all__ if f'id="isosphere.functional.{name}"' not in text] == []


def test_every_public_name_is_in_the_reference(text):
    names = [name for name in isosphere.__all__ if not find_spec(f"isosphere.{name}")]
    assert [name for name in names if not re.search(rf'id="isosphere\.(\w+\.)*{name}"', text)] == []


def test_every_command_and_every_file_of_a_run_is_in_the_reference(reference, trained):
    assert [name for name in cli.COMMANDS if f"usage: isosphere {name}" not in reference.commands_page()] == []
    files = [str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()]
    known = [*reference.FILES, ".lock*"]
    assert runs.RESULT in files
    assert [file for file in files if not any(fnmatch(file, name.rstrip("/") + "*") for name in known)] == []
    kinds = {line["kind"]: line.keys() - {"kind", "step"} for line in runs.entries(trained)}
    assert kinds.keys() <= reference.KINDS.keys() and kinds["train"] <= registry.KNOWN.keys()


def some_names() -> dict[str, Any]:
    """What the pages leave open: a small model, a batch and its embeddings."""
    torch.manual_seed(0)
    labels, images = torch.arange(24) % 6, torch.randn(24, 12)
    model = torch.nn.Sequential(torch.nn.Linear(12, 10), torch.nn.ReLU(), torch.nn.Linear(10, 8))
    return {
        "model": model, "images": images, "labels": labels, "embeddings": model(images), "isosphere": isosphere,
        "criterion": isosphere.TripletLoss(), "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "all_labels": labels.tolist(), "dataset": list(zip(images, labels, strict=True)), "rank": 0, "world": 1,
    }  # fmt: skip


OURS = [page for page in PAGES if page.parts[0] in ("start", "concepts", "develop")]
OURS += [Path("guides", f"{name}.md") for name in ("own_images", "from_pml")]


@pytest.mark.parametrize("page", [page for page in OURS if blocks(ROOT / "docs" / page, "python")], ids=str)
def test_the_python_of_a_page_runs(page, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "my_photos-seed0").symlink_to(trained)
    for name in "ab":
        Image.new("RGB", (30, 24)).save(f"{name}.jpg")
    names = some_names()
    for part in blocks(ROOT / "docs" / page, "python"):
        exec(part, names)
    assert page.stem != "own_images" or names["cosines"].shape == (2, 2)
    assert names.get("loss", torch.zeros(())).isfinite()


def gradients(code: str) -> torch.Tensor:
    """The gradients of the model after the code of a page, on this rank's part of the batch."""
    names = some_names()
    rank, world = isosphere.distributed.rank(), isosphere.distributed.world()
    names |= {key: names[key].chunk(world)[rank] for key in ("images", "labels")}
    exec(code if world > 1 else code.replace("DistributedDataParallel(model)", "model"), names)
    return torch.cat([parameter.grad.flatten() for parameter in names["model"].parameters()])


def test_two_processes_have_the_gradients_of_one():
    code, batches = blocks(ROOT / "docs" / "guides" / "several_gpus.md", "python")
    wanted = gradients(code)
    for found in ranks.on_ranks(2, gradients, code):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    names = some_names() | {"all_labels": [number % 20 for number in range(80)]}
    exec(batches, names)
    assert len(names["batches"].indices(0)) == 60


TYPED = """new Promise((done) => setInterval(() => {
  document.querySelector(".md-search__input").dispatchEvent(new KeyboardEvent("keyup"))
  if (document.querySelector(".md-search-result__link")) done(true)
}, 200))"""


@pytest.mark.skipif(find_browser() is None, reason="no Chromium")
def test_search_works_from_disk(site, tmp_path):
    browser = Browser(tmp_path)
    try:
        browser.open(site / "index.html")
        browser.run("document.querySelector('#__search').click()")
        browser.run("document.querySelector('.md-search__input').value = 'semihard_triplet'")
        browser.run(TYPED)
        assert "reference/pairs.html" in browser.run("document.querySelector('.md-search-result__link').href")
        assert browser.complaints == []
    finally:
        browser.close()
