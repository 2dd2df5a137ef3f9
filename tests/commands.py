"""`isosphere ...` in the test's own process: starting one takes seconds, most of which are torch's."""

import io
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from isosphere import cli
from isosphere.cli import endings


class Done(NamedTuple):
    """What a command left."""

    stdout: str
    stderr: str


def isosphere(*words: object, folder: Path, code: int = 0) -> Done:
    """The command as if it were started in a folder, where it must end with this exit code."""
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as Python by itself shows what is of interest to users
            warnings.simplefilter("always", UserWarning)
            found = _main(words)
    finally:
        os.chdir(before)
    assert found == code, err.getvalue()
    return Done(out.getvalue(), err.getvalue())


def refusal(*words: object, folder: Path) -> Exception:
    """The error with which a command refuses its input: in one line, with exit code 2."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("ignore")
            patch.setenv("ISOSPHERE_TRACEBACK", "1")
            patch.setattr(sys, "argv", ["isosphere", *map(str, words)])
            with pytest.raises(Exception) as raised:
                cli.run()
    finally:
        os.chdir(before)
    error = raised.value
    assert endings.code_of(error) == 2
    assert len(endings.words_of(error).splitlines()) == 1
    return error


def has(error: Exception, kind: type[Exception], **fields: object) -> bool:
    """Whether an error is of this type and has these fields."""
    return isinstance(error, kind) and {name: getattr(error, name) for name in fields} == fields


def command(capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    found = _main(words)
    shown = capsys.readouterr()
    return found, shown.out, shown.err


def _main(words: tuple[object, ...]) -> int:
    before, sys.argv = sys.argv, ["isosphere", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as left:
            cli.main()
    finally:
        sys.argv = before
    return left.value.code
