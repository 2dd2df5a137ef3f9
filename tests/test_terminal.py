"""A stderr that is full, closed or gone ends no work. A stdout that is so is an error that names it."""

import io
import subprocess
import sys

import pytest

from isosphere import terminal
from isosphere.train import loop
from isosphere.train.screen import Screen
from tiny import tiny_recipe


class Failing(io.StringIO):
    """A terminal that fails with an error at every write, as one that is gone does."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str = "") -> int:
        raise self.error

    flush = isatty = write  # type: ignore[assignment]


ERRORS = [OSError(28, "No space left on device"), BrokenPipeError(32, "Broken pipe"), OSError(5, "I/O error"),
          ValueError("I/O operation on closed file")]  # fmt: skip


@pytest.mark.parametrize("file", [*map(Failing, ERRORS), None], ids=lambda file: repr(getattr(file, "error", file)))
def test_a_run_goes_on_without_a_screen(file, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", file)
    recipe = tiny_recipe(changes={"loop.steps": 1})
    assert loop.fit(recipe, tmp_path / "run", "cpu")["last"]
    loop.fit(recipe, tmp_path / "run", "cpu", resume=True)  # which says that there is nothing to do


def test_what_could_not_be_said_is_lost_and_what_comes_later_is_not(monkeypatch):
    held = io.StringIO()
    monkeypatch.setattr(sys, "stderr", held)
    with Screen("run", steps=2, done=0, shown=True) as screen:
        write, held.write = held.write, Failing(ERRORS[0]).write
        screen.say("first")
        held.write = write
        screen.say("second")
    assert "second" in held.getvalue() and "first" not in held.getvalue()


@pytest.mark.parametrize(("shell", "code", "said"), [
    ("{} 2>&-", 0, ""), ("{} <&- 2>/dev/full", 0, ""), ("{} 2>&1 >&- | cat", 0, ""),
    ("{} >/dev/full", 1, "isosphere: stdout: No space left on device\n"),
])  # fmt: skip
def test_commands_whose_outputs_are_closed_or_full(shell, code, said):
    script = shell.format(f"{sys.executable} -m isosphere recipes")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)
    assert bool(done.stdout) == (code == 0 and "|" not in shell)


def test_a_file_never_takes_the_number_of_a_closed_output(tmp_path):
    """Else what a library in C says would be written into it."""
    code = "import os; from isosphere import terminal; terminal.open_missing(); "
    code += "print(os.open('file', os.O_CREAT), file=open('found', 'w'))"
    subprocess.run(["bash", "-c", f'{sys.executable} -c "{code}" <&- >&- 2>&-'], cwd=tmp_path, check=True)
    assert int((tmp_path / "found").read_text()) > 2


def test_stdout_names_itself(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Failing(ERRORS[0]))
    with pytest.raises(OSError) as raised, terminal.named_stdout():
        print("a result")
    assert (raised.value.errno, raised.value.filename) == (28, "stdout")
