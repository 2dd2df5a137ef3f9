"""A run folder has one run at a time, with the system's lock and without one, among real processes and ranks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import isosphere
from isosphere.errors import FolderExists, Held
from isosphere.train import stopping
from isosphere.train.folder import LOCK, claimed, held
from isosphere.train.loop import fit
from raised import raised
from ranks import on_ranks, places
from tiny import TINY, tiny_recipe

SOURCE = str(Path(__file__).parents[2] / "src")
BEGIN = """
import sys
if sys.argv.pop(1) == "none":
    sys.modules["fcntl"] = sys.modules["msvcrt"] = None
"""
COMMAND = BEGIN + "from isosphere.cli import main\nmain()"
HOLDER = BEGIN + "from isosphere.train.folder import held\nwith held(sys.argv[1]):\n    print(flush=True)\n    input()"
CLAIMS = (
    "from isosphere.train.folder import claimed\n"
    "print(flush=True)\n"
    "input()\n"
    "for _ in range(20):\n"
    "    with claimed('runs', 'own') as folder:\n"
    "        (folder / 'mine').open('x').close()\n"
)
FIELDS = [word for key, value in (TINY | {"loop.steps": "2"}).items() for word in (f"--{key}", value)]


def started(code: str, folder: Path, *words: object) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(params=["system", "none"])
def kind(request: pytest.FixtureRequest) -> str:
    """The system's lock, and none."""
    return request.param


@pytest.fixture
def holder(kind: str, tmp_path: Path) -> Iterator[subprocess.Popen]:
    """Another process that holds the folder `run`."""
    process = started(HOLDER, tmp_path, kind, "run")
    assert process.stdout.readline() == "\n", process.communicate()
    yield process
    process.kill()
    process.communicate()


def test_two_commands_at_once_train_in_two_folders(kind, tmp_path):
    words = [kind, "train", "rendered", *FIELDS, "--constraint.eta"]
    both = [started(COMMAND, tmp_path, *words, eta) for eta in ("0.1", "5")]
    for process in both:
        shown, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "run folder: runs/rendered-sec-seed0" in shown
    folders = sorted((tmp_path / "runs").iterdir())
    recipes = [json.loads((folder / "recipe.json").read_text()) for folder in folders]
    assert [folder.name for folder in folders] == ["rendered-sec-seed0", "rendered-sec-seed0-2"]
    assert {recipe["constraint"]["eta"] for recipe in recipes} == {0.1, 5.0}
    assert all((folder / "result.json").is_file() and not (folder / LOCK).exists() for folder in folders)


def test_no_two_processes_claim_one_folder(tmp_path):
    processes = [started(CLAIMS, tmp_path) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "\n"
    for process in processes:  # all at once
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in processes] == [""] * 3
    numbers = {f"own-{number}" for number in range(2, 61)}
    assert {folder.name for folder in (tmp_path / "runs").iterdir()} == numbers | {"own"}


@pytest.mark.parametrize("words", [("train", "rendered", "--out", "run"), ("train", "--resume", "run")])
def test_a_named_folder_is_refused_with_its_holder_until_that_has_ended(words, kind, tmp_path, monkeypatch):
    fields = FIELDS if "--out" in words else []
    if "--resume" in words:
        fit(tiny_recipe(changes={"loop.steps": 2}), tmp_path / "run", "cpu")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("run/*")}
    holder = started(HOLDER, tmp_path, kind, "run")
    assert holder.stdout.readline() == "\n"
    if kind == "none":
        monkeypatch.setattr("isosphere.locks.fcntl", None)
    err = isosphere(*words, *fields, folder=tmp_path, code=Held.code).stderr
    assert str(holder.pid) in err.split() and len(err.splitlines()) == 1, err
    assert {path.name: path.read_bytes() for path in tmp_path.glob("run/*") if path.name != LOCK} == before
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    isosphere(*words, *fields, folder=tmp_path)
    assert (tmp_path / "run" / "result.json").is_file() and not (tmp_path / "run" / LOCK).exists()


def test_training_in_python_is_refused_alike(holder, kind, tmp_path, monkeypatch):
    if kind == "none":
        monkeypatch.setattr("isosphere.locks.fcntl", None)
    with pytest.raises(Held) as error:
        fit(tiny_recipe(), tmp_path / "run", "cpu")
    assert error.value.path == str(tmp_path / "run") and str(holder.pid) in error.value.holder.split()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]


def test_what_stays_empty_goes_again_and_what_was_there_stays(tmp_path):
    for place in (claimed(tmp_path / "a" / "b", "own"), held(tmp_path / "a" / "b")):
        with pytest.raises(KeyError), place:
            assert (tmp_path / "a" / "b").is_dir()
            raise KeyError
        assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    with held(tmp_path / "mine") as names:
        assert names == []
    assert (tmp_path / "mine").is_dir()
    (tmp_path / "mine" / "recipe.json").touch()
    with held(tmp_path / "mine") as names:
        assert names == ["recipe.json"]


def test_all_ranks_have_one_folder_and_one_refusal(tmp_path):
    (tmp_path / "own").mkdir()
    with held(tmp_path / "taken"):
        found = on_ranks(2, places, tmp_path)
    assert found[0] == found[1] == {"claimed": tmp_path / "own-2", "held": str(os.getpid())}
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_killed_before_its_recipe_was_whole_can_be_used_again(resume, tmp_path):
    run, left = tmp_path / "run", [".lock", ".0123456789ab.tmp", ".ba9876543210.tmp"]
    run.mkdir()
    for name in left:
        (run / name).write_text("half a rec")
    fit(tiny_recipe(changes={"loop.steps": 1}), run, "cpu", resume)
    assert (run / "result.json").is_file() and not set(left) & {path.name for path in run.iterdir()}


@pytest.mark.parametrize("name", [".keep", "notes.txt", ".0123.tmp"])
def test_what_somebody_else_keeps_in_a_folder_stays(name, tmp_path):
    (tmp_path / name).write_text("mine")
    (tmp_path / ".0123456789ab.tmp").write_text("of a page that is being written")
    with raised(FolderExists):
        fit(tiny_recipe(), tmp_path, "cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, ".0123456789ab.tmp"])


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hangup_asks_to_stop_unless_it_was_ignored(ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with stopping.signals() as caught:
            signal.raise_signal(signal.SIGHUP)
        assert caught == ([] if ignored else [signal.SIGHUP])
        assert signal.getsignal(signal.SIGHUP) == (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
