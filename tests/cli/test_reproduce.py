"""`isosphere reproduce`: methods, also by the option's name of before."""

import pytest

from isosphere.cli import reproduce
from isosphere.cli.parser import Parser
from isosphere.errors import Incompatible, Option


@pytest.fixture
def parser():
    parser = Parser("isosphere reproduce", None)
    reproduce.declare(parser)
    return parser


def test_methods_are_taken_by_the_name_of_before_with_one_warning(parser):
    plain = parser.read(["table3", "--methods", "none", "sec"])
    with pytest.warns(UserWarning) as caught:
        older = parser.read(["table3", "--arms", "none", "sec", "--optimiser.lr", "1"])
    assert plain.methods == older.methods == ["none", "sec"] and len(caught) == 1
    assert (plain.changes, older.changes) == ({}, {"optimizer.lr": "1"})
    assert parser.read(["table3"]).methods is None and "--arms" not in parser.format_help()
    with pytest.raises(Incompatible) as refused:
        parser.read(["table3", "--arms", "none", "--methods", "sec"])
    assert {*refused.value.remedies} == {Option("methods", "sec"), Option("methods", "none")}
