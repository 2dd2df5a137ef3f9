"""stderr and stdout that are full, closed or gone. Words may be lost, output only with an error."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, Any, cast

FAILURES = (OSError, ValueError)  # a full disk, a reader or a terminal that is gone; a closed file


class Lenient:
    """A text file whose failures are left out. What could not be written is lost; later text is tried again."""

    def __init__(self, file: Any) -> None:
        self.file = getattr(file, "rich_proxied_file", file)  # a progress bar's own stand-in would come back to us

    def write(self, text: str) -> int:
        with suppress(*FAILURES):
            if self.file is not None:
                self.file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(*FAILURES):
            if self.file is not None:
                self.file.flush()

    def isatty(self) -> bool:
        """Whether somebody can see it."""
        with suppress(*FAILURES):
            return self.file is not None and self.file.isatty()
        return False

    @property
    def encoding(self) -> str:
        """What rich chooses its characters by."""
        return getattr(self.file, "encoding", None) or "utf-8"


class Named:
    """stdout, whose failures say so; `print` alone would say "No space left on device"."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, text: str) -> int:
        with _named():
            return self.file.write(text)

    def flush(self) -> None:
        with _named():
            self.file.flush()


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from error


@contextmanager
def named_stdout() -> Iterator[None]:
    """In here, and at the end of it, an output that cannot be written is an error of the file "stdout"."""
    with redirect_stdout(cast(IO[str], Named(sys.stdout))):
        yield
        sys.stdout.flush()


def stderr() -> IO[str]:
    """Today's stderr, which must not fail."""
    return cast(IO[str], Lenient(sys.stderr))


def say(text: str) -> None:
    """A line on stderr."""
    print(text, file=stderr(), flush=True)


def open_missing() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed. The next file would take its place, and our words."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False, encoding="utf-8"))


def settle() -> None:
    """Give up text that still cannot be written, at which Python would end with an exit code of its own."""
    for number, file in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if file is not None:
                file.flush()
        except FAILURES:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
