"""Recipes from and to JSON and `--group.field value`: one strict reader of the dataclasses in `schema.py`.

It is written by hand because it must refuse every unknown key and switch a group's kind. JSON and the command line
share it. What a field may hold is judged where the option is made (`checks.py`).
"""

import ast
import dataclasses
import difflib
import inspect
import itertools
import os
import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from isosphere.errors import BadArgument, Option, UnknownField
from isosphere.recipes.own import Own, is_path

QUOTED = re.compile(r"""(['"]).*?\1""")
PART = re.compile(r"""\s*(?:(?P<mark>['"])(?P<quoted>.*?)(?P=mark)|(?P<plain>[^,]*?))\s*(?:,|$)""")
"""One of several values between commas; a quoted one may hold commas itself."""


def to_dict(options: Any) -> Any:
    """A recipe as plain JSON values; a group that has several kinds says which in `kind`."""
    if not dataclasses.is_dataclass(options):
        return list(options) if isinstance(options, tuple) else options
    values = {f.name: to_dict(getattr(options, f.name)) for f in dataclasses.fields(options)}
    return {"kind": type(options).__name__, **values}


def from_dict(kind: Any, value: Any, where: str = "") -> Any:
    """The inverse of `to_dict`: `value` as an instance of the dataclass or type `kind`; anything unknown is refused."""
    groups = _groups(kind)
    return _group(groups, value, where) if groups else _converted(kind, value)


def override(recipe: Any, changes: dict[str, Any]) -> Any:
    """The recipe with fields changed: {"loss.margin": "0.5", "loss": "Triplet"}; kinds are switched before fields.

    Values are as the command line has them, or as the field does.
    """
    values = to_dict(recipe)
    fields = [field for field in flat(values) if not field.endswith(".kind")]
    fields += [f"{group}.{name}" for group in values for name in _fields_to_be(type(recipe), group, values[group])]
    for path, text in sorted(changes.items(), key=lambda change: change[0].count(".")):
        *groups, name = path.split(".")
        owner, node = type(recipe), values
        for group in groups:
            hint = _hints(owner).get(_known(owner, group, path))
            owner = _owner(hint, node[group], group)
            if becomes := getattr(owner, "becomes", ""):  # it has no fields: one that is given is another kind's
                node[group] = {"kind": becomes}
                owner = _owner(hint, node[group], group)
            node = node[group]
            if owner is None:
                raise UnknownField(Option(path), (Option(group),))
        hint = _hints(owner)[_known(owner, name, path, () if groups else fields)]
        if groups_of := _groups(hint):
            node[name] = _switched(groups_of, text, path, getattr(recipe, name, None))
        else:
            text = os.fspath(text) if isinstance(text, os.PathLike) else text
            node[name] = _parsed(hint, text) if isinstance(text, str) else text
    return from_dict(type(recipe), values)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of `to_dict` by the path of their field: {"loss.margin": 0.5}."""
    found = {}
    for name, value in values.items():
        found.update(flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value})
    return found


def differences(left: Any, right: Any) -> dict[str, tuple[Any, Any]]:
    """Fields in which two recipes differ, {"loss.margin": (0.5, 1.0)}."""
    first, second = flat(to_dict(left)), flat(to_dict(right))
    keys = dict.fromkeys([*first, *second])
    return {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}


def describe(options: Any, prefix: str = "") -> list[tuple[str, str, str, str]]:
    """(field, type, value, reason) for every field of a recipe: what `--help` prints."""
    rows, reasons = [], _reasons(type(options))
    for name, hint in _hints(type(options)).items():
        value, path = getattr(options, name), f"{prefix}{name}"
        if dataclasses.is_dataclass(value):
            kinds = [choice.__name__ for choice in _choices(hint)]
            if len(kinds) > 1:
                rows.append((path, " | ".join(kinds), type(value).__name__, inspect.getdoc(type(value)) or ""))
            rows += describe(value, f"{path}.")
        else:
            rows.append((path, _words(hint), "none" if value is None else str(value), reasons.get(name, "")))
    return rows


def every_field(kind: Any, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """All fields that a recipe can have, as "loss.margin". A group of several kinds has these with it."""
    found = {}
    for name, hint in _hints(kind).items():
        groups = _groups(hint)
        if len(groups) != 1:
            found[f"{prefix}{name}"] = tuple(group.__name__ for group in groups)
        for group in groups:
            found |= every_field(group, f"{prefix}{name}.")
    return found


# ---------------------------------------------------------------- reading types


def _hints(owner: type) -> dict[str, Any]:
    hints = typing.get_type_hints(owner)
    return {field.name: hints[field.name] for field in dataclasses.fields(owner)}


def _choices(kind: Any) -> list[Any]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [choice for argument in typing.get_args(kind) for choice in _choices(argument)]
    return [kind]


def _groups(hint: Any) -> list[type]:
    """The kinds of a group; none for a plain value."""
    return [choice for choice in _choices(hint) if isinstance(choice, type) and dataclasses.is_dataclass(choice)]


def _known(owner: type, name: str, path: str, inner: Sequence[str] = ()) -> str:
    """The name if the owner has such a field. Else an error with similar names, its own or of its groups."""
    names = list(_hints(owner))
    if name not in names:
        near = [field for field in inner if field.endswith(f".{name}")]
        if not near:
            before, _, after = path.partition(name)
            near = [f"{before}{like}{after}" for like in difflib.get_close_matches(name, names, n=1) or names]
        raise UnknownField(Option(path), tuple(map(Option, near)))
    return name


def _owner(hint: Any, node: Any, where: str) -> type | None:
    """The dataclass that the JSON `node` will be read as."""
    groups = _groups(hint)
    return _kind(groups, node["kind"], where) if groups else None


def _fields_to_be(owner: type, group: str, node: Any) -> list[str]:
    """The fields that a group without any has as the kind which it becomes when one is given."""
    hint = _hints(owner).get(group)
    becomes = getattr(_owner(hint, node, group), "becomes", "") if isinstance(node, dict) else ""
    owner = _owner(hint, {"kind": becomes}, group) if becomes else None
    return [] if owner is None else list(_hints(owner))


def _kind(groups: list[type], name: str, where: str) -> type:
    plain = {group.__name__.lower(): group for group in groups}
    wanted = str(name).lower().replace("-", "").replace("_", "")
    if wanted not in plain:
        near = difflib.get_close_matches(wanted, plain, n=1)
        kinds = [plain[kind].__name__ for kind in dict.fromkeys([*near, *plain])]
        raise BadArgument(Option(where), name, f"one of {', '.join(kinds)}")
    return plain[wanted]


def _switched(groups: list[type], text: Any, where: str, before: Any) -> dict[str, Any]:
    """A group of another kind. `package.module:attribute` is a part of your own, which keeps some fields as before."""
    own = next((group for group in groups if issubclass(group, Own)), None)
    path = {"path": text} if own and is_path(text) else {}
    kind = own if own and path else _kind(groups, text, where)
    kept = {name: getattr(before, name) for name in getattr(kind, "kept", ()) if hasattr(before, name)}
    return {"kind": kind.__name__, **kept, **path}


def _group(groups: list[type], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise BadArgument(Option(where or "recipe"), value, "a group of fields")
    values = dict(value)
    owner = _kind(groups, values.pop("kind", groups[0].__name__), where or "kind")
    for name in values:
        _known(owner, name, f"{where}.{name}".lstrip("."))
    hints = _hints(owner)
    items = {name: from_dict(hints[name], item, f"{where}.{name}".lstrip(".")) for name, item in values.items()}
    try:
        return owner(**items)
    except BadArgument as error:
        raise dataclasses.replace(error, name=Option(f"{where}.{error.name}".lstrip("."))) from None


def _converted(hint: Any, value: Any) -> Any:
    """A JSON value as the field has it: a list as a tuple, a whole number as a float."""
    choices = _choices(hint)
    if isinstance(value, (list, tuple)):
        parts = next((typing.get_args(choice) for choice in choices if typing.get_origin(choice) is tuple), (Any, ...))
        kinds = itertools.chain(parts if parts[-1] is not ... else parts[:1], itertools.repeat(parts[0]))
        return tuple(_converted(part, item) for part, item in zip(kinds, value, strict=False))
    return float(value) if float in choices and type(value) is int else value


def _parsed(hint: Any, text: str) -> Any:
    """The text of a command-line value as a JSON value; `from_dict` then judges its type."""
    choices = _choices(hint)
    if type(None) in choices and text.lower() == "none":
        return None
    for choice in choices:
        if typing.get_origin(choice) is tuple:
            if str not in typing.get_args(choice):
                return [_literal(part) for part in _parts(text)]
            return [text] if os.path.lexists(text) else _parts(text)  # a folder may be called `[a]` or `a, b`
    if bool in choices and text.lower() in ("true", "false", "yes", "no"):
        return text.lower() in ("true", "yes")
    if set(choices) - {type(None)} == {str}:
        return text
    return _literal(text)


def _parts(text: str) -> list[str]:
    """`a, b`, `(a, b)` or `['a', 'b']` as ["a", "b"]. Brackets of a name belong to it, as in `faces (1)` or `(1)`."""
    text = text.strip()
    if text[:1] + text[-1:] in ("()", "[]"):
        plain = QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
        depths = list(itertools.accumulate((letter in "([") - (letter in ")]") for letter in plain))
        around = 0 not in depths[:-1]  # else two pairs, as in `(1), (2)`
        one = text[0] == "(" and plain[1:-1].strip() and "," not in plain  # in Python a tuple of one has a comma, too
        text = text[1:-1] if around and not one else text
    found = (part for part in PART.finditer(text) if part[0].strip(" ,"))
    return [part["quoted"] if part["mark"] else part["plain"] for part in found]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text


def _words(kind: Any) -> str:
    names = []
    for choice in _choices(kind):
        if typing.get_origin(choice) is typing.Literal:
            names += [str(value) for value in typing.get_args(choice)]
        elif typing.get_origin(choice) is tuple:
            names.append(",".join("..." if part is ... else part.__name__ for part in typing.get_args(choice)))
        else:
            names.append("none" if choice is type(None) else choice.__name__)
    return " | ".join(names)


def _reasons(owner: type) -> dict[str, str]:
    """The string under each field, which Python itself throws away, also of the fields that it inherits."""
    trees = [ast.parse(inspect.getsource(kind)).body[0] for kind in owner.__mro__[:-1]]
    body = [line for tree in trees if isinstance(tree, ast.ClassDef) for line in tree.body]
    reasons = {}
    for line, after in zip(body, body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            reasons[ast.unparse(line.target)] = str(after.value.value)
    return reasons
