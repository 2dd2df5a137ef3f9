"""The site builds strictly, holds every page and every public name, and asks nothing of the network."""

import re
import subprocess
import sys
import typing
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

import isosphere
from browser import Browser, find_browser
from isosphere import cli, runs
from isosphere.metrics import registry
from isosphere.recipes import schema

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


def test_every_public_loss_and_metric_has_its_formula_and_no_other_has(reference):
    losses = {*isosphere.losses.__all__, *reference.constraint_places()} - {*reference.OPTIMIZERS}
    losses.remove("balanced_directions")  # the function of BalancedDirections
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


@pytest.mark.skipif(find_browser() is None, reason="no Chromium")
def test_search_works_from_disk(site, tmp_path):
    browser = Browser(tmp_path)
    try:
        browser.open(site / "index.html")
        browser.run("document.querySelector('#__search').click()")
        browser.run("document.querySelector('.md-search__input').focus()")
        browser.ask("Input.insertText", text="semihard_triplet")
        found = "document.querySelector('.md-search-result__link')?.href"
        wait = f"new Promise((done) => setInterval(() => {found} && done({found}), 50))"
        assert "reference/pairs.html" in browser.run(wait)
        assert browser.complaints == []
    finally:
        browser.close()
