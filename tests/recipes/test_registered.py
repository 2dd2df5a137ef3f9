"""Every kind of an option says by itself what builds it: a new kind needs no table elsewhere."""

import typing
from pkgutil import resolve_name

import pytest

from isosphere.recipes import constraints, data, losses

KINDS = {"opened_by": data.Data, "built_by": constraints.Constraint,
         "criterion": losses.PairLoss | losses.ClassLoss, "margin_type": losses.MarginLoss}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "says"), [(kind, says) for says, kinds in KINDS.items() for kind in typing.get_args(kinds)]
)
def test_a_kind_names_what_builds_it(kind, says):
    assert callable(resolve_name(getattr(kind, says)))


def test_every_constraint_has_a_row_and_every_row_a_constraint():
    made = [kind() for kind in typing.get_args(constraints.Constraint)]
    made += [constraints.SEC(radius=radius, relative=relative) for radius in ("batch", "ema", "initial", 2.0)
             for relative in (False, True)]  # fmt: skip
    assert {one.method for one in made} == set(constraints.METHODS)
