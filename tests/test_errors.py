"""Errors as types: their messages in the golden file, their words, their way through worker processes."""

import ast
import pickle
from pathlib import Path

import pytest

import isosphere
import messages
from isosphere import errors
from isosphere.errors import BadArgument, IsosphereError, Option

HELD = messages.read()


def test_every_type_has_its_messages_in_the_golden_file():
    """After a change of words or types: `python tests/messages.py`."""
    assert sorted(HELD) == sorted(kind.__name__ for kind in errors.kinds())


@pytest.mark.parametrize("name", HELD)
def test_messages_are_those_of_the_golden_file(name):
    error, wanted = HELD[name]
    assert messages.messages(error) == wanted
    assert str(error) == wanted[0] and all(message and "{" not in message for message in wanted)
    assert error.code in (1, 2) or error.code > 128


@pytest.mark.parametrize("name", HELD)
def test_errors_come_home_from_worker_processes(name):
    error, _ = HELD[name]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert repr(again) == repr(error)  # fields may hold errors, which equal none but themselves


def test_all_types_are_in_errors():
    """Where the golden file finds them, and callers expect them."""
    ours = {kind.__name__ for kind in errors.kinds()} | {"IsosphereError", "InputError", "RunError"}
    source = Path(isosphere.__file__).parent
    for path in source.rglob("*.py"):
        if path.parent.name != "errors":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                bases = {ast.unparse(base).split(".")[-1] for base in getattr(node, "bases", ())}
                assert not bases & ours, f"{path}: {node.name}"
    assert {kind.__name__ for kind in errors.kinds()} < set(errors.__all__)


@pytest.mark.parametrize(
    ("value", "argument", "flag"),
    [
        (Option("data.root"), "data.root", "--data.root"),
        (Option("data.flip", True), "data.flip=True", "--data.flip true"),
        (Option("loss", "Triplet"), "loss='Triplet'", "--loss Triplet"),
        ((Option("a", 1), Option("b")), "a=1, b", "--a 1, --b"),
    ],
)
def test_options_in_both_wordings(value, argument, flag):
    error = BadArgument("it", 0, value)
    assert errors.words(error).startswith(f"it must be {argument}, ")
    assert errors.words(error, errors.as_flag).startswith(f"it must be {flag}, ")


def test_long_lists_are_cut_and_other_errors_are_one_line():
    assert errors.words(BadArgument("it", 0, [*range(9)])) == "it must be 0, 1, 2, 3, 4 and 4 more, not 0"
    assert errors.words(KeyError("two\nlines")) == r"'two\nlines'" and errors.words(ValueError("a\n b")) == "a b"
    assert errors.words(errors.UnreadableImage("\x1b[2J.png", "no\x07")) == r"cannot read the image \x1b[2J.png: no\x07"
    assert issubclass(BadArgument, (IsosphereError, ValueError)) and BadArgument.code == 2
