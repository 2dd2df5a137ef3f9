"""How a command ends: its exit code, and an error or a warning as one line in the command line's words."""

import inspect
import os
import warnings
from pathlib import Path
from typing import Any

from isosphere import errors, terminal

PATHS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Of the system, about a path that was given; other errors of the system are failures."""


def code_of(error: BaseException) -> int | None:
    """The exit code; None for a bug, which deserves its traceback."""
    if isinstance(error, errors.IsosphereError):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, PATHS):
        return 2
    return 1 if isinstance(error, OSError) or _lacks_memory(error) else None


def _lacks_memory(error: BaseException) -> bool:
    """Whether a GPU is full, without importing torch."""
    return type(error).__name__ == "OutOfMemoryError" and type(error).__module__.startswith("torch")


def words_of(error: BaseException) -> str:
    """The error as one line; fields of recipes are written as flags."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and not isinstance(error, errors.IsosphereError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if _lacks_memory(error):
        return f"the GPU is out of memory: {str(error).partition('. GPU')[0]}; free it, or use --device cpu"
    return errors.words(error, errors.as_flag)


def note(text: str) -> None:
    """A line of ours, on stderr."""
    terminal.say(f"isosphere: {text}")


def show_warnings() -> None:
    """Show warnings of ours as one line, without the code that raised them."""
    others, package = warnings.showwarning, Path(__file__).parents[1]
    caller = _caller(package)  # losses warn at the line that called isosphere

    def show(message: Warning | str, category: type[Warning], filename: str, *where: Any) -> None:
        if filename != caller and not Path(filename).is_relative_to(package):
            others(message, category, filename, *where)
        elif os.environ.get("RANK", "0") == "0":  # all ranks open the same data
            note(str(message))

    warnings.showwarning = show  # type: ignore[assignment]


def _caller(package: Path) -> str:
    """The file that started the command."""
    frame = inspect.currentframe()
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(package):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename
