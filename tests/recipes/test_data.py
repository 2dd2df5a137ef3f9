"""What a recipe's data take; what they refuse is in `test_checks.py`."""

import pytest

from isosphere.errors import BadArgument, Option
from isosphere.paper import ALL, find
from isosphere.recipes import options, schema


def test_every_kind_with_both_sides_compares_them():
    both = [kind for kind in schema.Data.__args__ if {"size", "shorter"} <= set(options._hints(kind))]
    for kind in both:
        with pytest.raises(BadArgument):
            kind(size=128, shorter=127)
    assert len(both) == 4
    with pytest.raises(BadArgument) as caught:
        find("photos-sec", {"data.root": "x", "data.size": "128"})
    assert (caught.value.name, caught.value.value) == (Option("data.shorter"), 72)


def test_pairs_may_name_a_share():
    assert find("lfw-cosface-sec", {"data.pairs": "lfw,mine:0.43"}).data.pairs == ("lfw", "mine:0.43")


def test_shared_classes_need_leave():
    assert not ALL["photos"].data.allow_shared
    assert find("photos", {"data.allow_shared": "true"}).data.allow_shared
