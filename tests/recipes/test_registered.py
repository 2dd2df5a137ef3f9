"""Every kind of an option says by itself what builds it; names of constraints and metrics have one owner."""

import ast
import typing
from pathlib import Path
from pkgutil import resolve_name

import pytest

import isosphere
from isosphere.metrics import registry
from isosphere.recipes import constraints, data, losses
from isosphere.recipes.own import Own

SOURCE = Path(isosphere.__file__).parent
PLAIN = {"none", "scale", "SEC", "#000000"}  # words and colors of many things

KINDS = {"opened_by": data.Data, "built_by": constraints.Constraint,
         "criterion": losses.PairLoss | losses.ClassLoss, "margin_type": losses.MarginLoss}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "says"),
    [(kind, says) for says, kinds in KINDS.items() for kind in typing.get_args(kinds) if not issubclass(kind, Own)],
)
def test_a_kind_names_what_builds_it(kind, says):
    assert callable(resolve_name(getattr(kind, says)))


def test_every_constraint_has_a_row_and_every_row_a_constraint():
    made = [kind() for kind in typing.get_args(constraints.Constraint)]
    made += [constraints.SEC(radius=radius, relative=relative) for radius in ("batch", "ema", "initial", "learned", 2.0)
             for relative in (False, True)]  # fmt: skip
    assert {one.method for one in made} == set(constraints.METHODS)


def strings(path: Path) -> set[str]:
    """The texts in a file's code, but for what explains it."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and id(node) not in alone}  # fmt: skip


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_labels_and_colors_of_constraints_stand_in_one_place(path):
    if path in (SOURCE / "recipes" / "constraints.py", SOURCE / "runs" / "versions.py"):  # which knows those of before
        return
    rows = constraints.METHODS.values()
    ours = {*constraints.METHODS, *(row.label for row in rows), *(row.color for row in rows)} - PLAIN
    assert not ours & strings(path)


MAKERS = ("metrics", "monitor", "train/evaluation.py")  # where keys are made
HELD = {"paper/published.py", "recipes/data.py"}  # printed numbers; names that pairs of one's own must not have
SETS = {"lfw_dev", "agedb_30", "cfp_fp", "cfp_ff"}  # of pairs, which are called as their files


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_of_metrics_stand_in_one_place(path):
    place = path.relative_to(SOURCE).as_posix()
    if place.startswith(MAKERS) or place in HELD:
        return
    keys = {key for key in registry.KNOWN if "_" in key or "@" in key} | {"accuracy", "knn"}
    found = {one for one in strings(path) if one in keys - SETS or one.startswith(("recall@", "rank1@1"))}
    assert not found


def test_a_set_of_pairs_cannot_be_called_as_what_faces_are_judged_by():
    assert registry.leading("faces") in data.TAKEN
