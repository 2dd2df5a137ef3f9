"""Errors and warnings asserted by their type and fields, never by their wording."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from isosphere.errors import DataWarning, IsosphereError


@contextmanager
def raised(kind: type[IsosphereError], **fields: object) -> Iterator[pytest.ExceptionInfo]:
    """The block must raise just this type of error with these fields; files may be given as text."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind
    found = {name: getattr(caught.value, name) for name in fields}
    assert {name: _plain(value) for name, value in found.items()} == {n: _plain(v) for n, v in fields.items()}
    assert str(caught.value) and "\n" not in str(caught.value)


@contextmanager
def warned(counts: dict[type[DataWarning], int]) -> Iterator[list[warnings.WarningMessage]]:
    """The block must warn of data with just these types, once each, of so many."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    caught[:] = [one for one in caught if isinstance(one.message, DataWarning)]
    assert len(caught) == len(counts) and {type(one.message): one.message.count for one in caught} == counts


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if hasattr(value, "__fspath__") else value
