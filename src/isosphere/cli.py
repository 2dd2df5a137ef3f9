"""The command line: a dict of commands, and how they end: bad input in one line, a bug in its traceback."""

import atexit
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from isosphere import commands, lookups
from isosphere.arguments import note, spread_lists

OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
CHANGEABLE = ("train", "reproduce", "evaluate", "embed", "figure")  # commands that take --group.field value

COMMANDS = {
    "demo": commands.demo,
    "train": commands.train,
    "reproduce": commands.reproduce,
    "evaluate": commands.evaluate,
    "embed": commands.embed,
    "inspect": lookups.inspect,
    "figure": lookups.figure,
    "report": lookups.report,
    "recipes": lookups.recipes,
    "datasets": lookups.datasets,
}


def main() -> None:
    """Run a command, and end the process with its exit code."""
    code = run()
    if "WORLD_SIZE" in os.environ:  # gloo's threads, which DDP keeps, may abort a process whose interpreter ends
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run() -> int:
    """Run a command; bad input ends in one line and exit code 2, a failed run in one line and exit code 1."""
    app = typer.Typer(
        help="Train embeddings that lie on one sphere.", no_args_is_help=True, add_completion=False,
        pretty_exceptions_enable=False,
    )  # fmt: skip
    app.callback()(options)
    for name, command in COMMANDS.items():
        app.command(name, context_settings=OVERRIDES if name in CHANGEABLE else {})(command)
    keep_to_stderr()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and sys.argv[1:2] != ["train"]:
        if os.environ.get("RANK") == "0":
            note(f"{' '.join(sys.argv[1:2])} runs in one process: leave out torchrun, which is for train")
        return 2
    try:
        return app(spread_lists(sys.argv[1:]), standalone_mode=False) or 0
    except Exception as error:
        if os.environ.get("ISOSPHERE_TRACEBACK"):
            raise
        number = exit_code(error)
        if number is None:
            raise
        message = error.format_message() if hasattr(error, "format_message") else str(error) or "interrupted"
        if type(error).__name__ == "UnfillableBatch":  # the samplers', in words for their own arguments
            message = message.replace("batch=", "--batches.size ")
        rank = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        if message:  # none after the help that a command without arguments shows
            note(rank + " ".join(message.split()))
        return number


def show_version(asked: bool) -> None:
    if asked:
        print(f"isosphere {version('isosphere')}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself, before the name of one."""


def exit_code(error: Exception) -> int | None:
    """2 for bad input, 1 for a run that failed, 128 + n for a signal; None for a bug, which deserves its traceback."""
    if hasattr(error, "format_message"):  # the command-line library's own
        return 2
    if hasattr(error, "signal"):  # the loop's Interrupted
        return 128 + error.signal
    if type(error).__name__ == "Abort":  # Ctrl-C anywhere else
        return 130
    if isinstance(error, (ValueError, FileNotFoundError, NotADirectoryError)):
        return 2
    if isinstance(error, OSError) or type(error).__name__ == "NonFiniteLoss":
        return 1
    return None


def keep_to_stderr() -> None:
    """Progress bars are for a screen and never among results; a warning of ours is one line, without its code.

    Names of files are printed as they are, also those that are not UTF-8.
    """
    import rich

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="surrogateescape")

    rich.reconfigure(stderr=True, quiet=not sys.stderr.isatty())
    others = warnings.showwarning
    ours = [Path(module).parent for module in (__file__, typer.__file__)]  # losses warn at the line that called us

    def show(message: Warning | str, category: type[Warning], filename: str, *where: object) -> None:
        if any(Path(filename).is_relative_to(folder) for folder in ours):
            if os.environ.get("RANK", "0") == "0":  # all ranks open the same data
                note(str(message))
        else:
            others(message, category, filename, *where)

    warnings.showwarning = show
