"""`isosphere ...` in the test's own process."""

import sys

import pytest

from isosphere import cli


def command(capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    before, sys.argv = sys.argv, ["isosphere", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as left:
            cli.main()
    finally:
        sys.argv = before
    shown = capsys.readouterr()
    return left.value.code or 0, shown.out, shown.err
