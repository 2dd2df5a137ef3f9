"""What README and docs say to type: the Python runs, and the commands name recipes and fields that there are."""

import re
import shlex
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from commands import isosphere
from isosphere import cli
from isosphere.paper import ALL
from isosphere.recipes import options
from isosphere.recipes.constraints import SEC
from tiny import PHOTOS

ROOT = Path(__file__).parents[1]
MAP = ROOT / "docs" / "evidence" / "paper_map.md"
DOCS = sorted(path for path in (ROOT / "docs").rglob("*.md") if path != MAP)
TEXTS = [ROOT / "README.md", *DOCS]
FILES = [*TEXTS, ROOT / "CONTRIBUTING.md", MAP, ROOT / "results" / "README.md"]
PLACEHOLDERS = r"\b[A-Z]{3,}\b|\.\.\.|^isosphere \S+$"
OURS = ("src/", "tests/", "docs/", "results/", "benchmarks/", "examples/", "tools/")


def blocks(path: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [body for kind, body in found if kind == language]


def quoted(path: Path) -> list[str]:
    """What stands in single backticks outside of blocks."""
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`]+)`", prose)


def commands(path: Path, prose: bool = True) -> list[list[str]]:
    """The words of every `isosphere ...` in blocks, less comments, what stands before, and `...` with what follows."""
    lines = "\n".join(blocks(path, "")).replace("\\\n", " ").splitlines()
    lines += [" ".join(one.split()) for one in quoted(path) if prose and not re.search(PLACEHOLDERS, one)]
    found = [re.search(r"(?:^|-m |\d )isosphere (.+)", line) for line in lines]
    words = [shlex.split(match.group(1), comments=True) for match in found if match]
    return [its[: its.index("...")] if "..." in its else its for its in words]


def test_the_python_of_readme_runs(tmp_path, monkeypatch, photos):
    monkeypatch.chdir(tmp_path)  # it writes norms.jsonl
    torch.manual_seed(0)
    model, labels = torch.nn.Linear(8, 16), torch.arange(60) % 15
    names = {"labels": labels, "test_labels": labels}
    names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in blocks(ROOT / "README.md", "python"):
        names["embeddings"], names["test_embeddings"] = model(torch.randn(60, 8)), torch.randn(60, 16)
        part = part.replace('"./my_photos"', f'"{photos}", loop={{"steps": 1, "workers": 0}}, batches={{"size": 8}}')
        for letter, image in zip("ab", sorted(photos.rglob("*.png")), strict=False):
            part = part.replace(f'"{letter}.jpg"', f'"{image}"')
        exec(part, names)
        if "monitor" in names:
            names["embeddings"].sum().backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its alarms
                names.pop("monitor").close()
    assert model.weight.grad is not None and set(names["recall"]) == {1, 2, 4, 8}
    assert '"kind": "train"' in (tmp_path / "norms.jsonl").read_text()
    assert names["unit"].shape == (2, 128) and names["run"].recipe.constraint == SEC()
    torch.testing.assert_close(names["unit"].norm(dim=1).cpu(), torch.ones(2))


RECIPE_OF = {"table2": "cub200-ms", "table3": "cub200-ms", "rates": "cub200-ms", "heads": "cub200-ms",
             "table4": "casia-arcface", "table5": "simclr-cifar10", "causes": "cub200-ms"}  # fmt: skip


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_commands_can_be_typed_and_name_recipes_and_fields_that_there_are(path):
    for words in commands(path):
        _, asked = cli.read(words)  # refuses what a command does not take
        if words[0] == "reproduce":
            name = RECIPE_OF[asked.table]
        elif words[0] != "train" or asked.resume:
            continue
        else:
            name = "photos" if asked.what.startswith("./") else asked.what
        options.override(ALL[name], asked.changes)


SMALL = [*PHOTOS.split(), "--batches.size", "6", "--loop.steps", "1", "--loop.workers", "0"]
OTHERS = ("demo", "--model.", "serve", "./shots", "./persons", "./Market-1501")
"""Tested elsewhere, or with weights or images that are not here, or without an end."""


@pytest.mark.parametrize("page", ["README.md", "docs/start/first_run.md", "docs/guides/own_images.md"])
def test_the_commands_for_own_images_run(page, photos, trained, tmp_path):
    for name in ("my_photos", "other_photos"):
        shutil.copytree(photos, tmp_path / name)  # a link would be called as what it leads to
    shutil.copy(photos / "class3" / "1.png", tmp_path / "photo.jpg")
    if page.endswith("own_images.md"):  # it begins with the split of a run that is there
        shutil.copytree(trained, tmp_path / "runs" / "my_photos-seed0", ignore=shutil.ignore_patterns(".lock*"))
    found = [its for its in commands(ROOT / page, prose=False) if not any(word.startswith(OTHERS) for word in its)]
    for words in found:
        small = SMALL if words[0] == "train" and "--resume" not in words else []
        isosphere(*words, *small, folder=tmp_path)
    used = {"index", "search"} if page == "README.md" else {"embed"}
    assert {"train"} | used <= {words[0] for words in found}
    assert (tmp_path / ("found.html" if page == "README.md" else "e.npy")).is_file()


def test_commands_are_found_in_blocks_and_in_lines():
    assert {"README", "faces", "simclr", "own_images"} <= {path.stem for path in TEXTS if commands(path)}
    assert ["figure", "rates", "results/rates_cub200.json"] in commands(ROOT / "docs" / "evidence" / "figures.md")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_ours_that_a_text_names_are_there(path):
    named = [re.split(r"::|:(?=\w)", one)[0] for one in quoted(path)]
    named = [one for one in named if one.startswith(OURS) or re.fullmatch(r"[\w/]+\.py", one)]
    roots = (ROOT, ROOT / "src" / "isosphere", ROOT / "tests")
    assert not [one for one in named if not any(any(root.glob(one)) for root in roots)]
