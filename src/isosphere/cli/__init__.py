"""The command line: a file per command, each imported when it runs.

| ending | exit code |
|---|---|
| bad input | 2, and one line |
| a failed run | 1, and one line |
| a bug | its traceback |
"""

import atexit
import os
import sys
from argparse import Namespace
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from isosphere import terminal
from isosphere.cli.endings import code_of, note, show_warnings, words_of
from isosphere.cli.parser import Parser
from isosphere.errors import BadUsage, missing_extra

GROUPS = {
    "train and measure": ("train", "evaluate", "inspect", "report", "figure"),
    "use what was trained": ("embed", "index", "search", "classify", "sizes", "parquet", "export"),
    "look through a gallery": ("serve", "duplicates", "label-issues", "cluster", "calibrate"),
    "look around": ("demo", "recipes", "datasets", "cache", "reproduce"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
"""Each is a file of this folder, with _ for -: its docstring is the help, `declare` adds the options, `run` does the
work."""


def main() -> None:
    """Run a command, and end the process with its exit code."""
    terminal.open_missing()
    code = run()
    terminal.settle()
    if "WORLD_SIZE" in os.environ:  # gloo's threads, which DDP keeps, may abort a process whose interpreter ends
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


def run() -> int:
    """Run the command that `sys.argv` names; returns the exit code."""
    show_warnings()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files that are not UTF-8 are printed as they are
    words = sys.argv[1:]
    try:
        if not words:
            _overview().print_help()
            return 2
        command, asked = read(words)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and words[0] != "train":
            if os.environ.get("RANK") == "0":
                note(f"{words[0]} runs in one process: leave out torchrun, which is for train")
            return 2
        try:
            import rich

            screen = terminal.stderr()
            rich.reconfigure(file=screen, quiet=not screen.isatty())  # progress is for a screen, never in results
            with terminal.named_stdout():
                command.run(asked)
            return 0
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"isosphere {words[0]}") from error
    except SystemExit as left:  # after --help and --version
        return int(left.code or 0)
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and error.filename == "stdout":  # as in `isosphere recipes | head`
            return 1
        code = code_of(error)
        if code is None or os.environ.get("ISOSPHERE_TRACEBACK"):
            raise
        rank = f"rank {os.environ['RANK']}: " if "RANK" in os.environ else ""
        note(rank + words_of(error))
        return code


def read(words: list[str]) -> tuple[ModuleType, Namespace]:
    """The command, and what it was given."""
    if words[0] not in COMMANDS:
        if words[0].startswith("-"):
            _overview().read(words)  # leaves after --help and --version
        near = get_close_matches(words[0], COMMANDS, n=1) or COMMANDS
        raise BadUsage("isosphere", f"no command {words[0]}; did you mean {', '.join(near)}?")
    command = _command(words[0])
    parser = Parser(f"isosphere {words[0]}", command.__doc__)
    command.declare(parser)
    return command, parser.read(words[1:])


def _overview() -> Parser:
    """What `isosphere --help` shows: every command with the first line of its help."""
    width = max(map(len, COMMANDS))
    lines: list[str] = []
    for title, names in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<{width}}  {_about(name).splitlines()[0]}" for name in names), ""]
    about = ["Train embeddings that lie on one sphere.", "", *lines, "`isosphere COMMAND --help` says more."]
    parser = Parser("isosphere", "\n".join(about))
    parser.usage = "isosphere COMMAND ..."
    parser.add_argument("--version", action="version", version=f"isosphere {_version()}", help="show it and exit")
    return parser


def _about(name: str) -> str:
    return _command(name).__doc__ or ""


def _command(name: str) -> ModuleType:
    return import_module(module_of(name))


def module_of(name: str) -> str:
    """The file of a command."""
    return f"isosphere.cli.{name.replace('-', '_')}"


def _version() -> str:
    from isosphere import __version__

    return __version__
