"""What README and docs tell to type: the Python runs, and the commands name recipes and fields that there are."""

import re
import shlex
import warnings
from pathlib import Path

import pytest
import torch

from isosphere import cli
from isosphere.paper import ALL
from isosphere.recipes import options

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", ROOT / "docs" / "faces.md", ROOT / "docs" / "simclr.md"]


def blocks(path: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [body for kind, body in found if kind == language]


def commands(path: Path) -> list[list[str]]:
    """The words of every `isosphere ...` in blocks, less comments, what stands before, and `...` with what follows."""
    lines = "\n".join(blocks(path, "")).replace("\\\n", " ").splitlines()
    found = [re.search(r"(?:^|-m |\d )isosphere (.+)", line) for line in lines]
    words = [shlex.split(match.group(1), comments=True) for match in found if match]
    return [its[: its.index("...")] if "..." in its else its for its in words]


def test_the_python_of_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes norms.jsonl
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 16)
    labels = torch.arange(60) % 15
    names = {"labels": labels, "all_labels": labels.tolist(), "dim": 16, "classes": 15, "test_labels": labels}
    names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = blocks(ROOT / "README.md", "python")
    assert len(parts) == 4 and "load_run" in parts[-1], "of which test_cli has the like"
    for part in parts[:-1]:
        names["embeddings"], names["test_embeddings"] = model(torch.randn(60, 8)), torch.randn(60, 16)
        exec(part, names)
    names["loss"].backward()
    before = names["head"].weights.detach().clone()
    names["optimizer"].step()
    assert not torch.equal(names["head"].weights, before), "the optimizer was given the class weights"
    assert set(names["recall"]) == {1, 2, 4, 8} and names["batches"].indices(0).shape == (60,)
    names["embeddings"].sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its alarms
        names["monitor"].close()
    assert '"kind": "train"' in (tmp_path / "norms.jsonl").read_text()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_commands_can_be_typed_and_name_recipes_and_fields_that_there_are(path):
    found = commands(path)
    assert len(found) > 3
    for words in found:
        _, asked = cli.read(words)  # refuses what a command does not take
        if words[0] == "reproduce":
            name = {"table3": "cub200-ms", "table4": "casia-arcface", "table5": "simclr-cifar10"}[asked.table]
        elif words[0] != "train" or asked.resume:
            continue
        else:
            name = "photos-sec" if asked.what.startswith("./") else asked.what
        options.override(ALL[name], asked.changes)
