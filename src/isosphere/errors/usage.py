"""What the command line was given: words and options that a command does not have."""

from dataclasses import dataclass
from typing import ClassVar

from .base import InputError


@dataclass(eq=False)
class BadUsage(InputError):
    """Words that a command cannot take."""

    text: ClassVar[str] = "{reason}; `{command} --help` says more"
    command: str
    reason: str


@dataclass(eq=False)
class UnknownOption(InputError):
    """An option that a command does not have; `near` are those that may be meant."""

    command: str
    option: str
    near: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """With what may be meant, or where all are listed."""
        return "no option {option}; " + ("did you mean {near}?" if self.near else "`{command} --help` lists them")
