"""The parser of a command. Every field of a recipe is an option of the commands that change recipes."""

import argparse
import difflib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from isosphere import runs
from isosphere.errors import BadUsage, UnknownOption
from isosphere.recipes import options, schema


class Parser(argparse.ArgumentParser):
    """argparse with errors of ours, and `--group.field value`; positionals may stand anywhere."""

    def __init__(self, name: str, about: str | None) -> None:
        self._known: list[str] = []  # names of all options
        self._fields: set[str] = set()
        self._renamed: list[str] = []
        super().__init__(name, description=about, formatter_class=_Help, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(self.prog, message)

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """As argparse has it; the names are kept, to suggest one for an option that is misspelled."""
        self._known += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **settings)

    def device(self) -> None:
        """The option that most commands have."""
        self.add_argument("--device", default="auto", help="cpu, cuda or cuda:1; by default a GPU if there is one")

    def fields(self, shown: Mapping[str, str], among: Callable[[str], bool] = lambda field: True) -> None:
        """Take a recipe's fields as options; the help has those `shown` alone."""
        known = {field: kinds for field, kinds in options.every_field(schema.Recipe).items() if among(field)}
        group = self.add_argument_group("fields of the recipe; `isosphere recipes NAME` shows all, with their defaults")
        for field in dict.fromkeys([*shown, *known, *runs.old_fields(known)]):
            about = f"{shown[field]} {' | '.join(known[field])}".strip() if field in shown else argparse.SUPPRESS
            value = field.rpartition(".")[2].upper()
            group.add_argument(f"--{field}", dest=field, metavar=value, default=argparse.SUPPRESS, help=about)
            self._fields.add(field)
        self._known += [f"--{field}" for field in self._fields]

    def renamed(self, name: str, help: str, **settings: Any) -> None:
        """An option that older versions called differently; those names are taken, and not shown."""
        for its in (name, *(old for old, now in runs.OPTIONS.items() if now == name)):
            about = help if its == name else argparse.SUPPRESS
            self.add_argument(f"--{its}", default=argparse.SUPPRESS, help=about, **settings)
            self._fields.add(its)
        self._renamed.append(name)

    def read(self, words: list[str]) -> argparse.Namespace:
        """What was given; `changes` has the fields. A word that is left over is refused."""
        asked, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            if word.startswith("-"):
                raise UnknownOption(self.prog, word.partition("=")[0], self._near(word.partition("=")[0]))
        if rest:
            self.error(f"unexpected {rest[0]!r}")
        given = vars(asked)
        asked.changes = runs.translate_changes({name: given.pop(name) for name in [*given] if name in self._fields})
        for name in self._renamed:
            setattr(asked, name, asked.changes.pop(name, None))
        return asked

    def _near(self, option: str) -> tuple[str, ...]:
        """Options that may be meant: of this name in a group, else one that is written like it."""
        inner = [its for its in self._known if its.endswith(f".{option.lstrip('-')}")]
        return tuple(inner or difflib.get_close_matches(option, self._known, n=1))


class _Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions as they are written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)
