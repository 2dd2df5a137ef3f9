"""The command itself: help, version, unknown words, exit codes, and what it prints of errors and warnings."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from commands import has, isosphere, refusal
from isosphere import cli, errors
from isosphere.cli import endings
from isosphere.losses import pairs
from tiny import FIELDS


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_that_begins_with_what_it_does(name, tmp_path):
    shown = isosphere(name, "--help", folder=tmp_path).stdout
    first = cli._command(name).__doc__.splitlines()[0]
    assert first in shown and f"isosphere {name}" in shown.split(first)[1], "examples"
    assert first in isosphere("--help", folder=tmp_path).stdout


def test_the_help_of_train_needs_no_torch_and_shows_what_people_use():
    code = "import sys; sys.argv = ['isosphere', 'train', '--help']; from isosphere.cli import main\n"
    code += "try: main()\nfinally: print('torch' in sys.modules, 'rich' in sys.modules, 'numpy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("False False False\n")
    assert shown.index("isosphere train ./my_photos") < shown.index("  --out")
    assert "--loss " in shown and "--model.weights" in shown and "isosphere recipes NAME" in shown
    assert "--loss.margin" not in shown and len(shown.splitlines()) < 60


def test_the_command_alone_shows_its_help(tmp_path):
    done = isosphere(folder=tmp_path, code=2)
    assert all(name in done.stdout for name in cli.COMMANDS) and not done.stderr


def test_the_version(tmp_path):
    from isosphere import __version__

    assert isosphere("--version", folder=tmp_path).stdout == f"isosphere {__version__}\n"


@pytest.mark.parametrize(
    ("words", "kind", "fields"),
    [
        ("trian", errors.BadUsage, {"command": "isosphere"}),
        ("--versio", errors.UnknownOption, {"option": "--versio", "near": ("--version",)}),
        ("demo --steps few", errors.BadUsage, {"command": "isosphere demo"}),
        ("reproduce table3 --tuned-by gone.json", errors.NotResults, {}),
        ("reproduce table3 --seeds 0 x", errors.BadUsage, {"command": "isosphere reproduce"}),
        ("inspect nowhere.npy nowhere.npy", (ValueError, OSError), {}),
        ("report nowhere", (ValueError, OSError), {}),
        ("datasets --gt", errors.UnknownOption, {"near": ("--get",)}),
    ],
)
def test_bad_input(words, kind, fields, tmp_path):
    assert has(refusal(*words.split(), folder=tmp_path), kind, **fields)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadUsage("isosphere", "no"), 2),
        (errors.MissingExtra("it", "rich", "train"), 2),
        (errors.Interrupted(1, 2, "run", 15), 143),
        (errors.Diverged(1, "it is not finite", {}, ()), 1),
        (errors.NotSaved("a", "no space", "there was none"), 1),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (PermissionError(13, "Permission denied", "x"), 2),
        (IsADirectoryError(21, "Is a directory", "x"), 2),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
        (TypeError("a bug"), None),
        (KeyError("a bug"), None),
        (ImportError("a bug"), None),
        (RuntimeError("a bug"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes_come_from_types(error, code, monkeypatch, capsys):
    def fail(words: list[str]) -> None:
        raise error

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which `run` changes
    monkeypatch.setattr(cli, "read", fail)
    monkeypatch.setattr(sys, "argv", ["isosphere", "recipes"])
    if code is None:
        with pytest.raises(type(error)):
            cli.run()
    else:
        assert cli.run() == code
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"isosphere: {endings.words_of(error)}"


@pytest.mark.parametrize("out", [(), ("--out", "run")], ids=["new folder", "named folder"])
def test_the_traceback_of_an_error_in_a_loss_has_few_frames_of_ours(out, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(pairs, "_multi_similarity", fail)
    words = ["train", "rendered", "--device", "cpu", "--loss", "MultiSimilarity", *FIELDS, *out]
    monkeypatch.setattr(sys, "argv", ["isosphere", *words])
    with pytest.raises(RuntimeError) as raised:
        cli.main()
    package = Path(cli.__file__).parents[1]
    ours = [entry.name for entry in raised.traceback if Path(entry.path).is_relative_to(package)]
    assert ours[0] == "main" and ours[-1] == "over_pairs" and len(ours) <= 10


def test_tracebacks_on_request(monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("ISOSPHERE_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["isosphere", "trian"])
    with pytest.raises(errors.BadUsage):
        cli.run()


def test_torchrun_is_for_training(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["isosphere", "evaluate", "run"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert cli.run() == 2
        assert len(capsys.readouterr().err.splitlines()) == (rank == "0")


def test_a_pipe_that_closes_is_no_bug():
    command = f"{sys.executable} -m isosphere recipes --all | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1
