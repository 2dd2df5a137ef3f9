"""A folder for a model hub is read back as the same model, says nothing of this machine, and is written whole."""

import json

import pytest
import torch

import isosphere
from commands import has, refusal
from commands import isosphere as command
from isosphere import export
from isosphere.errors import BadCheckpoint, BadUsage, DamagedFile, FolderExists, OtherVersion
from isosphere.inference import CONFIG, WEIGHTS
from isosphere.recipes import schema
from raised import raised


@pytest.fixture
def folder(trained, tmp_path):
    done = command("export", trained, "--to", "safetensors", "--out", "hub", folder=tmp_path)
    assert done.stdout == "hub\n"
    return tmp_path / "hub"


def test_a_folder_gives_the_same_embeddings(trained, photos, folder):
    files, run = sorted((photos / "class3").iterdir()), isosphere.load_run(trained, "cpu")
    model = isosphere.load(folder, "cpu")
    torch.testing.assert_close(model.embed(files), run.embed(files), rtol=0, atol=0)
    torch.testing.assert_close(model.encode(files).norm(dim=1), torch.ones(5))
    torch.testing.assert_close(isosphere.load(trained, "cpu").encode(files), run.encode(files), rtol=0, atol=0)
    command("embed", folder, photos / "class3", "--out", "e.npy", folder=folder.parent)
    assert (folder.parent / "e.npy").is_file()


def test_it_holds_no_path_and_no_class_and_the_card_says_what_was_measured(trained, photos, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", CONFIG, WEIGHTS]
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    text = b"".join(path.read_bytes() for path in folder.iterdir())
    assert str(photos).encode() not in text and photos.name.encode() not in text and b"class3" not in text
    card = (folder / "README.md").read_text()
    recall = isosphere.load_run(trained, "cpu").metrics["recall@1"]
    assert card.startswith("---\nlibrary_name: isosphere\n") and f"| R@1 (%) | {100 * recall:.1f} |" in card
    config = json.loads((folder / CONFIG).read_text())
    assert config["dim"] == 16 and config["preprocessing"]["size"] == 16 and config["recipe"]["data"]["root"] == ""


def test_what_is_there_stays_and_what_fails_leaves_nothing(trained, folder, tmp_path, monkeypatch):
    assert has(refusal("export", trained, "--to", "safetensors", "--out", folder, folder=tmp_path), FolderExists)
    (tmp_path / "empty").mkdir()
    command("export", folder, "--to", "safetensors", "--out", "empty", folder=tmp_path)
    assert has(refusal("export", trained, "--to", "safetensors", "--raw", folder=tmp_path), BadUsage)
    monkeypatch.setattr("isosphere.export.folder.card", lambda *_: 1 / 0)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        export.to_folder(isosphere.load(folder, "cpu"), tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "change, kind",
    [
        (lambda config: config | {"format": 2}, OtherVersion),
        (lambda config: config | {"recipe": 3}, DamagedFile),
        (lambda config: config | {"recipe": config["recipe"] | {"new": 1}}, OtherVersion),
        (lambda config: config | {"recipe": config["recipe"] | {"model": {"dim": 5}}}, BadCheckpoint),
        (lambda config: [], DamagedFile),
    ],
)
def test_a_config_that_cannot_be_is_refused(folder, change, kind):
    path = folder / CONFIG
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with raised(kind):
        isosphere.load(folder, "cpu")


def test_damaged_weights_and_json_are_refused(folder):
    (folder / WEIGHTS).write_bytes(b"no weights")
    with raised(DamagedFile, path=str(folder / WEIGHTS)):
        isosphere.load(folder, "cpu")
    (folder / CONFIG).write_text("{")
    with raised(DamagedFile, path=folder / CONFIG):
        isosphere.load(folder, "cpu")


def test_the_card_of_a_stopped_run_without_metrics(made, tmp_path):
    trained = made(schema.Folder(size=16, shorter=20), schema.Model(dim=4))
    export.to_folder(trained, tmp_path / "hub")
    assert "None is recorded." in (tmp_path / "hub" / "README.md").read_text()
